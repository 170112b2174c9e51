//! Handles of the process: numbers that stand for values.

use crate::error::Failure;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

/// Values by the number of their handles.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    values: RwLock<BTreeMap<usize, T>>,
    what: &'static str,
}

impl<T: Clone> Handles<T> {
    /// An empty table; errors say `what` its handles are.
    pub(crate) const fn new(what: &'static str) -> Self {
        Self {
            values: RwLock::new(BTreeMap::new()),
            what,
        }
    }

    pub(crate) fn insert(&self, value: T) -> usize {
        let number = number();
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        values.insert(number, value);
        number
    }

    pub(crate) fn get(&self, handle: usize) -> Result<T, Failure> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        values
            .get(&handle)
            .cloned()
            .ok_or_else(|| closed(self.what))
    }

    /// Puts another value in the place of one.
    pub(crate) fn change(
        &self,
        handle: usize,
        change: impl FnOnce(&T) -> T,
    ) -> Result<(), Failure> {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        let value = values.get_mut(&handle).ok_or_else(|| closed(self.what))?;
        *value = change(value);
        Ok(())
    }

    /// Removes a value, which the caller drops after the lock was given back.
    pub(crate) fn remove(&self, handle: usize) -> Result<T, Failure> {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        values.remove(&handle).ok_or_else(|| closed(self.what))
    }
}

/// Returns a number for a handle. None comes twice, and none is an address of anything.
pub(crate) fn number() -> usize {
    // Addresses of the lowest pages are never mapped.
    static NEXT: AtomicUsize = AtomicUsize::new(16);
    NEXT.fetch_add(16, Ordering::Relaxed)
}

pub(crate) fn closed(what: &str) -> Failure {
    let message = format!("not an open {what}: closed, or never opened");
    Failure::new(libc::EBADF, message)
}
