//! The memory of a submitter with requests that other threads carry out.
//!
//! A core's own buffers never leave it, so a request that does needs memory that every thread may
//! touch: a region of the submitter's. Half of it is lent on request, and requests with
//! such data go as they are. The other half holds the data of requests that come with other memory:
//! it is copied in before, and out afterwards. There may be room beside these for buffers that the
//! submitter keeps, and requests with data in them go as they are, too.

use crate::device::DeviceError;
use crate::device::copy::{copy_from_region, copy_to_region};
use crate::request::Operation;
use base::units::KIB;
use reactor::{IoSlice, Memory, Region, RegionHandle};
use std::collections::BTreeMap;

/// Buffers of the room begin and end at multiples of this many bytes: pages.
const PAGE_BYTES: usize = 4 * KIB;

/// A submitter's memory.
#[derive(Debug)]
pub struct SubmitterMemory {
    region: Region,
    handle: RegionHandle,
    /// Most bytes of a request's data.
    bytes: usize,
    /// Distance between places in bytes: an odd number of pages, so that the first pages of all places
    /// do not share a few sets of the cache.
    stride: usize,
    /// Places for requests that come with memory of their own; those that no request uses.
    places: Vec<u32>,
    /// The other places: each is lent while there are clones of its handle.
    lendable: Vec<RegionHandle>,
    /// The one to be lent next, unless it still is.
    next_lent: usize,
    /// Buffers in the room: their offsets and lengths.
    buffers: BTreeMap<usize, usize>,
}

/// The place of a request's data in its submitter's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Offset in bytes.
    pub offset: usize,
    /// The place that stands for the data, if it came with other memory.
    pub bounce: Option<u32>,
}

impl SubmitterMemory {
    /// Memory for `depth` requests of at most `bytes` bytes. Pages are taken from the machine when
    /// they are first used.
    ///
    /// # Errors
    /// [`DeviceError::Memory`] when there is not that much address space.
    pub fn new(depth: u32, bytes: usize) -> Result<Self, DeviceError> {
        Self::with_room(depth, bytes, 0)
    }

    /// The same with `room` bytes more for [buffers](Self::reserve).
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

    /// The region, for the threads that carry requests out.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Lends memory for one request's data; `None` for more than a place, or while all is lent.
    pub fn lend(&mut self, bytes: usize) -> Option<IoSlice> {
        if bytes > self.bytes {
            return None;
        }
        let count = self.lendable.len();
        let mut turn = (self.next_lent..count).chain(0..self.next_lent);
        let place = turn.find(|&place| self.lendable[place].is_alone())?;
        self.next_lent = (place + 1) % count;
        // The other half is for requests that come with memory of their own.
        let offset = (count + place) * self.stride;
        let memory = Memory::Region(self.lendable[place].clone());
        Some(IoSlice::new(memory, offset, bytes))
    }

    /// Takes whole pages of the room for a buffer of `bytes` bytes, zeroed; `None` where it has no such
    /// gap.
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

    /// Gives the buffer at this offset back, and its pages to the machine. No request may use it.
    pub fn release(&mut self, offset: usize) {
        if let Some(size) = self.buffers.remove(&offset) {
            self.handle.discard(offset, size);
        }
    }

    /// Finds a place for a request's data, and copies it there unless the operation only fills it;
    /// `None` while there is none.
    ///
    /// # Panics
    /// If the data is longer than a place: the caller checked it.
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

    /// Copies what a read brought to the data that the request came with.
    pub fn copy_back(&self, place: u32, data: &mut IoSlice) {
        let offset = place as usize * self.stride;
        copy_from_region(&self.handle, offset, data, 0, data.len());
    }

    /// Gives a place back.
    pub fn free(&mut self, place: u32) {
        self.places.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_spread_over_the_sets_of_a_cache() {
        // The index of a set has up to six bits above those of a page.
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
        // The gap is used again, and has nothing of what was there.
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
