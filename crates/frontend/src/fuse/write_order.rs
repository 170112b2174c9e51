//! The order of writes to the same blocks.
//!
//! A write of part of a block reads the block, changes the part and writes the whole block back. A
//! concurrent write to the block would be lost, so such a write has exclusive access to its blocks.
//! Writes of whole blocks do not wait for each other.

use std::collections::BTreeSet;
use std::ops::Range;

/// Writes in flight or waiting, in order of arrival.
#[derive(Debug)]
pub(super) struct WriteOrder<T> {
    entries: Vec<OrderEntry<T>>,
    /// Number of entries with exclusive access to their blocks.
    alone: usize,
    /// Tickets of entries that waited and may now begin.
    free: BTreeSet<u64>,
    next: u64,
}

#[derive(Debug)]
struct OrderEntry<T> {
    ticket: u64,
    range: Range<u64>,
    alone: bool,
    /// Number of earlier entries that it conflicts with.
    conflicts: usize,
    /// The write while it waits; `None` once it has begun.
    waiting: Option<T>,
}

impl<T> OrderEntry<T> {
    fn conflicts_with(&self, other: &Self) -> bool {
        let overlaps = self.range.start < other.range.end && other.range.start < self.range.end;
        overlaps && (self.alone || other.alone)
    }
}

impl<T> WriteOrder<T> {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            alone: 0,
            free: BTreeSet::new(),
            next: 0,
        }
    }

    /// Registers a write of `range`; `alone` requests exclusive access to its blocks. Returns the
    /// write with its ticket if it may begin now.
    pub(super) fn enter(&mut self, range: Range<u64>, alone: bool, write: T) -> Option<(u64, T)> {
        let ticket = self.next;
        self.next += 1;
        let mut entry = OrderEntry {
            ticket,
            range,
            alone,
            conflicts: 0,
            waiting: None,
        };
        self.alone += usize::from(alone);
        if self.has_parts() {
            let earlier = self.entries.iter();
            entry.conflicts = earlier.filter(|it| it.conflicts_with(&entry)).count();
        }
        let begins = if entry.conflicts > 0 {
            entry.waiting = Some(write);
            None
        } else {
            Some((ticket, write))
        };
        self.entries.push(entry);
        begins
    }

    /// Removes a write that has ended.
    pub(super) fn leave(&mut self, ticket: u64) {
        let Some(index) = self.index(ticket) else {
            return;
        };
        let gone = self.entries.remove(index);
        if self.has_parts() {
            let later = self.entries[index..].iter_mut();
            for entry in later.filter(|it| it.conflicts_with(&gone)) {
                assert!(entry.conflicts > 0, "a later write waits for it");
                entry.conflicts -= 1;
                if entry.conflicts == 0 {
                    self.free.insert(entry.ticket);
                }
            }
        }
        self.alone -= usize::from(gone.alone);
    }

    fn index(&self, ticket: u64) -> Option<usize> {
        // Tickets ascend.
        let found = self
            .entries
            .binary_search_by_key(&ticket, |entry| entry.ticket);
        found.ok()
    }

    /// Returns true if some write has exclusive access to its blocks, so that later writes may have
    /// to wait.
    pub(super) const fn has_parts(&self) -> bool {
        self.alone > 0
    }

    /// The waiting writes.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &T> {
        self.entries
            .iter()
            .filter_map(|entry| entry.waiting.as_ref())
    }

    /// Removes a waiting write; returns false if none matches. Writes that waited for it may then
    /// [begin](Self::begin).
    pub(super) fn remove_waiting(&mut self, is_it: impl Fn(&T) -> bool) -> bool {
        let mut entries = self.entries.iter();
        let found = entries.find(|entry| entry.waiting.as_ref().is_some_and(&is_it));
        let Some(ticket) = found.map(|entry| entry.ticket) else {
            return false;
        };
        self.free.remove(&ticket);
        self.leave(ticket);
        true
    }

    /// Returns the next write that waited and may begin now, with its ticket. Call it repeatedly
    /// after [`leave`](Self::leave) until it returns `None`.
    pub(super) fn begin(&mut self) -> Option<(u64, T)> {
        let ticket = self.free.pop_first()?;
        let index = self.index(ticket)?;
        let write = self.entries[index].waiting.take();
        write.map(|write| (ticket, write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    /// The rule itself: compares each waiting write with all earlier writes.
    #[derive(Default)]
    struct Oracle(Vec<(u64, Range<u64>, bool, bool)>);

    impl Oracle {
        fn begin(&mut self) -> Option<u64> {
            let Self(all) = self;
            let index = (0..all.len()).find(|&index| {
                let (_, range, alone, waits) = &all[index];
                let mut earlier = all[..index].iter();
                *waits
                    && !earlier.any(|(_, other, others, _)| {
                        let overlaps = range.start < other.end && other.start < range.end;
                        overlaps && (*alone || *others)
                    })
            })?;
            all[index].3 = false;
            Some(all[index].0)
        }

        /// Removes a waiting or a running write; returns its ticket.
        fn remove(&mut self, waits: bool, random: &mut Prng) -> Option<u64> {
            let all = (0..self.0.len()).filter(|&index| self.0[index].3 == waits);
            let all: Vec<_> = all.collect();
            let any = random.below(all.len().max(1) as u64);
            let index = all.get(usize::try_from(any).expect("a few"))?;
            Some(self.0.remove(*index).0)
        }
    }

    #[test]
    fn writes_begin_as_the_rule_says() {
        for seed in 0..500 {
            let mut random = Prng::from_seed(seed);
            let (mut order, mut oracle) = (WriteOrder::new(), Oracle::default());
            for ticket in 0..100 {
                let start = random.below(20);
                let range = start..start + 1 + random.below(6);
                let alone = random.chance(1, 2);
                let begun = order.enter(range.clone(), alone, ticket);
                oracle.0.push((ticket, range, alone, true));
                assert_eq!(begun, oracle.begin().map(|it| (it, it)), "seed {seed}");
                while random.chance(1, 2) {
                    let waits = random.chance(1, 4);
                    let removed = oracle.remove(waits, &mut random);
                    if let Some(removed) = removed.filter(|_| !waits) {
                        order.leave(removed);
                    } else if let Some(removed) = removed {
                        assert!(order.remove_waiting(|&it| it == removed), "seed {seed}");
                    }
                    // Further writes may be removed before the free ones have begun.
                    if random.chance(1, 4) {
                        continue;
                    }
                    loop {
                        let expected = oracle.begin().map(|it| (it, it));
                        assert_eq!(order.begin(), expected, "seed {seed}");
                        if expected.is_none() {
                            break;
                        }
                    }
                }
                while let Some(begun) = oracle.begin() {
                    assert_eq!(order.begin(), Some((begun, begun)), "seed {seed}");
                }
                let waiting = oracle.0.iter().filter(|it| it.3).map(|it| it.0);
                assert!(order.waiting().copied().eq(waiting), "seed {seed}");
            }
        }
    }

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
        // Not before the earlier partial-block write.
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
