//! Latency histograms of loads, targets and simulations.

use crate::Nanos;
use hdrhistogram::Histogram;

/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// A histogram of latencies with three significant digits.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// Largest latency; larger ones count as this one.
    pub const MAX: Nanos = Nanos(100_000_000_000);

    /// Returns an empty histogram. The only allocation.
    ///
    /// # Panics
    /// Never: the range is valid.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, Self::MAX.0, DIGITS);
        Self(histogram.expect("one nanosecond to a hundred seconds is a legal range"))
    }

    /// Counts a latency.
    pub fn record(&mut self, latency: Nanos) {
        self.0.saturating_record(latency.0);
    }

    /// Counts the same latency a number of times.
    pub fn record_times(&mut self, latency: Nanos, times: u64) {
        self.0.saturating_record_n(latency.0, times);
    }

    /// Adds the latencies of another histogram.
    ///
    /// # Panics
    /// Never: all histograms have the same range.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same range");
    }

    /// Clears the histogram.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns true if no latency was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the latency at `quantile` (0 to 1); zero if empty.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Nanos {
        Nanos(self.0.value_at_quantile(quantile))
    }

    /// Returns [`quantile`](Self::quantile) in microseconds.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.quantile(quantile).0 as f64 / 1e3
    }

    /// Returns the mean in microseconds; zero if empty.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.0.mean() / 1e3
    }

    /// Returns the maximum in microseconds; zero if empty.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    /// Returns points of the cumulative distribution: (microseconds, fraction of latencies up to
    /// it), with finer steps towards the tail.
    #[must_use]
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        if self.is_empty() {
            return Vec::new();
        }
        let steps = self.0.iter_quantiles(4);
        steps
            .map(|step| (step.value_iterated_to() as f64 / 1e3, step.quantile()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let mut latencies = Latencies::new();
        assert_eq!(latencies.quantile(0.5), Nanos::ZERO);
        assert_eq!(latencies.distribution(), []);
        latencies.record_times(Nanos(1_000), 98);
        latencies.record(Nanos(2_000));
        let mut late = Latencies::new();
        late.record(Nanos(u64::MAX));
        latencies.add(&late);
        assert_eq!(latencies.count(), 100);
        assert_eq!(latencies.quantile(0.98), Nanos(1_000));
        assert_eq!(latencies.quantile(0.99).0 / 10, 200);
        assert!(latencies.max_us() >= Latencies::MAX.0 as f64 / 1e3);
        assert_eq!(
            latencies.distribution().last().map(|step| step.1),
            Some(1.0)
        );
        latencies.clear();
        assert!(latencies.is_empty());
    }
}
