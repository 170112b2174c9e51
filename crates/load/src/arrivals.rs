//! Intended starts of the requests of an open loop.

use super::app::Pace;
use base::{Nanos, Prng, Time};

/// Schedule of one thread of an application.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    /// Requests per second of the whole app.
    pub(super) rate: u64,
    /// Threads of the app, and which of them this is.
    pub(super) threads: u32,
    pub(super) thread: u32,
    /// Distances between the requests.
    pub(super) pace: Pace,
}

/// The intended starts of one thread's requests, one after the other.
#[derive(Debug)]
pub(super) struct Arrivals {
    schedule: Schedule,
    random: Prng,
    /// Requests that began so far.
    count: u64,
    /// Between the start of the load and the next request.
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

    /// Returns the time at which the next request is to start.
    pub(super) fn next(&self, start: Time) -> Time {
        start + self.ahead
    }

    /// The next request has begun.
    pub(super) fn pass(&mut self) {
        self.count += 1;
        self.ahead = match self.schedule.pace {
            Pace::Even => self.turn(),
            Pace::Poisson => self.ahead + self.gap(),
        };
    }

    /// The threads take turns.
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

    /// The time to the next of requests that know nothing of each other; threads of them together
    /// are the same again.
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

/// Returns a random number with a mean of one, as times between independent events are.
#[must_use]
pub fn exponential(random: &mut Prng) -> f64 {
    // 53 bits, which a float holds exactly: in 0..1, so that there is a logarithm of what is left.
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

    /// As many as asked for, and as far apart as chance would have them: a share of 1/e waits for
    /// longer than the mean.
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
