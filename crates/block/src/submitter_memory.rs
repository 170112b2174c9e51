//! The memory of a submitter whose requests other threads execute.
//!
//! A core's own buffers never leave it, so requests executed elsewhere need memory that every
//! thread may access: a region of the submitter. Half of it is lent on request, and requests with
//! such data are sent without a copy. The other half holds the data of requests that come with
//! other memory: it is copied in before and out afterwards. There may be additional room for
//! buffers that the submitter keeps; requests with data in them are sent without a copy, too.

use crate::device::DeviceError;
use crate::device::copy::{copy_from_region, copy_to_region};
use crate::request::Operation;
use base::units::KIB;
use reactor::{IoSlice, Memory, Region, RegionHandle};
use std::collections::BTreeMap;

/// Alignment in bytes of the buffers in the room: a page.
const PAGE_BYTES: usize = 4 * KIB;

/// A submitter's memory.
#[derive(Debug)]
pub struct SubmitterMemory {
    region: Region,
    handle: RegionHandle,
    /// Largest data of a request in bytes.
    bytes: usize,
    /// Distance between slots in bytes: an odd number of pages, so that the first pages of all
    /// slots do not share a few cache sets.
    stride: usize,
    /// Unused slots for requests that come with other memory.
    places: Vec<u32>,
    /// The remaining slots: each is lent while there are clones of its handle.
    lendable: Vec<RegionHandle>,
    /// Index of the next slot to lend, unless it is still lent.
    next_lent: usize,
    /// Buffers in the room: their lengths by offset.
    buffers: BTreeMap<usize, usize>,
}

/// Location of a request's data in its submitter's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Offset in bytes.
    pub offset: usize,
    /// The bounce slot, if the data came with other memory.
    pub bounce: Option<u32>,
}

impl SubmitterMemory {
    /// Allocates memory for `depth` requests of at most `bytes` bytes. Pages are allocated when
    /// they are first used.
    ///
    /// # Errors
    /// [`DeviceError::Memory`] without enough address space.
    pub fn new(depth: u32, bytes: usize) -> Result<Self, DeviceError> {
        Self::with_room(depth, bytes, 0)
    }

