//! Completion coalescing: when an application is notified of completions that may wait.
//!
//! What an interrupt is to a driver, waking its thread is to an application: dearer than the
//! completion itself, and worth sharing, as the interrupt coalescing of `[NVMe Base 2.0 §3.5]` and
//! its feature 08h do with an aggregation threshold and a time. Where `Latency` work is active,
//! each wake-up of a `Throughput` application also stands between a completion and the next
//! `Latency` request on that core. So such completions are notified in groups there: when a quarter
//! of what the application had under way is done, or when the oldest has been held for as long as
//! it may. An application with four requests under way or fewer is notified of each.
//!
//! One [`Coalescer`] for each application and dataplane thread. To notify is to wake: one that
//! looks for itself finds a completion as soon as it is there, held or not. Must never: hold
//! anything that may not wait, or longer than its bound, or where nothing further is under way.

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
