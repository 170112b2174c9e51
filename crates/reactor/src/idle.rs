//! The idle policy: whether to poll or to sleep.
//!
//! Waking an idle core costs tens of microseconds, so a core that expects work soon polls briefly
//! and yields between polls: if it shares its processor with the thread it waits for, that thread
//! runs at once. Polling is wrong if no work arrives, or if another thread keeps the processor: the
//! scheduler runs a woken sleeper before that thread, but not a thread that yielded. No interface
//! reports which case applies, so the policy learns. A soon rewarded poll makes the next one more
//! likely, an unrewarded poll less, and one that was interrupted for long much less; occasionally
//! it tries again. Pure: the time is an input.

use crate::driver::Wait;
use base::{Nanos, Time};

/// The behaviour of an idle core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PollPolicy {
    /// Never sleeps: lowest latency, occupies a whole processor.
    Always,
    /// Always sleeps at once: least CPU time, every request pays for a wake-up.
    Never,
    /// Polls while that pays off, yielding to other threads, then sleeps.
    #[default]
    Auto,
    /// As `Auto`, but only with CPU time that no other thread wants: sleeps as soon as a yield let
    /// another thread run, because that thread would run first each time. A busy core does not
    /// yield.
    Spare,
}

/// A yield longer than this lent the processor to another thread: two context switches take that
/// long, and a yield without another thread a fraction of it.
const LENT: Nanos = Nanos::from_micros(3);

/// A poll with more CPU time than this delayed the awaited thread, if it shares the processor, by
/// more than the cost of a sleep.
const DELAYED: Nanos = Nanos::from_micros(10);

/// Number of unrewarded polls after which polling stops, and the maximum credit from rewarded ones.
const CONFIDENCE_MAX: u32 = 16;

/// A poll rewarded within this time saved a more expensive wake-up.
const SOON: Nanos = Nanos::from_micros(60);

/// Credit of a soon rewarded poll, in unrewarded polls.
const REWARD: u32 = 2;

/// Credit of a later rewarded poll, in unrewarded polls.
const LATE_REWARD: u32 = 1;

/// A thread that occupies the processor for longer than this keeps it: a sleeper would have got it
/// back when its work arrived. A turn of another core's thread is shorter, a time slice longer.
/// Time taken by a hypervisor does not count, because it affects sleepers as well.
const KEPT: Nanos = Nanos::from_micros(500);

/// Interval between yields of a busy core: two cores on one processor would otherwise alternate by
/// whole time slices.
const YIELD_EVERY: Nanos = Nanos::from_micros(50);

/// Time that a busy core does not yield after another thread kept the processor: it is entitled to
/// its share.
const STAY_FOR: Nanos = Nanos::from_millis(50);

/// Cost of a poll interrupted for longer than [`KEPT`], in unrewarded polls.
const KEPT_COST: u32 = 4;

/// A shorter sleep may consist of little more than two wake-ups.
const SHORT_SLEEP: Nanos = Nanos::from_micros(500);

/// Number of short sleeps after which a core that stopped polling tries one poll: if polling never
/// pays off, both ends together lose less than 0.5 % of their requests to such tries, which not
/// even the 99th percentile shows.
const TRY_AFTER_SLEEPS: u32 = 512;

/// Learns whether to poll.
#[derive(Clone, Debug)]
pub struct IdlePolicy {
    policy: PollPolicy,
    confidence: u32,
    short_sleeps: u32,
    /// The current stretch of idleness.
    stretch: Option<Stretch>,
    /// Time of the next yield of a busy core.
    yield_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    since: Time,
    /// Whether it polls, decided at its beginning.
    polls: bool,
    /// Total time for which yields lent the processor to other threads.
    lent: Nanos,
    since_look: SinceLook,
}

/// The use of the processor since the last check that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SinceLook {
    /// Unknown: there was no such check yet, or a hypervisor took the processor away.
    Unknown,
    /// Used by this core: work that arrives now would have had to wake a sleeper.
    Mine,
    /// Lent to another thread, which may have caused the work that arrives now. A sleeper would
    /// have been woken for just the context switch of the yield, and the polling before delayed
    /// that thread.
    Lent,
}

impl IdlePolicy {
    /// Maximum duration of a poll. Waking an idle core takes 50 µs, with nested virtual machines
    /// 150 µs and more. Work that arrives within such a time is cheaper to wait for. A shorter poll
    /// would never be rewarded if the response must first wake its sender: two sleeping ends would
    /// stay asleep.
    pub const POLL_WINDOW: Nanos = Nanos::from_micros(250);

    /// Creates a policy without history, which starts with polling.
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

    /// Sets another policy from now on; the learned state is kept.
    pub fn set_policy(&mut self, policy: PollPolicy) {
        self.policy = policy;
    }

    /// Decides how the next turn waits, given the service's deadline.
    pub fn decide(&mut self, now: Time, deadline: Time) -> Wait {
        if deadline <= now {
            // Due work ends the stretch of idleness; waiting for its consequences starts a new one.
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

    /// Returns true if the core should yield before its next turn: during a poll after a turn
    /// without work, and with [`PollPolicy::Auto`] every 50 µs after a `busy` one.
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

    /// Records a yield from `since` to `now`, as proposed by [`should_yield`](Self::should_yield).
    /// `others` returns true if another thread had the processor meanwhile; it is called only after
    /// a long yield.
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

    /// Learns from the turn that [`decide`](Self::decide) started.
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
            // The work would have arrived earlier if this core had slept.
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
