//! Handles until they are closed.

use crate::closed;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A handle until it is closed. The last one of a host waits for the target as it is dropped, so
/// none is dropped with the interpreter's lock.
pub(crate) struct Open<T: Send>(Mutex<Option<T>>);

impl<T: Send> Open<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(Some(value)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the handle for something that takes no time.
    pub(crate) fn with<A>(&self, what: &str, ask: impl FnOnce(&T) -> A) -> PyResult<A> {
        self.lock().as_ref().map(ask).ok_or_else(|| closed(what))
    }

    /// Does something that takes time with the handle, while other Python threads run.
    pub(crate) fn run<A: Send>(
        &self,
        py: Python<'_>,
        what: &str,
        f: impl FnOnce(&T) -> A + Send,
    ) -> PyResult<A>
    where
        T: Clone,
    {
        let handle = self.with(what, T::clone)?;
        // It may be the last when the call ends.
        Ok(py.detach(move || f(&handle)))
    }

    pub(crate) fn close(&self, py: Python<'_>) {
        let handle = self.lock().take();
        py.detach(|| drop(handle));
    }
}

impl<T: Send> Drop for Open<T> {
    fn drop(&mut self) {
        Python::attach(|py| self.close(py));
    }
}
