//! The delay between two attempts to connect.

use base::{Nanos, Prng};

/// Delays between attempts: doubling, with jitter, so that many hosts do not reconnect at the same
/// time.
#[derive(Debug)]
pub(crate) struct Backoff {
    min: Nanos,
    max: Nanos,
    attempt: u32,
    prng: Prng,
}

impl Backoff {
    pub(crate) fn new(min: Nanos, max: Nanos, seed: u64) -> Self {
        Self {
            min,
            max,
            attempt: 0,
            prng: Prng::from_seed(seed),
        }
    }

    /// Returns the delay before the next attempt: between half and all of the doubled delay.
    pub(crate) fn next(&mut self) -> Nanos {
        let doubled = self.min.0.saturating_mul(1 << self.attempt.min(40));
        let delay = doubled.min(self.max.0);
        self.attempt = self.attempt.saturating_add(1);
        Nanos(delay / 2 + self.prng.below(delay / 2 + 1))
    }

    /// Makes the next delays the longest: the reason of the failure does not pass soon.
    pub(crate) fn skip(&mut self) {
        self.attempt = u32::MAX;
    }

    /// Resets the delay after a stable connection: the next loss starts with the shortest one.
    pub(crate) fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_stay_within_bounds_and_start_over() {
        let mut backoff = Backoff::new(Nanos::from_millis(10), Nanos::from_secs(10), 1);
        let delays: Vec<_> = (0..20).map(|_| backoff.next().as_millis()).collect();
        assert!((5..=10).contains(&delays[0]), "{delays:?}");
        assert!((10..=20).contains(&delays[1]), "{delays:?}");
        assert!(
            delays[15..].iter().all(|d| (5_000..=10_000).contains(d)),
            "{delays:?}"
        );
        backoff.reset();
        assert!(backoff.next() <= Nanos::from_millis(10));
        backoff.skip();
        assert!(backoff.next() >= Nanos::from_secs(5));
    }
}
