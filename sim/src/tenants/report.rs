//! The results, for each tenant.

use base::{Latencies, Nanos};
use qos::Percentile;
use qos::token_scheduler::Totals;

/// The results of one tenant while it was measured.
#[derive(Clone, Debug)]
pub struct TenantReport {
    /// Requests that ended.
    pub requests: u64,
    /// Cost of the requests that the scheduler released, or would have, in milli-tokens.
    pub milli_tokens: u64,
    /// Requests that were refused: the tenant was removed.
    pub refused: u64,
    reads: Latencies,
    measured: Nanos,
}

impl TenantReport {
    pub(super) fn new(measured: Nanos) -> Self {
        Self {
            requests: 0,
            milli_tokens: 0,
            refused: 0,
            reads: Latencies::new(),
            measured,
        }
    }

    pub(super) fn read(&mut self, took: Nanos) {
        self.reads.record(took);
    }

    /// Requests a second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.requests as f64 * 1e9 / self.measured.0 as f64
    }

    /// Tokens a second.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        self.milli_tokens as f64 * 1e6 / self.measured.0 as f64
    }

    /// The latency of its reads, from their arrival to the device's answer.
    #[must_use]
    pub fn read_latency(&self, percentile: Percentile) -> Nanos {
        latency(&self.reads, percentile)
    }

    /// Reads that ended.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.count()
    }
}

fn latency(reads: &Latencies, percentile: Percentile) -> Nanos {
    let quantile = f64::from(percentile.permille()) / 1000.0;
    reads.quantile(quantile)
}

/// The results of all tenants.
#[derive(Clone, Debug)]
pub struct Report {
    /// By number.
    pub tenants: Vec<TenantReport>,
    /// Totals of the tokens, warm-up included.
    pub tokens: Totals,
    /// The rate at which tokens were generated in the end, in tokens a second.
    pub rate: u64,
    /// Tenants with SLOs that the device cannot keep in the end, by number.
    pub unkept: Vec<usize>,
    /// Rounds of all threads.
    pub rounds: u64,
    /// Time for which each thread worked while it was measured; empty where work takes no time.
    pub busy: Vec<Nanos>,
    pub(super) reads: Latencies,
}

impl Report {
    /// The latency of all tenants' reads together.
    #[must_use]
    pub fn read_latency(&self, percentile: Percentile) -> Nanos {
        latency(&self.reads, percentile)
    }

    /// Tokens a second of all tenants.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        self.tenants
            .iter()
            .map(TenantReport::tokens_per_second)
            .sum()
    }
}
