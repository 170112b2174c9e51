//! Requests of a channel that are not complete.

use super::table::{Claim, PAGE_BYTES};
use crate::request::{BlockError, Operation, Request};
use base::units::Lba;
use reactor::IoSlice;
use std::ops::Range;

/// Words of a set of pages, for the largest transfer, which may begin within a page.
const WORDS: usize = crate::limits::TRANSFER_MAX_BYTES as usize / PAGE_BYTES / 64 + 1;

/// Pages of a request, by index within the request.
#[derive(Clone, Copy, Debug, Default)]
struct PageSet([u64; WORDS]);

impl PageSet {
    fn contains(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    fn insert(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }
}

/// Step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for an earlier overlapping request.
    Held,
    /// Reads from the cache, or writes into it.
    Cached,
    /// Claims its range.
    Claiming,
    /// Waits until its range is written back, up to an epoch.
    Saving(u64),
    /// Waits until all pages are written back, up to an epoch.
    Flushing(u64),
    /// Passed down to the device.
    Below,
}

/// A request.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) tag: u64,
    pub(super) operation: Operation,
    pub(super) lba: Lba,
    pub(super) blocks: u32,
    pub(super) data: Option<IoSlice>,
    /// The bytes of its range; empty for Flush.
    pub(super) bytes: Range<u64>,
    pub(super) phase: Phase,
    pub(super) result: Result<(), BlockError>,
    /// Number of transfers in flight for it.
    pub(super) ios: u32,
    /// True if it waits for more than its own transfers.
    pub(super) waits: bool,
    /// True for a write that bypasses the cache, because no page is free or too many are dirty.
    pub(super) bypass: bool,
    pub(super) claim: Option<Claim>,
    /// Number of failed write-backs before a Flush began.
    pub(super) errors: u64,
    /// Losses of the device's cache when a Flush completed below.
    pub(super) losses: Option<u32>,
    /// Number of pages that are not done.
    pub(super) left: u32,
    /// Pages that are done, or have a transfer in flight.
    taken: PageSet,
}

/// The part of a page within a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    /// Offset in the page.
    pub(super) in_page: usize,
    /// Offset in the request's data.
    pub(super) in_data: usize,
    pub(super) len: usize,
}

impl Pending {
    pub(super) fn new(request: Request, block_bytes: u32) -> Self {
        let block = u64::from(block_bytes);
        // A Flush ignores its range, which may be anything.
        let bytes = match request.operation {
            Operation::Flush => 0..0,
            _ => request.lba.0 * block..(request.lba.0 + u64::from(request.blocks)) * block,
        };
        let mut pending = Self {
            tag: request.tag,
            operation: request.operation,
            lba: request.lba,
            blocks: request.blocks,
            data: request.data,
            bytes,
            phase: Phase::Held,
            result: Ok(()),
            ios: 0,
            waits: true,
            bypass: false,
            claim: None,
            errors: 0,
            losses: None,
            left: 0,
            taken: PageSet::default(),
        };
        if pending.operation.has_data() {
            let pages = pending.pages();
            let count = u32::try_from(pages.end - pages.start);
            pending.left = count.expect("at most the largest transfer");
        }
        pending
    }

    /// Returns true if the two must be executed in order.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end;
        overlap && (self.operation.is_write() || other.operation.is_write())
    }

    /// Returns the pages of its range.
    pub(super) fn pages(&self) -> Range<u64> {
        let page = PAGE_BYTES as u64;
        self.bytes.start / page..self.bytes.end.div_ceil(page)
    }

    fn index(&self, page: u64) -> usize {
        usize::try_from(page - self.pages().start).expect("a page of the request")
    }

    /// Returns true if a page is done, or has a transfer in flight.
    pub(super) fn is_taken(&self, page: u64) -> bool {
        self.taken.contains(self.index(page))
    }

    /// Records that a transfer for a page is in flight.
    pub(super) fn take(&mut self, page: u64) {
        self.taken.insert(self.index(page));
    }

    /// Records that a page is done.
    pub(super) fn page_done(&mut self, page: u64) {
        self.take(page);
        self.left -= 1;
    }

    /// Returns the part of a page within the request.
    pub(super) fn overlap(&self, page: u64) -> Overlap {
        let start = page * PAGE_BYTES as u64;
        let (from, to) = (
            self.bytes.start.max(start),
            self.bytes.end.min(start + PAGE_BYTES as u64),
        );
        let whole = |bytes| usize::try_from(bytes).expect("within a request");
        Overlap {
            in_page: whole(from - start),
            in_data: usize::try_from(from - self.bytes.start).unwrap_or(usize::MAX),
            len: whole(to - from),
        }
    }
}
