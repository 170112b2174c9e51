//! Overrun: a tenant that continually exceeds its SLO's rate, reported to the operator. `[ReFlex
//! §4.3]`
//!
//! NEG_LIMIT exists for bursts, which are not reported. A latency-critical tenant that is stopped
//! at it window after window has an SLO that is too small: its operator should renegotiate. The
//! control plane owns one [`Overrun`] for each such tenant, and updates it once per window from the
//! account's [counter](crate::Account::limited_rounds). Invariant: one overrun is reported once.

use crate::limits::{OVERRUN_WINDOWS, OVERRUN_WINDOWS_LIMITED};

/// A change of a tenant's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The tenant continually exceeds its SLO's rate.
    Began,
    /// The tenant has stopped exceeding it.
    Ended,
}

/// The state of one tenant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrun {
    /// The counter at the last update.
    limited_rounds: u64,
    /// The last windows, the newest in the lowest bit: 1 if the tenant was stopped.
    windows: u32,
    reported: bool,
}

impl Overrun {
    /// Creates the state of a tenant with its counter at `limited_rounds`.
    #[must_use]
    pub const fn new(limited_rounds: u64) -> Self {
        Self {
            limited_rounds,
            windows: 0,
            reported: false,
        }
    }

    /// Updates the state at the end of a window; returns a change to report.
    pub fn look(&mut self, limited_rounds: u64) -> Option<Notice> {
        let stopped = limited_rounds != self.limited_rounds;
        self.limited_rounds = limited_rounds;
        let all = (1 << OVERRUN_WINDOWS) - 1;
        self.windows = (self.windows << 1 | u32::from(stopped)) & all;
        if !self.reported && self.windows.count_ones() >= OVERRUN_WINDOWS_LIMITED {
            self.reported = true;
            return Some(Notice::Began);
        }
        if self.reported && self.windows == 0 {
            self.reported = false;
            return Some(Notice::Ended);
        }
        None
    }

    /// Returns true while the reported state is an overrun.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_no_news_and_an_overrun_is_told_once() {
        let mut overrun = Overrun::new(7);
        assert_eq!(overrun.look(7), None);
        let mut counter = 7;
        for window in 0..100 {
            counter += u64::from(window % 2 == 0);
            assert_eq!(overrun.look(counter), None, "stopped in every other window");
        }
        let mut told = Vec::new();
        for window in 0..100 {
            counter += 1;
            told.extend(overrun.look(counter).map(|notice| (window, notice)));
        }
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].1, Notice::Began);
        assert!(told[0].0 < OVERRUN_WINDOWS && overrun.is_on());
        // A single window without a stop does not end it.
        assert_eq!(overrun.look(counter), None);
        counter += 1;
        let notices: Vec<_> = (0..=OVERRUN_WINDOWS)
            .filter_map(|_| overrun.look(counter))
            .collect();
        assert_eq!(notices, [Notice::Ended]);
        assert!(!overrun.is_on());
    }
}
