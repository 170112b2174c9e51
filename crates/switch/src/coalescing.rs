//! Completion coalescing: when to notify an application of `Throughput` completions.
//!
//! Waking a thread costs more than a completion, so one wake-up for several completions saves CPU
//! time, like interrupt coalescing in `[NVMe Base 2.0 §3.5]`. While `Latency` work is active on the
//! core, `Throughput` completions are therefore notified in groups: when a quarter of the
//! application's outstanding requests are complete, or the oldest completion has reached its limit.
//! Applications with up to four outstanding requests are notified of each completion.
//!
//! One [`Coalescer`] per application and dataplane thread. Only the wake-up is delayed: an
//! application that polls finds completions at once. Invariant: no delay of `Latency` completions,
//! beyond the limit, or without further outstanding requests.

use crate::class::Class;
use base::{Nanos, Time};

#[cfg(test)]
mod tests;

/// Ratio of the requests under way to the held completions when a quarter of all is done.
const REST: u64 = 3;

/// The completions of which one application was not notified.
#[derive(Clone, Copy, Debug)]
pub struct Coalescer {
    held: u32,
    /// Time at which the oldest has been held for long enough; [`Time::NEVER`] where none is.
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
    /// A request of `class` has completed, and `under_way` of the application's have not. Returns
    /// true if it is notified now, of this one and all that were held.
    ///
    /// `most` is how long a completion may be held: zero where nothing is, such as where no
    /// `Latency` work is active.
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

    /// Returns true if the oldest has been held for as long as it may.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.until
    }

    /// Returns the time at which the oldest has been held for as long as it may; [`Time::NEVER`]
    /// where nothing is held.
    #[inline]
    #[must_use]
    pub const fn until(&self) -> Time {
        self.until
    }

    /// Notes that the application was notified. Returns the number of completions that were held.
    #[inline]
    pub fn notified(&mut self) -> u32 {
        std::mem::take(self).held
    }
}
