//! Intended starts of the requests of an open loop.

use super::app::Pace;
use base::{Nanos, Prng, Time};

/// Schedule of one thread of an app.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Requests per second of the whole app.
    pub(super) rate: u64,
    /// Number of threads of the app, and index of this one.
    pub(super) threads: u32,
    pub(super) thread: u32,
    /// Inter-arrival times.
    pub(super) pace: Pace,
}

/// Intended starts of one thread's requests, in order.
#[derive(Debug)]
pub(super) struct Arrivals {
    schedule: Schedule,
    random: Prng,
    /// Requests started so far.
    count: u64,
    /// Time from the start of the load to the next request.
    ahead: Nanos,
}

impl Arrivals {
    pub(super) fn new(schedule: Schedule, seed: u64) -> Self {
        let mut arrivals = Self {
            schedule,
            random: Prng::from_seed(seed),
            count: 0,
            ahead: Nanos::ZERO,
        };
        arrivals.ahead = match schedule.pace {
            Pace::Even => arrivals.turn(),
            Pace::Poisson => arrivals.gap(),
        };
        arrivals
    }

    /// Returns the intended start of the next request.
    pub(super) fn next(&self, start: Time) -> Time {
        start + self.ahead
    }

    /// Counts a request as started, and schedules the next one.
    pub(super) fn pass(&mut self) {
        self.count += 1;
        self.ahead = match self.schedule.pace {
            Pace::Even => self.turn(),
            Pace::Poisson => self.ahead + self.gap(),
        };
    }

    /// Inter-arrival time of an even schedule. The threads take turns.
    fn turn(&self) -> Nanos {
        let Schedule {
            rate,
            threads,
            thread,
            ..
        } = self.schedule;
        let turn = u128::from(self.count) * u128::from(threads) + u128::from(thread);
        let nanos = turn * 1_000_000_000 / u128::from(rate);
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Time to the next request of a Poisson process. The processes of several threads add up to
    /// one Poisson process.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is never below zero"
    )]
    fn gap(&mut self) -> Nanos {
        let mean = 1e9 * f64::from(self.schedule.threads) / self.schedule.rate as f64;
        Nanos((exponential(&mut self.random) * mean) as u64)
    }
}

/// Returns an exponentially distributed random number with mean 1.
#[must_use]
pub fn exponential(random: &mut Prng) -> f64 {
    // 53 bits, which an `f64` holds exactly. The remainder is in (0, 1], so its logarithm exists.
    let fraction = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    -(1.0 - fraction).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(schedule: Schedule, count: usize) -> Vec<u64> {
        let mut arrivals = Arrivals::new(schedule, 1);
        let next = |_| {
            let next = arrivals.next(Time(10)).0;
            arrivals.pass();
            next
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn intended_starts_are_spread_evenly_over_threads() {
        let of = |thread| Schedule {
            rate: 3,
            threads: 2,
            thread,
            pace: Pace::Even,
        };
        assert_eq!(starts(of(0), 2), [10, 666_666_676]);
        assert_eq!(starts(of(1), 2), [333_333_343, 1_000_000_010]);
    }

    /// The rate is as requested, and a share of 1/e of the intervals is longer than the mean.
    #[test]
    fn independent_requests_come_in_bursts() {
        let schedule = Schedule {
            rate: 2_000,
            threads: 2,
            thread: 0,
            pace: Pace::Poisson,
        };
        let starts = starts(schedule, 10_001);
        let gaps: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<u64>() / 10_000;
        assert!((970_000..1_030_000).contains(&mean), "{mean} ns");
        let long = gaps.iter().filter(|&&gap| gap > 1_000_000).count();
        assert!((3_500..3_850).contains(&long), "{long} of 10,000");
    }
}
