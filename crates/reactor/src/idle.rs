//! The idle policy: to poll or to sleep.
//!
//! Waking an idle core costs tens of microseconds, so a core that expects work soon polls a little,
//! and yields between two looks: where it shares its processor with the very thread it waits for,
//! that thread runs at once. Polling is wrong where nothing comes, and where another thread keeps
//! the processor: a sleeper is let in before it when its work arrives, a thread that yielded is
//! not. No interface tells a core which of these it is in. It learns: a poll that was soon rewarded
//! makes the next one more likely, a poll in vain less, one that others interrupted for long much
//! less, and now and then one is tried again. Pure: it is told the time.

use crate::driver::Wait;
use base::{Nanos, Time};

/// The behaviour of a core that has nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PollPolicy {
    /// Never sleep: lowest latency, a whole processor.
    Always,
    /// Always sleep at once: least CPU, every request pays for a wake-up.
    Never,
    /// Poll while that pays, yielding to others, then sleep.
    #[default]
    Auto,
    /// The same, with processor time that no other thread wants: sleep as soon as a yield has let
    /// another one run, which would go before this one each time. A busy core does not yield.
    Spare,
}

/// A yield that took longer than this lent the processor to another thread: two switches take that
/// long, and a call that finds no other thread a fraction of it.
const LENT: Nanos = Nanos::from_micros(3);

/// A poll that used the processor itself for longer than this delayed the thread that it waited
/// for, if that one shares the processor, by more than a sleep costs.
const DELAYED: Nanos = Nanos::from_micros(10);

/// Polls in vain that it takes to give up, and the ceiling of what success can save up.
const CONFIDENCE_MAX: u32 = 16;

/// A poll that is rewarded within this time spared a wake-up that would have cost more.
const SOON: Nanos = Nanos::from_micros(60);

/// The worth of one soon rewarded poll, in polls in vain.
const REWARD: u32 = 2;

/// The same of one that was rewarded later.
const LATE_REWARD: u32 = 1;

/// A thread that has the processor for longer than this keeps it: a sleeper would have had it back
/// when its work came. A turn of another core's thread is shorter, a time slice longer. A
/// hypervisor that takes the processor away is not meant: it does so with sleepers as well.
const KEPT: Nanos = Nanos::from_micros(500);

/// A core with work yields as often as this: two that share a processor would take turns of a
/// time slice otherwise.
const YIELD_EVERY: Nanos = Nanos::from_micros(50);

/// Time for which a core with work does not yield after another thread kept the processor: it is
/// entitled to its share.
const STAY_FOR: Nanos = Nanos::from_millis(50);

/// The cost of a poll that was interrupted for so long, in polls in vain.
const KEPT_COST: u32 = 4;

/// A sleep that is shorter than this may have been two wake-ups and little else.
const SHORT_SLEEP: Nanos = Nanos::from_micros(500);

/// A core that gave up tries one poll again after this many short sleeps: where polling never pays,
/// both ends together lose less than 0.5 % of their requests to such tries, so not even their 99th
/// percentile shows it.
const TRY_AFTER_SLEEPS: u32 = 512;

/// Learns whether to poll.
#[derive(Clone, Debug)]
pub struct IdlePolicy {
    policy: PollPolicy,
    confidence: u32,
    short_sleeps: u32,
    /// The stretch of idleness that the core is in.
    stretch: Option<Stretch>,
    /// Time at which a core with work yields next.
    yield_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    since: Time,
    /// Decided at its beginning.
    polls: bool,
    /// Time for which yields lent the processor to other threads.
    lent: Nanos,
    since_look: SinceLook,
}

/// The use of the processor since the last look that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SinceLook {
    /// Unknown: there was no such look yet, or a hypervisor took the processor away.
    Unknown,
    /// Used by this core: what comes now would have had to wake a sleeper.
    Mine,
    /// Lent to another thread: what comes now may be its doing, and it would have woken a sleeper
    /// for no more than the switch that yielding took. Polling before that kept it waiting.
    Lent,
}

impl IdlePolicy {
    /// Longest duration of a poll. Waking an idle core takes 50 µs, and where virtual machines are
    /// nested 150 µs and more. What comes within such a time is cheaper waited for, and a shorter
    /// poll would never be rewarded where the response has to wake its sender first: two sleeping
    /// ends would stay asleep.
    pub const POLL_WINDOW: Nanos = Nanos::from_micros(250);

