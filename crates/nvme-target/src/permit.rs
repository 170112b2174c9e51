//! The limit on connections of all cores together.
//!
//! Each connection owns a [`ConnectionPermit`] for as long as anything of it is left, also while it
//! moves between cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Permits for connections, shared by all cores.
#[derive(Debug)]
pub(crate) struct Permits {
    taken: Arc<AtomicUsize>,
    limit: usize,
}

/// Permission to have one connection; returned when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(Arc<AtomicUsize>);

impl Permits {
    /// Permits for at most `limit` connections.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            taken: Arc::default(),
            limit,
        }
    }

    /// Returns a permit for one more connection; `None` at the limit.
    pub(crate) fn take(&self) -> Option<ConnectionPermit> {
        let one_more = |taken: usize| (taken < self.limit).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()?;
        Some(ConnectionPermit(Arc::clone(&self.taken)))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a permit is returned once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_and_come_back() {
        let permits = Permits::new(2);
        let first = permits.take();
        let second = permits.take();
        assert!(first.is_some() && second.is_some());
        assert!(permits.take().is_none());
        drop(first);
        assert!(permits.take().is_some());
    }
}
