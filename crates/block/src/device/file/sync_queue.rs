//! The requests that wait for `fdatasync`, and those that share the running one.
//!
//! One runs at a time. Requests that arrive meanwhile wait for the next one, which serves all of
//! them. With several at a time, one could report success for data that another one reported lost.

use base::SlabKey;
use std::collections::VecDeque;

/// Requests that share the running `fdatasync`, then waiting ones, each oldest first.
#[derive(Debug)]
pub(super) struct SyncQueue {
    keys: VecDeque<SlabKey>,
    /// Number of requests at the front that share the running `fdatasync`.
    started: usize,
    running: bool,
}

impl SyncQueue {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            keys: VecDeque::with_capacity(capacity),
            started: 0,
            running: false,
        }
    }

    /// Adds a waiting request.
    pub(super) fn push(&mut self, key: SlabKey) {
        self.keys.push_back(key);
    }

    /// Returns true if an `fdatasync` must be started now: none is running, and a request waits.
    /// All waiting requests share it.
    pub(super) fn start(&mut self) -> bool {
        if self.running || self.keys.is_empty() {
            return false;
        }
        self.started = self.keys.len();
        self.running = true;
        true
    }

    /// Takes the next request that shared the completed `fdatasync`.
    pub(super) fn pop_started(&mut self) -> Option<SlabKey> {
        self.started = self.started.checked_sub(1)?;
        self.keys.pop_front()
    }

    /// Takes a waiting request.
    pub(super) fn pop_waiting(&mut self) -> Option<SlabKey> {
        if self.keys.len() > self.started {
            self.keys.pop_back()
        } else {
            None
        }
    }

    /// Ends the running `fdatasync`, after its requests were taken.
    pub(super) fn end(&mut self) {
        debug_assert!(self.started == 0, "every rider was answered");
        self.running = false;
    }

    pub(super) fn is_running(&self) -> bool {
        self.running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_late_rides_on_the_next_one() {
        let key = |index| SlabKey {
            index,
            generation: 0,
        };
        let mut queue = SyncQueue::with_capacity(4);
        assert!(!queue.start());
        queue.push(key(0));
        assert!(queue.start());
        queue.push(key(1));
        queue.push(key(2));
        assert!(!queue.start(), "one at a time");
        assert_eq!(queue.pop_started(), Some(key(0)));
        assert_eq!(queue.pop_started(), None);
        queue.end();
        assert!(queue.start());
        queue.push(key(3));
        assert_eq!(queue.pop_waiting(), Some(key(3)));
        assert_eq!(queue.pop_waiting(), None);
        assert_eq!(queue.pop_started(), Some(key(1)));
        assert_eq!(queue.pop_started(), Some(key(2)));
        assert_eq!(queue.pop_started(), None);
    }
}
