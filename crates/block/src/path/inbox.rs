//! The inbox of a submitter: completions of its requests, from any runner, and the role of a runner
//! that is handed to it.

use super::done::Done;
use base::BoundedQueue;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
use reactor::{Guard, Region, Sleeper, Wake};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// One submitter's inbox.
#[derive(Debug)]
pub(super) struct Inbox {
    /// Never full: it holds as many as the submitter may have outstanding.
    done: BoundedQueue<Done>,
    /// The queues that this submitter shall run, one bit for each.
    handed: AtomicU32,
    pub(super) sleeper: Sleeper,
    /// The memory of its requests' data.
    pub(super) region: Region,
    /// The guard of a submitter that was dropped. The inbox is, once no thread has one of its requests.
    pub(super) guard: OnceLock<Guard>,
}

impl Inbox {
    pub(super) fn new(depth: usize, region: Region, waker: Arc<dyn Wake>) -> Self {
        Self {
            done: BoundedQueue::new(depth),
            handed: AtomicU32::new(0),
            sleeper: Sleeper::new(waker),
            region,
            guard: OnceLock::new(),
        }
    }

    /// A request is over. Wakes the submitter where that is needed.
    pub(super) fn finish(&self, done: Done) {
        let put = self.done.push(done);
        assert!(put.is_ok(), "a submitter has at most a depth of requests");
        self.sleeper.ring();
    }

    /// The submitter shall run a queue.
    pub(super) fn hand(&self, queue: usize) {
        self.handed.fetch_or(1 << queue, Ordering::Release);
        self.sleeper.ring();
    }

    /// Returns true, once, if the submitter shall run the queue.
    pub(super) fn take_handed(&self, queue: usize) -> bool {
        let bit = 1 << queue;
        self.handed.load(Ordering::Relaxed) & bit != 0
            && self.handed.fetch_and(!bit, Ordering::Acquire) & bit != 0
    }

    /// Requests that are over and were not taken.
    pub(super) fn len(&self) -> usize {
        self.done.len()
    }

    /// Takes the next request that is over.
    pub(super) fn take(&self) -> Option<Done> {
        self.done.take()
    }

    /// The submitter wants to sleep; returns whether it may.
    pub(super) fn may_sleep(&self) -> bool {
        self.sleeper
            .may_sleep(|| self.done.is_empty() && self.handed.load(Ordering::Relaxed) == 0)
    }
}
