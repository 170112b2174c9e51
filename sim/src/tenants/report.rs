//! What came out, for each tenant.

use base::Nanos;
use hdrhistogram::Histogram;
use qos::Percentile;
use qos::token_scheduler::Totals;

/// Latencies are kept with three digits.
const DIGITS: u8 = 3;

/// Later ones count as this: ten seconds.
const LATENCY_MAX_NS: u64 = 10_000_000_000;

/// What one tenant got while it was measured.
#[derive(Clone, Debug)]
pub struct TenantReport {
    /// Requests that ended.
    pub requests: u64,
    /// What the scheduler charged for those that it released, or would have, in milli-tokens.
    pub milli_tokens: u64,
    /// Requests that were refused: the tenant was removed.
    pub refused: u64,
    reads: Histogram<u64>,
    measured: Nanos,
}

impl TenantReport {
    pub(super) fn new(measured: Nanos) -> Self {
        Self {
            requests: 0,
            milli_tokens: 0,
            refused: 0,
            reads: histogram(),
            measured,
        }
    }

    pub(super) fn read(&mut self, took: Nanos) {
        self.reads.saturating_record(took.0);
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
        self.reads.len()
    }
}

pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS)
        .expect("a range and a precision that there are")
}

fn latency(reads: &Histogram<u64>, percentile: Percentile) -> Nanos {
    let quantile = f64::from(percentile.permille()) / 1000.0;
    Nanos(reads.value_at_quantile(quantile))
}

/// What all tenants got.
#[derive(Clone, Debug)]
pub struct Report {
    /// By number.
    pub tenants: Vec<TenantReport>,
    /// What became of the tokens, warm-up included.
    pub tokens: Totals,
    /// The rate at which tokens were generated in the end, in tokens a second.
    pub rate: u64,
    /// Whose promises the device cannot keep in the end, by number.
    pub unkept: Vec<usize>,
    /// Rounds of all threads.
    pub rounds: u64,
    /// How long each thread worked while it was measured; nothing where work takes no time.
    pub busy: Vec<Nanos>,
    pub(super) reads: Histogram<u64>,
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
