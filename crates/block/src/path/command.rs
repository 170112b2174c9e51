//! Commands of a runner: a single request, or several as one command over extents.

use super::queue::Entry;
use crate::extents::{Extent, Extents};
use crate::request::{Operation, Request};
use base::Slab;
use reactor::{IoSlice, Memory};
use switch::path::Merge;

#[derive(Debug)]
pub(super) enum Single {
    /// A request of this thread that bypasses the queues, with its tag.
    Own(u64),
    /// A request of the queue with this index.
    Queued(usize, Entry),
}

#[derive(Debug)]
pub(super) struct Merged {
    pub(super) queue: usize,
    pub(super) entries: Vec<Entry>,
}

#[derive(Debug)]
pub(super) enum Command {
    Single(Request),
    Merged(Extents),
}

/// Returns a sort key for operations, so that requests that can be merged are adjacent.
pub(super) fn kind_of(operation: Operation) -> u8 {
    match operation {
        Operation::Read => 0,
        Operation::Write { durable: false } => 1,
        Operation::Write { durable: true } => 2,
        Operation::WriteZeroes { .. }
        | Operation::Deallocate
        | Operation::Compare
        | Operation::Verify
        | Operation::Flush => 3,
    }
}

/// Returns true if a request may join a command of this operation that ends before block `end`.
pub(super) fn joins(merge: Merge, operation: Operation, end: u64, next: &Entry) -> bool {
    let moves = matches!(operation, Operation::Read | Operation::Write { .. });
    moves && next.operation == operation && merge.joins(end, next.lba.0)
}

fn slice(entry: &Entry) -> Option<IoSlice> {
    let memory = || Memory::Region(entry.inbox.region.handle());
    let data = entry.data;
    data.map(|(offset, len)| IoSlice::new(memory(), offset, len))
}

pub(super) fn single(slots: &mut Slab<Single>, queue: usize, entry: Entry) -> Command {
    let request = Request {
        tag: 0,
        operation: entry.operation,
        lba: entry.lba,
        blocks: entry.blocks,
        data: slice(&entry),
    };
    let Ok(key) = slots.insert(Single::Queued(queue, entry)) else {
        unreachable!("a batch has as many requests as there are slots");
    };
    Command::Single(Request {
        tag: key.tag(),
        ..request
    })
}

pub(super) fn merged(
    slots: &mut Slab<Merged>,
    queue: usize,
    entries: Vec<Entry>,
    mut extents: Vec<Extent>,
) -> Command {
    let operation = entries[0].operation;
    extents.extend(entries.iter().map(|entry| Extent {
        tag: entry.slot.into(),
        lba: entry.lba,
        blocks: entry.blocks,
        data: slice(entry),
        result: Ok(()),
    }));
    let Ok(key) = slots.insert(Merged { queue, entries }) else {
        unreachable!("a batch has no more commands than there are slots");
    };
    Command::Merged(Extents {
        tag: key.tag(),
        operation,
        extents,
    })
}
