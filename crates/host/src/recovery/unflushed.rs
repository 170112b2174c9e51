//! Writes of a namespace that were acknowledged and not flushed: a target that loses power loses
//! them.
//!
//! A controller with a volatile write cache may forget such writes when it comes back. They cannot
//! be sent again, for they were answered; so the next Flush of every channel fails, which would
//! have promised them otherwise (docs/decisions/0004-replay.md). A Flush that was submitted before
//! the loss was reported must never succeed.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Writes and flushes of a namespace, in the order of a clock that every Flush moves on.
#[derive(Debug)]
pub(crate) struct Unflushed {
    clock: AtomicU64,
    /// Clock of the last acknowledged write that may still be in a cache; 0 for none.
    written: AtomicU64,
    /// Up to when all of them are on the medium, or accounted as lost.
    flushed: AtomicU64,
    /// Number of losses.
    losses: AtomicU32,
    /// Number of losses that were reported.
    reported: AtomicU32,
}

impl Unflushed {
    pub(crate) fn new() -> Self {
        Self {
            clock: AtomicU64::new(1),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            losses: AtomicU32::new(0),
            reported: AtomicU32::new(0),
        }
    }

    /// A write without FUA was acknowledged. Two loads, except for the first one after a Flush.
    #[inline]
    pub(crate) fn wrote(&self) {
        let now = self.clock.load(Ordering::SeqCst);
        if self.written.load(Ordering::SeqCst) < now {
            self.written.fetch_max(now, Ordering::SeqCst);
        }
    }

    /// A Flush is asked for. Returns its mark for [`flushed`](Self::flushed).
    pub(crate) fn begin_flush(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// The Flush with this mark is done: what was acknowledged before it is on the medium.
    pub(crate) fn flushed(&self, mark: u64) {
        self.flushed.fetch_max(mark, Ordering::SeqCst);
    }

    /// The cache may have been lost, and with it whatever was not flushed.
    pub(crate) fn lose(&self) {
        let now = self.clock.fetch_add(1, Ordering::SeqCst);
        let flushed = self.flushed.fetch_max(now, Ordering::SeqCst);
        if flushed < self.written.load(Ordering::SeqCst) {
            self.lose_answered();
        }
    }

    /// A write was acknowledged by an answer that is older than the last loss.
    pub(crate) fn lose_answered(&self) {
        self.losses.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how often writes were lost.
    pub(crate) fn losses(&self) -> u32 {
        self.losses.load(Ordering::SeqCst)
    }

    /// Returns the number of losses that were reported: a new channel need not report them again.
    pub(crate) fn reported(&self) -> u32 {
        self.reported.load(Ordering::SeqCst)
    }

    /// Notes that the losses so far are reported.
    pub(crate) fn report(&self, losses: u32) {
        self.reported.fetch_max(losses, Ordering::SeqCst);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_acknowledged_after_the_last_flush_is_lost() {
        let unflushed = Unflushed::new();
        unflushed.lose();
        assert_eq!(unflushed.losses(), 0, "nothing was written");
        unflushed.wrote();
        let mark = unflushed.begin_flush();
        unflushed.flushed(mark);
        unflushed.lose();
        assert_eq!(unflushed.losses(), 0, "all was flushed");
        let mark = unflushed.begin_flush();
        unflushed.wrote();
        unflushed.flushed(mark);
        unflushed.lose();
        assert_eq!(unflushed.losses(), 1, "acknowledged after the flush began");
        unflushed.lose();
        assert_eq!(unflushed.losses(), 1, "it cannot be lost twice");
        unflushed.wrote();
        unflushed.lose();
        assert_eq!(unflushed.losses(), 2);
    }
}
