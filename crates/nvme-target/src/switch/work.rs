//! Time during which a thread has work.
//!
//! Owned by the thread, which passes the time once per turn. The time since the previous turn
//! counts as busy, minus the sleep in between, if either turn had work. So it needs no additional
//! clock read, and a thread that polls without result is not busy.

use base::{Nanos, Time};

/// Accumulated time during which a thread had work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    turned_at: Time,
    slept: Nanos,
    /// The current turn has work.
    brought: bool,
    /// The previous turn had work.
    brought_before: bool,
    /// Busy time since the start.
    busy: Nanos,
    /// Beginning of the current period, and the busy time until then.
    since: Time,
    busy_before: Nanos,
}

impl Work {
    /// Notes that the current turn has work.
    #[inline]
    pub(crate) fn bring(&mut self) {
        self.brought = true;
    }

    /// Returns true if the current turn has work.
    pub(crate) const fn brings(&self) -> bool {
        self.brought
    }

    /// Ends the turn that began at `now`; `slept` is the thread's sleep since the start, up to that
    /// turn.
    #[inline]
    pub(crate) fn turned(&mut self, now: Time, slept: Nanos) {
        if self.brought || self.brought_before {
            let asleep = slept.0.saturating_sub(self.slept.0);
            let passed = now.since(self.turned_at).0.saturating_sub(asleep);
            if self.turned_at != Time::ZERO {
                self.busy += Nanos(passed);
            }
        }
        (self.turned_at, self.slept) = (now, slept);
        self.brought_before = std::mem::take(&mut self.brought);
    }

    /// Returns the busy time since the start.
    pub(crate) const fn busy(&self) -> Nanos {
        self.busy
    }

    /// Returns the beginning of the current period.
    pub(crate) const fn since(&self) -> Time {
        self.since
    }

    /// Ends the current period. Returns its busy part in thousandths.
    pub(crate) fn end_period(&mut self, now: Time) -> u32 {
        let span = u128::from(now.since(self.since).0).max(1);
        let busy = u128::from(self.busy.0 - self.busy_before.0);
        (self.since, self.busy_before) = (now, self.busy);
        // A turn that began in the previous period may end in this one.
        u32::try_from((busy * 1000 / span).min(1000)).unwrap_or(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_000_000;

    #[test]
    fn sleep_and_looks_in_vain_are_no_work() {
        let mut work = Work::default();
        work.turned(Time(START), Nanos(0));
        work.end_period(Time(START));
        // 100 ns of sleep, a turn with 30 ns of work, 70 ns of polling without result.
        work.bring();
        work.turned(Time(START + 100), Nanos(100));
        work.turned(Time(START + 130), Nanos(100));
        for end in 131..=200 {
            work.turned(Time(START + end), Nanos(100));
        }
        assert_eq!(work.busy(), Nanos(30));
        assert_eq!(work.end_period(Time(START + 200)), 150);
        // A receive of 40 ns ends a poll without result, and the rest of the turn takes 60 ns.
        work.bring();
        work.turned(Time(START + 240), Nanos(100));
        work.turned(Time(START + 300), Nanos(100));
        assert_eq!(work.end_period(Time(START + 300)), 1000);
    }
}
