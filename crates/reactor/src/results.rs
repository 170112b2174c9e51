//! Results that a thread of the process has for a driver.

use crate::driver::Wake;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Results for one driver.
pub(crate) struct Results<T> {
    finished: Mutex<Vec<T>>,
    waker: Arc<dyn Wake>,
}

impl<T> fmt::Debug for Results<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Results").finish_non_exhaustive()
    }
}

impl<T> Results<T> {
    pub(crate) fn new(waker: Arc<dyn Wake>) -> Arc<Self> {
        let finished = Mutex::new(Vec::new());
        Arc::new(Self { finished, waker })
    }

    /// Takes the results so far.
    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.lock())
    }

    /// Adds a result, and wakes the driver's core.
    pub(crate) fn add(&self, finished: T) {
        self.lock().push(finished);
        self.waker.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        // Nothing panics while it is held.
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
