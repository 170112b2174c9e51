//! A queue of deadlines, earliest first.
//!
//! A binary heap with lazy cancellation: a cancelled deadline still fires, and its owner ignores
//! it. Setting and firing are O(log n), cancelling is free, which suits deadlines that are almost
//! always cancelled (command time-outs, keep-alive). If a peer controls the number of
//! cancellations, [`prune`](TimerQueue::prune) bounds the queue.

use crate::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Deadlines beyond two per owner below which [`TimerQueue::prune`] does nothing.
pub const PRUNE_SPARE: usize = 1024;

/// A queue of deadlines with keys.
#[derive(Debug, Default)]
pub struct TimerQueue<K: Ord> {
    heap: BinaryHeap<Reverse<(Time, K)>>,
}

impl<K: Ord + Copy> TimerQueue<K> {
    /// A queue for `capacity` deadlines without further allocation.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            heap: BinaryHeap::with_capacity(capacity),
        }
    }

    /// Sets `key` to fire at `deadline`. A key set several times fires each time.
    pub fn set(&mut self, deadline: Time, key: K) {
        self.heap.push(Reverse((deadline, key)));
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// Removes the earliest deadline that is due at `now`.
    pub fn pop_due(&mut self, now: Time) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, key))| key)
    }

    /// Removes cancelled deadlines, for which `counts` returns false, if there are more than 2 ×
    /// `owners` + [`PRUNE_SPARE`] deadlines. Each owner has at most one that counts.
    pub fn prune(&mut self, owners: usize, mut counts: impl FnMut(Time, K) -> bool) {
        if self.heap.len() > 2 * owners + PRUNE_SPARE {
            self.heap.retain(|&Reverse((at, key))| counts(at, key));
        }
    }

    /// Returns the number of deadlines, including cancelled ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns true if no deadline is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fires_in_order_and_only_when_due() {
        let mut timers = TimerQueue::with_capacity(4);
        timers.set(Time(30), 'c');
        timers.set(Time(10), 'a');
        timers.set(Time(20), 'b');
        assert_eq!(timers.next(), Some(Time(10)));
        assert_eq!(timers.pop_due(Time(9)), None);
        assert_eq!(timers.pop_due(Time(25)), Some('a'));
        assert_eq!(timers.pop_due(Time(25)), Some('b'));
        assert_eq!(timers.pop_due(Time(25)), None);
        assert_eq!(timers.len(), 1);
    }

    /// A host that repeatedly shortens its keep-alive timeout adds a deadline each time.
    #[test]
    fn cancelled_deadlines_are_bounded() {
        const OWNERS: usize = 3;
        let mut timers = TimerQueue::default();
        let mut current = [Time::NEVER; OWNERS];
        for step in 0..100_000_u64 {
            let owner = usize::try_from(step).expect("few") % OWNERS;
            current[owner] = Time(1_000_000 - step);
            timers.set(current[owner], owner);
            timers.prune(OWNERS, |at, owner| at == current[owner]);
            assert!(timers.len() <= 2 * OWNERS + PRUNE_SPARE);
        }
        let mut left: Vec<_> = std::iter::from_fn(|| timers.pop_due(Time::NEVER)).collect();
        left.sort_unstable();
        left.dedup();
        assert_eq!(left.len(), OWNERS);
    }
}
