//! Time in which a thread has something to do.
//!
//! Owned by the thread, told the time once a turn: what passed since the turn before counts if
//! either of them brought anything, but for the sleep between them. So it costs no look at a clock,
//! and a thread that polls in vain is not busy.

use base::{Nanos, Time};

/// The time in which a thread had something to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    turned_at: Time,
    slept: Nanos,
    /// The turn at hand brought something.
    brought: bool,
    /// The turn before did.
    brought_before: bool,
    /// Since the start.
    busy: Nanos,
    /// Beginning of the period at hand, and the busy time until then.
    since: Time,
    busy_before: Nanos,
}

impl Work {
    /// The turn at hand brings something.
    #[inline]
    pub(crate) fn bring(&mut self) {
        self.brought = true;
    }

    /// Returns true if the turn at hand brought something.
    pub(crate) const fn brings(&self) -> bool {
        self.brought
    }

    /// The turn that began `now` is over, before which the thread had `slept` for so long since the
    /// start.
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

    /// Returns the beginning of the period at hand.
    pub(crate) const fn since(&self) -> Time {
        self.since
    }

    /// Ends the period at hand: how busy it was, in thousandths.
    pub(crate) fn end_period(&mut self, now: Time) -> u32 {
        let span = u128::from(now.since(self.since).0).max(1);
        let busy = u128::from(self.busy.0 - self.busy_before.0);
        (self.since, self.busy_before) = (now, self.busy);
        // A turn that began in the period before may end in this one.
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
        // 100 ns of sleep, a turn that brought something and took 30 ns, 70 ns of looks in vain.
        work.bring();
        work.turned(Time(START + 100), Nanos(100));
        work.turned(Time(START + 130), Nanos(100));
        for end in 131..=200 {
            work.turned(Time(START + end), Nanos(100));
        }
        assert_eq!(work.busy(), Nanos(30));
        assert_eq!(work.end_period(Time(START + 200)), 150);
        // A receive of 40 ns ends a look in vain, and the rest of the turn takes 60.
        work.bring();
        work.turned(Time(START + 240), Nanos(100));
        work.turned(Time(START + 300), Nanos(100));
        assert_eq!(work.end_period(Time(START + 300)), 1000);
    }
}
