//! The inbox of a submitter: completions of its requests from any runner, and queues handed to it
//! to run.

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
    /// Never full: it holds the submitter's largest number of outstanding requests.
    done: BoundedQueue<Done>,
    /// Queues that this submitter must run, one bit for each.
    handed: AtomicU32,
    pub(super) sleeper: Sleeper,
    /// Memory for the data of its requests.
    pub(super) region: Region,
    /// The guard of a dropped submitter. It is dropped with the inbox, once no thread has one of
    /// the submitter's requests.
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

    /// Queues a completion. Wakes the submitter if necessary.
    pub(super) fn finish(&self, done: Done) {
        let put = self.done.push(done);
        assert!(put.is_ok(), "a submitter has at most a depth of requests");
        self.sleeper.ring();
    }

    /// Hands a queue to the submitter to run.
    pub(super) fn hand(&self, queue: usize) {
        self.handed.fetch_or(1 << queue, Ordering::Release);
        self.sleeper.ring();
    }

    /// Returns true, once, if the submitter must run the queue.
    pub(super) fn take_handed(&self, queue: usize) -> bool {
        let bit = 1 << queue;
        self.handed.load(Ordering::Relaxed) & bit != 0
            && self.handed.fetch_and(!bit, Ordering::Acquire) & bit != 0
    }

    /// Returns the number of completions that were not taken.
    pub(super) fn len(&self) -> usize {
        self.done.len()
    }

    /// Takes the next completion.
    pub(super) fn take(&self) -> Option<Done> {
        self.done.take()
    }

    /// Called before the submitter sleeps. Returns true if it may sleep.
    pub(super) fn may_sleep(&self) -> bool {
        self.sleeper
            .may_sleep(|| self.done.is_empty() && self.handed.load(Ordering::Relaxed) == 0)
    }
}
