//! A calendar: a heap of events by time, and among equal times in the order of their making.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The events that are still to come, by times of this type.
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

    /// Something will happen.
    #[inline]
    pub(crate) fn push(&mut self, at: T, event: E) {
        self.number += 1;
        self.heap.push(Reverse((at, self.number, event)));
    }

    /// The next event and its time.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(T, E)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }

    /// Returns the number of events that were ever pushed.
    pub(crate) const fn pushed(&self) -> u64 {
        self.number
    }
}
