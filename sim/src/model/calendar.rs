//! The calendar: a heap of events by time, and among equal times in the order of their making.

use super::event::Event;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

#[derive(Clone, Copy, Debug)]
struct CalendarEntry {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for CalendarEntry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for CalendarEntry {}

impl PartialOrd for CalendarEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CalendarEntry {
    /// The earliest is the greatest, so that the heap yields it first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// The events that are still to come.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    heap: BinaryHeap<CalendarEntry>,
    number: u64,
}

impl Calendar {
    /// Something will happen.
    #[inline]
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.heap.push(CalendarEntry {
            at,
            number: self.number,
            event,
        });
    }

    /// The next event and its time.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// Returns the number of events that were ever pushed.
    pub(super) const fn pushed(&self) -> u64 {
        self.number
    }
}
