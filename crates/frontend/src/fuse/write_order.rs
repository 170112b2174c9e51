//! The order of writes that touch the same blocks.
//!
//! A write of part of a block reads the block, changes the part and writes the whole back. Another
//! write to the block in between would be lost, so such a write is alone on its blocks. Writes of
//! whole blocks do not wait for each other.

use std::ops::Range;

/// Writes that are under way or wait, in the order in which they came.
#[derive(Debug)]
pub(super) struct WriteOrder<T> {
    entries: Vec<Entry<T>>,
    /// Entries that are alone on their blocks.
    alone: usize,
    /// Entries that wait.
    waiting: usize,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    ticket: u64,
    range: Range<u64>,
    alone: bool,
    /// The write, while it waits.
    waiting: Option<T>,
}

impl<T> Entry<T> {
    fn conflicts(&self, other: &Self) -> bool {
        let overlaps = self.range.start < other.range.end && other.range.start < self.range.end;
        overlaps && (self.alone || other.alone)
    }
}

impl<T> WriteOrder<T> {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            alone: 0,
            waiting: 0,
            next: 0,
        }
    }

    /// Registers a write of `range`; `alone` says that no other may touch its blocks meanwhile.
    /// Hands the write back with its ticket if it may begin now.
    pub(super) fn enter(&mut self, range: Range<u64>, alone: bool, write: T) -> Option<(u64, T)> {
        let ticket = self.next;
        self.next += 1;
        let mut entry = Entry {
            ticket,
            range,
            alone,
            waiting: None,
        };
        self.alone += usize::from(alone);
        let waits = self.alone > 0 && self.entries.iter().any(|other| other.conflicts(&entry));
        let begins = if waits {
            entry.waiting = Some(write);
            self.waiting += 1;
            None
        } else {
            Some((ticket, write))
        };
        self.entries.push(entry);
        begins
    }

    /// Removes a write that has ended.
    pub(super) fn leave(&mut self, ticket: u64) {
        // Tickets ascend.
        let found = self
            .entries
            .binary_search_by_key(&ticket, |entry| entry.ticket);
        if let Ok(index) = found {
            let entry = self.entries.remove(index);
            self.alone -= usize::from(entry.alone);
        }
    }

    /// Returns true if some write is alone on its blocks, so that others may have to wait.
    pub(super) const fn has_parts(&self) -> bool {
        self.alone > 0
    }

    /// The writes that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &T> {
        self.entries
            .iter()
            .filter_map(|entry| entry.waiting.as_ref())
    }

    /// Removes a write that waits; returns false if none is the one. Others may
    /// [begin](Self::begin) then.
    pub(super) fn remove_waiting(&mut self, is_it: impl Fn(&T) -> bool) -> bool {
        let mut entries = self.entries.iter();
        let found = entries.find(|entry| entry.waiting.as_ref().is_some_and(&is_it));
        let Some(ticket) = found.map(|entry| entry.ticket) else {
            return false;
        };
        self.waiting -= 1;
        self.leave(ticket);
        true
    }

    /// Takes the next write that waited and may begin now, with its ticket; asked for after
    /// [`leave`](Self::leave) until there is none.
    pub(super) fn begin(&mut self) -> Option<(u64, T)> {
        if self.waiting == 0 {
            return None;
        }
        let index = (0..self.entries.len()).find(|&index| {
            let (earlier, entry) = (&self.entries[..index], &self.entries[index]);
            entry.waiting.is_some() && !earlier.iter().any(|other| other.conflicts(entry))
        })?;
        let entry = &mut self.entries[index];
        self.waiting -= 1;
        entry.waiting.take().map(|write| (entry.ticket, write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_waits_is_removed_and_lets_others_begin() {
        let mut order = WriteOrder::new();
        assert_eq!(order.enter(0..8, false, 'a'), Some((0, 'a')));
        assert!(!order.has_parts());
        assert_eq!(order.enter(4..8, true, 'b'), None);
        assert_eq!(order.enter(4..12, false, 'c'), None);
        assert_eq!(order.waiting().collect::<String>(), "bc");
        assert!(!order.remove_waiting(|&write| write == 'a'), "it has begun");
        assert!(order.remove_waiting(|&write| write == 'b'));
        assert_eq!(order.begin(), Some((2, 'c')), "a whole one does not wait");
        assert_eq!(order.begin(), None);
        assert!(!order.has_parts());
    }

    #[test]
    fn whole_blocks_go_at_once_and_parts_are_alone() {
        let mut order = WriteOrder::new();
        assert_eq!(order.enter(0..8, false, 'a'), Some((0, 'a')));
        assert_eq!(order.enter(4..12, false, 'b'), Some((1, 'b')));
        assert_eq!(order.enter(7..8, true, 'c'), None);
        // Not before the part that came first.
        assert_eq!(order.enter(7..9, false, 'd'), None);
        assert_eq!(order.enter(20..24, false, 'e'), Some((4, 'e')));
        order.leave(0);
        assert_eq!(order.begin(), None);
        order.leave(1);
        assert_eq!(order.begin(), Some((2, 'c')));
        assert_eq!(order.begin(), None);
        order.leave(2);
        assert_eq!(order.begin(), Some((3, 'd')));
        assert_eq!(order.begin(), None);
        order.leave(3);
        order.leave(4);
        assert!(order.entries.is_empty());
        assert_eq!(order.alone, 0);
    }
}
