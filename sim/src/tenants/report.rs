//! Results per tenant.

use base::{Latencies, Nanos};
use qos::Percentile;
use qos::token_scheduler::Totals;

/// Results of one tenant over the measured time.
#[derive(Clone, Debug)]
pub struct TenantReport {
    /// Completed requests.
    pub requests: u64,
    /// Cost of the requests that the scheduler released, or would have released, in milli-tokens.
    pub milli_tokens: u64,
    /// Requests refused because the tenant was removed.
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

    /// Returns requests per second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.requests as f64 * 1e9 / self.measured.0 as f64
    }

    /// Returns tokens per second.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        self.milli_tokens as f64 * 1e6 / self.measured.0 as f64
    }

    /// Returns the latency of its reads, from their arrival to the device's completion.
    #[must_use]
    pub fn read_latency(&self, percentile: Percentile) -> Nanos {
        latency(&self.reads, percentile)
    }

    /// Completed reads.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.count()
    }
}

fn latency(reads: &Latencies, percentile: Percentile) -> Nanos {
    let quantile = f64::from(percentile.permille()) / 1000.0;
    reads.quantile(quantile)
}

/// Results of all tenants.
#[derive(Clone, Debug)]
pub struct Report {
    /// Results by tenant number.
    pub tenants: Vec<TenantReport>,
    /// Token totals, including the warm-up.
    pub tokens: Totals,
    /// Rate of token generation at the end, in tokens per second.
    pub rate: u64,
    /// Numbers of the tenants whose SLOs the device cannot meet at the end.
    pub unkept: Vec<usize>,
    /// Rounds of all threads.
    pub rounds: u64,
    /// Measured busy time of each thread; empty if work takes no time.
    pub busy: Vec<Nanos>,
    pub(super) reads: Latencies,
}

impl Report {
    /// Returns the latency of all tenants' reads.
    #[must_use]
    pub fn read_latency(&self, percentile: Percentile) -> Nanos {
        latency(&self.reads, percentile)
    }

    /// Returns the tokens per second of all tenants.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        self.tenants
            .iter()
            .map(TenantReport::tokens_per_second)
            .sum()
    }
}
