//! Pace at which a host receives data.
//!
//! Each send has a time-out. In addition, a host must receive [`PACE_BYTES`] per time-out while
//! output is always waiting: a host that receives one list at a time, each just in time, could
//! otherwise delay the output behind it forever.

use crate::limits::PACE_BYTES;
use base::Time;

/// Pace of one connection's host.
#[derive(Debug)]
pub(crate) struct ReaderPace {
    /// Time since which a send has been in flight while the host received less than [`PACE_BYTES`];
    /// [`Time::NEVER`] if none is.
    since: Time,
    /// Bytes that the host received since then.
    taken: usize,
}

impl ReaderPace {
    pub(crate) const fn new() -> Self {
        Self {
            since: Time::NEVER,
            taken: 0,
        }
    }

    /// Returns the time since which the host has received less than [`PACE_BYTES`] although output
    /// was always waiting; [`Time::NEVER`] if none was.
    pub(crate) const fn slow_since(&self) -> Time {
        self.since
    }

    /// Notes the begin of a send.
    pub(crate) fn begins(&mut self, now: Time) {
        self.since = self.since.min(now);
    }

    /// Notes that the host received a list of `bytes` bytes; `more` is true if further output
    /// leaves at once.
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

    /// Regression: the time-out restarted with each send, so a list every 29 s was always in time.
    #[test]
    fn a_host_that_takes_a_list_now_and_then_is_slow_since_the_first() {
        let mut pace = ReaderPace::new();
        for list in 1..=30 {
            pace.begins(at(29 * list));
            assert_eq!(pace.slow_since(), at(29));
            pace.took(4096, true, at(29 * (list + 1)));
        }
        // With this list the host reaches `PACE_BYTES`, so a new period begins.
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
