//! A calendar: a heap of events by time; events of the same time stay in insertion order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Pending events `E`, ordered by times of type `T`.
#[derive(Debug)]
pub(crate) struct Calendar<T, E> {
    heap: BinaryHeap<Reverse<(T, u64, E)>>,
    number: u64,
}

impl<T: Ord, E: Ord> Calendar<T, E> {
    pub(crate) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            number: 0,
        }
    }

    /// Schedules an event.
    #[inline]
    pub(crate) fn push(&mut self, at: T, event: E) {
        self.number += 1;
        self.heap.push(Reverse((at, self.number, event)));
    }

    /// Removes the next event and returns it with its time.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(T, E)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }

    /// Returns the total number of events pushed.
    pub(crate) const fn pushed(&self) -> u64 {
        self.number
    }
}
