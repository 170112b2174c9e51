//! The load of each class on each core: integer moving averages. `[blk-switch §3.3, §4]`
//!
//! Each arriving request samples the bytes that its class has outstanding on the core, including
//! itself. The average, with weight 1/8 for the newest sample, is the load that application
//! steering compares. (The target samples once per receive with commands:
//! [`demand`](crate::demand).) Owned by the measured core. Invariant: a load without traffic
//! expires after [`LOAD_RESET`]; fractions of a byte are carried, not lost.

use crate::limits::{EWMA_SHIFT, LOAD_RESET};
use base::{Nanos, Time};

/// A moving average of integers; the newest has weight 1/8. The fraction is carried, so that a
/// constant input is reached exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ewma {
    /// Eight times the average.
    scaled: u64,
}

impl Ewma {
    /// Largest sample; larger ones are capped to it.
    pub const MAX: u64 = u64::MAX >> (EWMA_SHIFT + 1);

    /// Creates an average of the constant `value`.
    #[must_use]
    pub const fn of(value: u64) -> Self {
        let value = if value < Self::MAX { value } else { Self::MAX };
        Self {
            scaled: value << EWMA_SHIFT,
        }
    }

    /// Adds a sample.
    #[inline]
    pub fn add(&mut self, sample: u64) {
        self.scaled = self.scaled - self.value() + sample.min(Self::MAX);
    }

    /// The average, rounded down.
    #[inline]
    #[must_use]
    pub const fn value(self) -> u64 {
        self.scaled >> EWMA_SHIFT
    }
}

/// The load of one class on one core, or of one thread, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassLoad {
    average: Ewma,
    last: Time,
}

impl ClassLoad {
    /// Samples on arrival of a request; `outstanding_bytes` includes it. After [`LOAD_RESET`]
    /// without a request the average restarts at 0.
    #[inline]
    pub fn sample(&mut self, now: Time, outstanding_bytes: u64) {
        if now.since(self.last) >= LOAD_RESET {
            self.average = Ewma::default();
        }
        self.last = now;
        self.average.add(outstanding_bytes);
    }

    /// The average in bytes; 0 after [`LOAD_RESET`] without a request.
    #[inline]
    #[must_use]
    pub fn bytes(&self, now: Time) -> u64 {
        self.bytes_within(LOAD_RESET, now)
    }

    /// The average in bytes; 0 if no request arrived within the last `span`.
    #[inline]
    #[must_use]
    pub fn bytes_within(&self, span: Nanos, now: Time) -> u64 {
        if now.since(self.last) >= span {
            0
        } else {
            self.average.value()
        }
    }

    /// The average in bytes at the last request, however old.
    #[inline]
    #[must_use]
    pub const fn last_bytes(&self) -> u64 {
        self.average.value()
    }

    /// Encodes the load as two words, which a caller can publish to other cores.
    #[inline]
    #[must_use]
    pub const fn to_words(self) -> [u64; 2] {
        [self.average.scaled, self.last.0]
    }

    /// Decodes the words from [`ClassLoad::to_words`].
    #[inline]
    #[must_use]
    pub const fn from_words([scaled, last]: [u64; 2]) -> Self {
        Self {
            average: Ewma { scaled },
            last: Time(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn a_constant_is_reached_exactly_from_below_and_from_above() {
        for (start, target) in [(0, 1), (0, 98_304), (1 << 40, 3), (7, 0), (5, u64::MAX)] {
            let mut average = Ewma::of(start);
            for _ in 0..500 {
                average.add(target);
            }
            assert_eq!(average.value(), target.min(Ewma::MAX));
        }
    }

    #[test]
    fn it_follows_the_exact_average_within_one() {
        let mut prng = Prng::from_seed(3);
        let (mut average, mut exact) = (Ewma::default(), 0.0_f64);
        for _ in 0..10_000 {
            let sample = prng.below(1 << 20);
            average.add(sample);
            exact += (f64::from(u32::try_from(sample).unwrap()) - exact) / 8.0;
            let value = f64::from(u32::try_from(average.value()).unwrap());
            assert!((value - exact).abs() <= 1.0, "{value} {exact}");
        }
    }

    #[test]
    fn a_second_without_a_request_is_no_load() {
        let mut load = ClassLoad::default();
        let start = Time(5_000_000_000);
        for _ in 0..100 {
            load.sample(start, 4096);
        }
        assert_eq!(load.bytes(start + Nanos(999_999_999)), 4096);
        let silent = start + LOAD_RESET;
        assert_eq!(load.bytes(silent), 0);
        assert_eq!(load.last_bytes(), 4096);
        assert_eq!(ClassLoad::from_words(load.to_words()), load);
        load.sample(silent, 4096);
        assert_eq!(load.bytes(silent), 512, "it starts from nothing");
    }

    #[test]
    fn a_depth_is_learned_within_some_requests() {
        // A closed loop: each request arrives when one has completed, so the depth is outstanding.
        let mut load = ClassLoad::default();
        for request in 1..=40 {
            load.sample(Time(request), 16 * 65_536);
        }
        let whole = 16 * 65_536;
        assert!(load.bytes(Time(40)) > whole * 9 / 10 && load.bytes(Time(40)) <= whole);
    }
}