    /// The same with additional `room` bytes for [buffers](Self::reserve).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_room(depth: u32, bytes: usize, room: usize) -> Result<Self, DeviceError> {
        let stride = bytes.next_multiple_of(PAGE_BYTES) | PAGE_BYTES;
        let region = Region::new(2 * depth as usize * stride + room)?;
        Ok(Self {
            handle: region.handle(),
            lendable: (0..depth).map(|_| region.handle()).collect(),
            places: (0..depth).rev().collect(),
            next_lent: 0,
            buffers: BTreeMap::new(),
            bytes,
            stride,
            region,
        })
    }

    /// The region, for the threads that execute requests.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Lends memory for one request's data; `None` for more than a slot, or while all are lent.
    pub fn lend(&mut self, bytes: usize) -> Option<IoSlice> {
        if bytes > self.bytes {
            return None;
        }
        let count = self.lendable.len();
        let mut turn = (self.next_lent..count).chain(0..self.next_lent);
        let place = turn.find(|&place| self.lendable[place].is_alone())?;
        self.next_lent = (place + 1) % count;
        // The other half is for requests that come with other memory.
        let offset = (count + place) * self.stride;
        let memory = Memory::Region(self.lendable[place].clone());
        Some(IoSlice::new(memory, offset, bytes))
    }

    /// Allocates a zeroed buffer of `bytes` bytes, in whole pages of the room; `None` if it has no
    /// such gap.
    pub fn reserve(&mut self, bytes: usize) -> Option<IoSlice> {
        let size = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        let mut start = 2 * self.lendable.len() * self.stride;
        for (&next, &taken) in &self.buffers {
            if next - start >= size {
                break;
            }
            start = next + taken;
        }
        if size == 0 || size > self.region.len() - start {
            return None;
        }
        self.buffers.insert(start, size);
        let memory = Memory::Region(self.region.handle());
        Some(IoSlice::new(memory, start, size))
    }

    /// Frees the buffer at this offset, and returns its pages to the system. No request may use it.
    pub fn release(&mut self, offset: usize) {
        if let Some(size) = self.buffers.remove(&offset) {
            self.handle.discard(offset, size);
        }
    }

    /// Finds a slot for a request's data, and copies the data there unless the operation only fills
    /// it; `None` while no slot is free.
    ///
    /// # Panics
    /// If the data is longer than a slot: the caller must check it.
    pub fn place(&mut self, data: &IoSlice, operation: Operation) -> Option<Placed> {
        assert!(data.len() <= self.bytes, "a request fits into its place");
        if data.is_region_of(&self.region) {
            return Some(Placed {
                offset: data.offset(),
                bounce: None,
            });
        }
        let place = self.places.pop()?;
        let offset = place as usize * self.stride;
        if operation != Operation::Read {
            copy_to_region(data, 0, &self.handle, offset, data.len());
        }
        Some(Placed {
            offset,
            bounce: Some(place),
        })
    }

    /// Copies the data of a read to the request's own memory.
    pub fn copy_back(&self, place: u32, data: &mut IoSlice) {
        let offset = place as usize * self.stride;
        copy_from_region(&self.handle, offset, data, 0, data.len());
    }

    /// Frees a slot.
    pub fn free(&mut self, place: u32) {
        self.places.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_spread_over_the_sets_of_a_cache() {
        // A cache set's index has up to six bits above those of a page.
        const SETS: usize = 64 * PAGE_BYTES;
        for bytes in [PAGE_BYTES, 64 * KIB, 256 * KIB] {
            let mut memory = SubmitterMemory::new(64, bytes).unwrap();
            let lent: Vec<_> = (0..64).map(|_| memory.lend(bytes).unwrap()).collect();
            let mut offsets: Vec<_> = lent.iter().map(|slice| slice.offset() % SETS).collect();
            offsets.sort_unstable();
            offsets.dedup();
            assert_eq!(offsets.len(), 64, "places of {bytes} bytes");
        }
    }

    #[test]
    fn buffers_of_the_room_overlap_neither_each_other_nor_the_places() {
        let mut memory = SubmitterMemory::with_room(3, PAGE_BYTES, 4 * PAGE_BYTES).unwrap();
        let all: Vec<_> = [1, PAGE_BYTES + 1, PAGE_BYTES]
            .map(|bytes| memory.reserve(bytes).unwrap())
            .into();
        let ranges: Vec<_> = all
            .iter()
            .map(|s| (s.offset() / PAGE_BYTES, s.len()))
            .collect();
        assert_eq!(
            ranges,
            [(6, PAGE_BYTES), (7, 2 * PAGE_BYTES), (9, PAGE_BYTES)]
        );
        assert!(memory.reserve(1).is_none() && memory.reserve(0).is_none());
        let lent = memory.lend(PAGE_BYTES).unwrap();
        assert!(lent.offset() + lent.len() <= 6 * PAGE_BYTES);
        let placed = memory.place(&all[2], Operation::Read).unwrap();
        assert_eq!((placed.offset, placed.bounce), (9 * PAGE_BYTES, None));

        let mut buffer = all.into_iter().nth(1).unwrap();
        let at = buffer.offset();
        buffer.copy_in(PAGE_BYTES, &[7; PAGE_BYTES]);
        memory.release(at);
        assert!(memory.reserve(3 * PAGE_BYTES).is_none());
        // The gap is reused, and contains none of the earlier data.
        let (first, second) = (
            memory.reserve(PAGE_BYTES),
            memory.reserve(PAGE_BYTES).unwrap(),
        );
        assert_eq!(first.unwrap().offset(), at);
        let mut bytes = vec![1; PAGE_BYTES];
        second.copy_out(0, &mut bytes);
        assert_eq!(bytes, [0; PAGE_BYTES]);
    }
}
