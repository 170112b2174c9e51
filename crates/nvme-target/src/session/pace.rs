//! Pace at which a host takes what is sent to it.
//!
//! Each send has its time, and so has a host to take [`PACE_BYTES`] in while something is to be sent
//! without a break: one that took a list at a time, each just in time, would keep what waits behind
//! them for ever.

use crate::limits::PACE_BYTES;
use base::Time;

/// Pace of one connection's host.
#[derive(Debug)]
pub(crate) struct ReaderPace {
    /// Time since which something has been under way, and the host has taken less than
    /// [`PACE_BYTES`]; never, where nothing is.
    since: Time,
    /// Bytes that it took since.
    taken: usize,
}

impl ReaderPace {
    pub(crate) const fn new() -> Self {
        Self {
            since: Time::NEVER,
            taken: 0,
        }
    }

    /// Returns the time since which the host has taken less than [`PACE_BYTES`], although something
    /// was to be sent all the time; never, where nothing is.
    pub(crate) const fn slow_since(&self) -> Time {
        self.since
    }

    /// A send begins.
    pub(crate) fn begins(&mut self, now: Time) {
        self.since = self.since.min(now);
    }

    /// The host took a list of `bytes` bytes; there may be `more` that leaves as soon as it takes that.
    pub(crate) fn took(&mut self, bytes: usize, more: bool, now: Time) {
        self.taken += bytes;
        if !more || self.taken >= PACE_BYTES {
            *self = Self::new();
        }
        if more {
            self.begins(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Nanos;

    fn at(seconds: u64) -> Time {
        Time(0) + Nanos::from_secs(seconds)
    }

    /// The time of each send began anew: a list every 29 s was in time for ever.
    #[test]
    fn a_host_that_takes_a_list_now_and_then_is_slow_since_the_first() {
        let mut pace = ReaderPace::new();
        for list in 1..=30 {
            pace.begins(at(29 * list));
            assert_eq!(pace.slow_since(), at(29));
            pace.took(4096, true, at(29 * (list + 1)));
        }
        // What it takes in the end is enough for that time, and not for more.
        pace.took(8192, true, at(900));
        assert_eq!(pace.slow_since(), at(900));
    }

    #[test]
    fn a_slow_reader_of_large_answers_and_one_that_takes_everything_are_in_time() {
        let mut pace = ReaderPace::new();
        for list in 0..1000 {
            pace.begins(at(29 * list));
            assert_eq!(pace.slow_since(), at(29 * list));
            pace.took(PACE_BYTES, true, at(29 * (list + 1)));
        }
        for answer in 1000..2000 {
            pace.took(24, false, at(29 * answer));
            assert_eq!(pace.slow_since(), Time::NEVER);
            pace.begins(at(29 * answer + 10));
            assert_eq!(pace.slow_since(), at(29 * answer + 10));
        }
    }
}
