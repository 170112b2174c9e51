//! Acknowledged, unflushed writes of a namespace: a target that loses power loses them.
//!
//! A controller with a volatile write cache may have lost such writes when it comes back. They
//! cannot be sent again, because they were answered. So the next Flush of every channel fails,
//! which would otherwise confirm them (docs/design/decisions/0024-lost-caches.md). Invariant: a
//! Flush that was submitted before the loss was reported never succeeds.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Writes and Flushes of a namespace, ordered by a clock that each Flush advances.
#[derive(Debug)]
pub(crate) struct Unflushed {
    clock: AtomicU64,
    /// Clock of the last acknowledged write that may still be in a cache; 0 for none.
    written: AtomicU64,
    /// Clock up to which all writes are on the medium, or counted as lost.
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

    /// Records that a write without FUA was acknowledged. Two loads, except for the first write
    /// after a Flush.
    #[inline]
    pub(crate) fn wrote(&self) {
        let now = self.clock.load(Ordering::SeqCst);
        if self.written.load(Ordering::SeqCst) < now {
            self.written.fetch_max(now, Ordering::SeqCst);
        }
    }

    /// Begins a Flush. Returns its mark for [`flushed`](Self::flushed).
    pub(crate) fn begin_flush(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Completes the Flush with this mark: writes acknowledged before it are on the medium.
    pub(crate) fn flushed(&self, mark: u64) {
        self.flushed.fetch_max(mark, Ordering::SeqCst);
    }

    /// Records that the cache, and with it all unflushed writes, may have been lost.
    pub(crate) fn lose(&self) {
        let now = self.clock.fetch_add(1, Ordering::SeqCst);
        let flushed = self.flushed.fetch_max(now, Ordering::SeqCst);
        if flushed < self.written.load(Ordering::SeqCst) {
            self.lose_answered();
        }
    }

    /// Records a loss of a write whose acknowledgement is older than the last loss of the cache.
    pub(crate) fn lose_answered(&self) {
        self.losses.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how often writes were lost.
    pub(crate) fn losses(&self) -> u32 {
        self.losses.load(Ordering::SeqCst)
    }

    /// Returns the number of reported losses: a new channel need not report them again.
    pub(crate) fn reported(&self) -> u32 {
        self.reported.load(Ordering::SeqCst)
    }

    /// Records that this number of losses was reported.
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

/// Run by `scripts/test --all`.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, fence};
    use loom::thread;

    /// The generation of the association that lost its cache.
    const LOST: u64 = 1;

    /// A namespace, and the last association that lost its cache.
    struct Shared {
        unflushed: Unflushed,
        caches_lost: AtomicU64,
        flush_began: AtomicBool,
    }

    impl Shared {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                unflushed: Unflushed::new(),
                caches_lost: AtomicU64::new(0),
                flush_began: AtomicBool::new(false),
            })
        }

        /// Acknowledges a write of the lost association, as a channel does.
        fn wrote(&self) {
            self.unflushed.wrote();
            // In loom, sequentially consistent accesses are not ordered as such; fences are.
            fence(Ordering::SeqCst);
            if self.caches_lost.load(Ordering::SeqCst) >= LOST {
                self.unflushed.lose_answered();
            }
        }

        /// Loses the controller's cache, as an association does.
        fn lose(&self) {
            self.caches_lost.store(LOST, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            self.unflushed.lose();
        }
    }

    /// A channel receives its write's acknowledgement while the association learns of the loss: in
    /// any order, the next Flush fails.
    #[test]
    fn loom_a_write_that_is_acknowledged_beside_a_loss_is_counted() {
        let mut model = loom::model::Builder::new();
        // All orders take a minute.
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Shared::new();
            let channels: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || shared.wrote())
                })
                .collect();
            shared.lose();
            for channel in channels {
                channel.join().unwrap();
            }
            assert!(shared.unflushed.losses() > 0);
        });
    }

    /// A Flush that began before the acknowledgement confirms nothing about the write, whenever it
    /// completes.
    #[test]
    fn loom_a_flush_under_way_hides_no_loss_of_what_was_acknowledged_after_it_began() {
        loom::model(|| {
            let shared = Shared::new();
            let flushing = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let mark = shared.unflushed.begin_flush();
                    shared.flush_began.store(true, Ordering::Release);
                    shared.unflushed.flushed(mark);
                })
            };
            let writing = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let after = shared.flush_began.load(Ordering::Acquire);
                    shared.wrote();
                    after
                })
            };
            shared.lose();
            flushing.join().unwrap();
            if writing.join().unwrap() {
                assert!(shared.unflushed.losses() > 0);
            }
        });
    }
}
