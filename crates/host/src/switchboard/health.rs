//! The health of a switchboard: healthy while all of its threads serve.
//!
//! A dataplane thread whose ring fails loses the requests in its lanes, and only an account of
//! every request, kept while nothing is wrong, could name them. So the whole switchboard fails:
//! every submitter ends its outstanding and later requests with an error. Answers of threads that
//! still serve are then dropped.

use super::ingress::Submitter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The health of a switchboard, shared by its threads and submitters.
#[derive(Debug, Default)]
pub(super) struct Health {
    broken: AtomicBool,
    /// Submitters to wake when a thread fails.
    submitters: Mutex<Vec<Weak<Submitter>>>,
}

impl Health {
    /// Returns true if a thread failed: no request is answered any more.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Registers the submitter to be woken when a thread fails.
    pub(super) fn watch(&self, submitter: &Arc<Submitter>) {
        let mut submitters = self.submitters();
        submitters.retain(|known| known.strong_count() > 0);
        submitters.push(Arc::downgrade(submitter));
    }

    /// Registers a thread that begins to serve. Dropping the result breaks the switchboard, unless
    /// the thread [ends in order](Serving::end).
    pub(super) fn serve(self: &Arc<Self>) -> Serving {
        Serving {
            health: Some(Arc::clone(self)),
        }
    }

    fn break_down(&self) {
        self.broken.store(true, Ordering::Release);
        // A submitter that registers later reads the flag after that.
        for submitter in self.submitters().iter().filter_map(Weak::upgrade) {
            submitter.sleeper.wake();
        }
    }

    fn submitters(&self) -> MutexGuard<'_, Vec<Weak<Submitter>>> {
        // Each change of the list is complete, so poisoning does no harm.
        self.submitters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A serving thread.
#[derive(Debug)]
pub(super) struct Serving {
    health: Option<Arc<Health>>,
}

impl Serving {
    /// Ends the thread's service in order, after a request to end.
    pub(super) fn end(mut self) {
        self.health = None;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(health) = self.health.take() {
            health.break_down();
        }
    }
}
