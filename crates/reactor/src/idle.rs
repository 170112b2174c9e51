//! When to poll and when to sleep.
//!
//! Waking an idle core costs tens of microseconds, so a core that expects work soon polls a
//! little; a core that shares its processor with the very thread it waits for must not, because
//! that thread cannot run meanwhile. Nobody tells a core which of the two it is. It learns: a poll
//! that was rewarded makes the next one more likely, a poll in vain less, and now and then one is
//! tried again. Pure: it is told the time.

use crate::driver::Wait;
use base::{Nanos, Time};

/// Whether a core polls while it has nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PollPolicy {
    /// Never sleep: lowest latency, a whole processor.
    Always,
    /// Always sleep at once: least CPU, every request pays for a wake-up.
    Never,
    /// Poll while that pays, then sleep.
    #[default]
    Auto,
}

/// How long a poll may last. A response that has to wake its sender's idle core first takes 50 to
/// 100 µs here; a shorter poll would never be rewarded, and two sleeping ends would stay asleep.
const POLL_WINDOW: Nanos = Nanos::from_micros(120);

/// Confidence is counted in sixteenths; a rewarded poll adds, one in vain takes away.
const CONFIDENCE_MAX: u32 = 16;

/// A core that lost its confidence tries a poll again after this many sleeps that ended within
/// [`PROMISING`]: at most 1 % more latency on average where polling does not pay.
const PROBE_AFTER_SLEEPS: u32 = 128;

/// A sleep that ended sooner than this would have been worth polling.
const PROMISING: Nanos = Nanos::from_micros(100);

/// Learns whether to poll.
#[derive(Clone, Debug)]
pub struct IdlePolicy {
    policy: PollPolicy,
    confidence: u32,
    short_sleeps: u32,
    /// When the current stretch of idleness began.
    idle_since: Option<Time>,
    /// Whether the current stretch was polled, slept, or both.
    slept: bool,
    /// Whether this stretch polls: decided when it begins.
    polls: bool,
}

impl IdlePolicy {
    /// A policy that knows nothing yet and starts hopeful.
    #[must_use]
    pub const fn new(policy: PollPolicy) -> Self {
        Self {
            policy,
            confidence: CONFIDENCE_MAX,
            short_sleeps: 0,
            idle_since: None,
            slept: false,
            polls: true,
        }
    }

    /// How the next turn shall wait, given the service's deadline.
    pub fn decide(&mut self, now: Time, deadline: Time) -> Wait {
        if deadline <= now {
            return Wait::No;
        }
        match self.policy {
            PollPolicy::Always => Wait::No,
            PollPolicy::Never => Wait::Until(deadline),
            PollPolicy::Auto => self.decide_auto(now, deadline),
        }
    }

    fn decide_auto(&mut self, now: Time, deadline: Time) -> Wait {
        let Some(since) = self.idle_since else {
            // Work was done in the last turn: its answer may be there at once.
            return if self.confidence > 0 {
                Wait::No
            } else {
                self.begin_sleep(deadline)
            };
        };
        if self.polls && now.since(since) < POLL_WINDOW {
            return Wait::No;
        }
        self.begin_sleep(deadline)
    }

    fn begin_sleep(&mut self, deadline: Time) -> Wait {
        self.slept = true;
        Wait::Until(deadline)
    }

    /// What the turn brought that [`decide`](Self::decide) was asked about.
    pub fn observe(&mut self, now: Time, wait: Wait, busy: bool) {
        if self.policy != PollPolicy::Auto {
            return;
        }
        if !busy {
            if self.idle_since.is_none() {
                self.idle_since = Some(now);
                self.polls = self.confidence > 0;
            }
            return;
        }
        let length = self
            .idle_since
            .take()
            .map_or(Nanos::ZERO, |since| now.since(since));
        if matches!(wait, Wait::No) {
            if length > Nanos::ZERO {
                self.confidence = (self.confidence + 2).min(CONFIDENCE_MAX);
            }
        } else if self.polls && self.confidence > 0 {
            // The poll was in vain: the work came only once we slept.
            self.confidence -= 1;
        } else if length < PROMISING {
            self.short_sleeps += 1;
            if self.short_sleeps >= PROBE_AFTER_SLEEPS {
                self.short_sleeps = 0;
                self.confidence = 1;
            }
        }
        self.slept = false;
    }
}