    /// A policy that knows nothing yet and starts hopeful.
    #[must_use]
    pub const fn new(policy: PollPolicy) -> Self {
        Self {
            policy,
            confidence: CONFIDENCE_MAX,
            short_sleeps: 0,
            stretch: None,
            yield_at: Time::ZERO,
        }
    }

    /// Sets another policy from now on; what was learned is kept.
    pub fn set_policy(&mut self, policy: PollPolicy) {
        self.policy = policy;
    }

    /// Decides how the next turn waits, given the service's deadline.
    pub fn decide(&mut self, now: Time, deadline: Time) -> Wait {
        if deadline <= now {
            // What is due ends the idleness; what follows from it is waited for anew.
            let stretch = self.stretch.take();
            if stretch.is_some_and(|s| s.polls && now.since(s.since) >= Self::POLL_WINDOW) {
                self.lose(1);
            }
            return Wait::No;
        }
        match self.policy {
            PollPolicy::Always => Wait::No,
            PollPolicy::Never => Wait::Until(deadline),
            PollPolicy::Auto | PollPolicy::Spare => {
                let stretch = self.stretch.get_or_insert(Stretch {
                    since: now,
                    polls: self.confidence > 0,
                    lent: Nanos::ZERO,
                    since_look: SinceLook::Unknown,
                });
                let poll = stretch.polls && now.since(stretch.since) < Self::POLL_WINDOW;
                if poll {
                    Wait::No
                } else {
                    Wait::Until(deadline)
                }
            }
        }
    }

    /// After a turn: whether the core should let others have the processor before the next one.
    /// It should in the middle of a poll, when the turn brought nothing, and with
    /// [`PollPolicy::Auto`] every 50 µs when it was `busy`.
    #[must_use]
    pub fn should_yield(&self, now: Time, busy: bool) -> bool {
        match self.policy {
            PollPolicy::Auto if busy => now >= self.yield_at,
            PollPolicy::Auto | PollPolicy::Spare => {
                !busy && self.stretch.is_some_and(|stretch| stretch.polls)
            }
            PollPolicy::Always | PollPolicy::Never => false,
        }
    }

    /// The core yielded from `since` to `now`, as [`should_yield`](Self::should_yield) proposed.
    /// `others` tells whether another thread had the processor meanwhile; it is asked only where
    /// that was long.
    pub fn yielded(&mut self, since: Time, now: Time, others: impl FnOnce() -> bool) {
        let length = now.since(since);
        let spare = self.policy == PollPolicy::Spare;
        let limit = if spare { LENT } else { KEPT };
        let kept = length > limit && others();
        if let Some(stretch) = &mut self.stretch {
            stretch.since_look = match () {
                () if length <= LENT => SinceLook::Mine,
                () if length <= KEPT || kept => SinceLook::Lent,
                () => SinceLook::Unknown,
            };
            if stretch.since_look == SinceLook::Lent {
                stretch.lent += length;
            }
            if kept {
                stretch.polls &= !spare;
                self.lose(KEPT_COST);
            }
        }
        self.yield_at = now + if kept { STAY_FOR } else { YIELD_EVERY };
    }

    /// Learns from the turn that [`decide`](Self::decide) was asked about.
    pub fn observe(&mut self, now: Time, wait: Wait, busy: bool) {
        if !busy {
            return;
        }
        let Some(stretch) = self.stretch.take() else {
            return;
        };
        let length = now.since(stretch.since);
        if stretch.polls {
            self.polled(wait, length, stretch);
        } else if length < SHORT_SLEEP {
            self.short_sleeps += 1;
            if self.short_sleeps >= TRY_AFTER_SLEEPS {
                self.short_sleeps = 0;
                self.confidence = 1;
            }
        }
    }

    fn polled(&mut self, wait: Wait, length: Nanos, stretch: Stretch) {
        let soon = length <= SOON;
        match stretch.since_look {
            _ if wait != Wait::No => self.lose(1),
            SinceLook::Mine => {
                let reward = if soon { REWARD } else { LATE_REWARD };
                self.confidence = (self.confidence + reward).min(CONFIDENCE_MAX);
            }
            // It would have come sooner had this core slept.
            SinceLook::Lent if !soon || length > stretch.lent + DELAYED => self.lose(1),
            SinceLook::Lent | SinceLook::Unknown => {}
        }
    }

    fn lose(&mut self, cost: u32) {
        self.confidence = self.confidence.saturating_sub(cost);
    }
}

#[cfg(test)]
mod tests;
