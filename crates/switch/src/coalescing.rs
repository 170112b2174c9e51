//! Completion coalescing: when to notify an application of `Throughput` completions.
//!
//! Waking a thread, like an interrupt, costs more than the completion; it is shared as in `[NVMe
//! Base 2.0 §3.5]`, by a threshold and a time (feature 08h). While `Latency` work is active, each
//! wake-up of a `Throughput` application also delays the core's next `Latency` request. Completions
//! are then held until a quarter of the outstanding requests is done, or the oldest reaches its
//! bound; with four or fewer outstanding, each is notified. One [`Coalescer`] per application and
//! dataplane thread. A polling application finds held completions, too. Invariant: never holds a
//! completion that may not wait, beyond its bound, or with nothing outstanding.

use crate::class::Class;
use base::{Nanos, Time};

#[cfg(test)]
mod tests;

/// Ratio of outstanding requests to held completions when a quarter of all is done.
const REST: u64 = 3;

/// The held completions of one application.
#[derive(Clone, Copy, Debug)]
pub struct Coalescer {
    held: u32,
    /// Time at which the oldest reaches its bound; [`Time::NEVER`] if none is held.
    until: Time,
}

impl Default for Coalescer {
    fn default() -> Self {
        Self {
            held: 0,
            until: Time::NEVER,
        }
    }
}

impl Coalescer {
    /// Adds a completion of `class`; `under_way` requests of the application are still outstanding.
    /// Returns true if the application is to be notified now, of this and all held completions.
    ///
    /// `most` is the maximum hold time: zero for no holding, such as without active `Latency` work.
    #[inline]
    pub fn completed(&mut self, now: Time, class: Class, under_way: u64, most: Nanos) -> bool {
        self.held += 1;
        if self.held == 1 {
            self.until = now + most;
        }
        debug_assert_ne!(self.until, Time::NEVER, "what is held has a bound");
        !class.properties().may_wait
            || u64::from(self.held) * REST >= under_way
            || most == Nanos::ZERO
            || self.is_due(now)
    }

    /// Returns true if the oldest held completion has reached its bound.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.until
    }

    /// Returns the time at which the oldest held completion reaches its bound; [`Time::NEVER`] if
    /// none is held.
    #[inline]
    #[must_use]
    pub const fn until(&self) -> Time {
        self.until
    }

    /// Records the notification. Returns the number of completions that were held.
    #[inline]
    pub fn notified(&mut self) -> u32 {
        std::mem::take(self).held
    }
}
