//! The health of a switchboard: true as long as all of its threads serve.
//!
//! A dataplane thread that loses its ring takes with it what was in its lanes, and only an account
//! of every request, kept while nothing is wrong, could tell what that was. So the switchboard is
//! gone as a whole: every submitter ends what it has outstanding, and whatever it is asked for from
//! then on, with an error. Answers of threads that still serve are dropped after that.

use super::ingress::Submitter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The health of a switchboard, which its threads and submitters share.
#[derive(Debug, Default)]
pub(super) struct Health {
    broken: AtomicBool,
    /// Submitters to wake when a thread breaks.
    submitters: Mutex<Vec<Weak<Submitter>>>,
}

impl Health {
    /// Returns true if a thread broke: no request is answered any more.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// From now on the submitter is woken when a thread breaks.
    pub(super) fn watch(&self, submitter: &Arc<Submitter>) {
        let mut submitters = self.submitters();
        submitters.retain(|known| known.strong_count() > 0);
        submitters.push(Arc::downgrade(submitter));
    }

    /// A thread begins to serve: unless it [ends in order](Serving::end), the switchboard is broken
    /// when this is dropped.
    pub(super) fn serve(self: &Arc<Self>) -> Serving {
        Serving {
            health: Some(Arc::clone(self)),
        }
    }

    fn break_down(&self) {
        self.broken.store(true, Ordering::Release);
        // A submitter that is watched later looks at the flag after that.
        for submitter in self.submitters().iter().filter_map(Weak::upgrade) {
            submitter.sleeper.wake();
        }
    }

    fn submitters(&self) -> MutexGuard<'_, Vec<Weak<Submitter>>> {
        // No change of the list can stop half way.
        self.submitters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that serves.
#[derive(Debug)]
pub(super) struct Serving {
    health: Option<Arc<Health>>,
}

impl Serving {
    /// It was told to end, and did.
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
