//! Overrun detection: tenants that continuously exceed the rate of their SLO. `[ReFlex §4.3]`
//!
//! NEG_LIMIT allows bursts. A latency-critical tenant that reaches it in window after window needs
//! a larger SLO. One [`Overrun`] per tenant; the control plane samples the account's
//! [counter](crate::Account::limited_rounds) once per window. Each overrun is reported once.

use crate::limits::{OVERRUN_WINDOWS, OVERRUN_WINDOWS_LIMITED};

/// A change of a tenant's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The tenant keeps asking for more than it was promised.
    Began,
    /// The tenant has not done so for a while.
    Ended,
}

/// The state of one tenant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrun {
    /// The counter at the last look.
    limited_rounds: u64,
    /// The last windows, the newest in the lowest bit: whether the tenant was stopped.
    windows: u32,
    reported: bool,
}

impl Overrun {
    /// Makes the state of a tenant with its counter at `limited_rounds`.
    #[must_use]
    pub const fn new(limited_rounds: u64) -> Self {
        Self {
            limited_rounds,
            windows: 0,
            reported: false,
        }
    }

    /// Looks at the counter at the end of a window; says what there is to tell.
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

    /// Returns true while the tenant overruns its SLO, as far as was reported.
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
        // One window in between does not end it.
        assert_eq!(overrun.look(counter), None);
        counter += 1;
        let notices: Vec<_> = (0..=OVERRUN_WINDOWS)
            .filter_map(|_| overrun.look(counter))
            .collect();
        assert_eq!(notices, [Notice::Ended]);
        assert!(!overrun.is_on());
    }
}
