//! The load of each class on each core: moving averages in integers. `[blk-switch §3.3, §4]`
//!
//! A sample is the number of bytes that a class has outstanding on the core, taken whenever a
//! request comes or goes; its average, with weight 1/8 for the newest, is the load that application
//! steering compares. Owned by the core that is measured, read by application steering. Must never:
//! keep a load alive without traffic (it is none after [`LOAD_RESET`]), or lose what is below one
//! byte (the fraction is carried).

use crate::class::{Class, PerClass};
use crate::limits::{EWMA_SHIFT, LOAD_RESET};
use base::Time;

/// A moving average of whole numbers, the newest weighing 1/8. The fraction is carried, so that a
/// constant input is reached exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ewma {
    /// Eight times the average.
    scaled: u64,
}

impl Ewma {
    /// The largest number that it can average; larger ones count as this.
    pub const MAX: u64 = u64::MAX >> (EWMA_SHIFT + 1);

    /// An average that has always been `value`.
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

/// The load of one core, per class, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreLoad {
    classes: PerClass<ClassLoad>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClassLoad {
    average: Ewma,
    last: Time,
}

impl CoreLoad {
    /// A core without traffic so far.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A request of `class` came or went, and now so many bytes of it are outstanding. After
    /// [`LOAD_RESET`] without traffic of the class the average starts from nothing.
    #[inline]
    pub fn sample(&mut self, now: Time, class: Class, outstanding_bytes: u64) {
        let load = &mut self.classes[class];
        if now.since(load.last) >= LOAD_RESET {
            load.average = Ewma::default();
        }
        load.last = now;
        load.average.add(outstanding_bytes);
    }

    /// The average in bytes; none after [`LOAD_RESET`] without traffic of the class.
    #[inline]
    #[must_use]
    pub fn bytes(&self, now: Time, class: Class) -> u64 {
        let load = &self.classes[class];
        if now.since(load.last) >= LOAD_RESET {
            0
        } else {
            load.average.value()
        }
    }

    /// The averages of all classes in bytes, as application steering takes them.
    #[must_use]
    pub fn all(&self, now: Time) -> PerClass<u64> {
        PerClass::from_fn(|class| self.bytes(now, class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Nanos, Prng};

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
    fn a_second_of_silence_is_no_load_for_that_class_alone() {
        let mut load = CoreLoad::new();
        let start = Time(5_000_000_000);
        for _ in 0..100 {
            load.sample(start, Class::Latency, 4096);
            load.sample(start + Nanos::from_millis(600), Class::Throughput, 65_536);
        }
        let almost = start + Nanos(999_999_999);
        assert_eq!(load.bytes(almost, Class::Latency), 4096);
        let silent = start + LOAD_RESET;
        assert_eq!(
            load.all(silent),
            PerClass::from_fn(|class| match class {
                Class::Latency => 0,
                Class::Throughput => 65_536,
            })
        );
        load.sample(silent, Class::Latency, 4096);
        assert_eq!(
            load.bytes(silent, Class::Latency),
            512,
            "it starts from nothing"
        );
    }
}
