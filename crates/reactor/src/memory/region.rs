//! A device's own memory, mapped once and shared by every core that serves the device.
#![allow(unsafe_code)] // The memory is written by several cores and by the kernel at once.

use crate::memory::pool::{Mapping, PAGE_BYTES};
use std::rc::Rc;
use std::sync::Arc;

/// From this size on a region is taken to be larger than the caches: what is written to it is not
/// soon read again, and would only push out what is (the receive buffers first of all).
const STREAMED_REGION_BYTES: usize = 64 << 20;

/// Why a [`Region`] could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The kernel refused the mapping.
    #[error("cannot map {bytes} bytes of memory: {source}; ask for less, or free some")]
    Map {
        /// How much was asked for.
        bytes: usize,
        /// The kernel's reason.
        source: std::io::Error,
    },
}

/// Zeroed memory that lives as long as anybody holds a handle; pages are taken when first touched.
///
/// Like the memory of a real device, it makes no promise about concurrent accesses to the same
/// bytes: a reader may see a mix of two writes, at the granularity that the processor copies with.
/// Nothing but bytes is ever stored here, so no such mix is invalid.
#[derive(Clone, Debug)]
pub struct Region {
    mapping: Arc<Mapping>,
}

impl Region {
    /// Maps `bytes` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// [`RegionError::Map`] when the kernel has not that much address space for us.
    pub fn new(bytes: usize) -> Result<Self, RegionError> {
        let size = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let mapping = Mapping::new(size).map_err(|source| RegionError::Map { bytes, source })?;
        Ok(Self {
            mapping: Arc::new(mapping),
        })
    }

    /// A handle for the calling core, which is cheap to copy there.
    #[must_use]
    pub fn handle(&self) -> RegionHandle {
        RegionHandle {
            region: Rc::new(self.clone()),
        }
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Never: a region has at least a page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// One core's handle on a [`Region`]. Cloning it touches no memory that another core uses.
#[derive(Clone, Debug)]
pub struct RegionHandle {
    region: Rc<Region>,
}

impl RegionHandle {
    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Never: a region has at least a page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Whether this is a handle on `region`.
    #[must_use]
    pub fn is_of(&self, region: &Region) -> bool {
        Arc::ptr_eq(&self.region.mapping, &region.mapping)
    }

    /// Copies `bytes` into the region at `offset`.
    ///
    /// This thread sees them at once; whoever hears of the write by a send or a message of this
    /// core, or after the turn of its loop, sees them then.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let to = self.checked(offset, bytes.len());
        let streams = self.len() >= STREAMED_REGION_BYTES && bytes.len() >= PAGE_BYTES;
        // `checked` proved that the destination lies within the mapping, and a slice of Rust memory
        // never overlaps with it. Other cores may access the same bytes: only plain bytes live
        // here, and the type documents that they may mix, as on a real device.
        if streams {
            // SAFETY: as said above.
            unsafe { stream(bytes, to) }
        } else {
            // SAFETY: as said above.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
        }
    }

    /// Copies `out.len()` bytes at `offset` out of the region.
    ///
    /// # Panics
    /// If the range does not lie within the region.
    pub fn copy_out(&self, offset: usize, out: &mut [u8]) {
        let from = self.checked(offset, out.len());
        // SAFETY: `checked` proved that the source lies within the mapping, and a slice of Rust
        // memory never overlaps with it; as to other cores, see `copy_in`.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    /// Writes `len` zero bytes at `offset`.
    ///
    /// # Panics
    /// If the range does not lie within the region.
    pub fn zero(&self, offset: usize, len: usize) {
        let to = self.checked(offset, len);
        // SAFETY: `checked` proved that the range lies within the mapping; as to other cores, see
        // `copy_in`.
        unsafe { std::ptr::write_bytes(to, 0, len) }
    }

    /// Makes `len` bytes at `offset` read as zeroes, and gives the whole pages among them back to
    /// the machine; they are taken anew when next written.
    ///
    /// # Panics
    /// If the range does not lie within the region.
    pub fn discard(&self, offset: usize, len: usize) {
        let start = self.checked(offset, len).wrapping_sub(offset);
        let first = offset.next_multiple_of(PAGE_BYTES).min(offset + len);
        let last = ((offset + len) / PAGE_BYTES * PAGE_BYTES).max(first);
        self.zero(offset, first - offset);
        self.zero(last, offset + len - last);
        if first == last {
            return;
        }
        let (pages, advice) = (
            start.wrapping_add(first).cast(),
            rustix::mm::Advice::LinuxDontNeed,
        );
        // SAFETY: the pages lie within our own anonymous mapping, which stays mapped and reads as
        // zeroes; only plain bytes live here, and nobody holds a reference to them.
        if unsafe { rustix::mm::madvise(pages, last - first, advice) }.is_err() {
            // Locked memory cannot be given back.
            self.zero(first, last - first);
        }
    }

    /// Whether the bytes at `offset` equal `bytes`.
    ///
    /// # Panics
    /// If the range does not lie within the region.
    #[must_use]
    pub fn equals(&self, offset: usize, bytes: &[u8]) -> bool {
        let mut chunk = [0u8; 512];
        bytes.chunks(chunk.len()).enumerate().all(|(i, expected)| {
            let at = offset + i * 512;
            let found = &mut chunk[..expected.len()];
            self.copy_out(at, found);
            found == expected
        })
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.region.mapping.address()
    }

    fn checked(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len()),
            "range {offset}+{len} lies outside of a region of {} bytes",
            self.len()
        );
        self.address().wrapping_add(offset)
    }
}

/// Makes what this thread has written to regions visible to whoever learns of it from now on.
///
/// Large writes go past the caches, and the processor orders such stores with nothing but a fence.
/// A fence after each write would wait for memory each time; instead a core fences where news
/// leaves it: before a send, before a message to another core (whoever passes news by other means
/// calls this first), and at the end of a turn.
pub fn publish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the fence, and it touches no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Copies past the caches: spares reading the lines that are about to be overwritten, half of the
/// cost of a 4 KiB write, and leaves the cache to the receive buffers. [`publish`] orders it.
///
/// # Safety
/// `to` must be valid for writes of `bytes.len()` bytes and must not overlap with `bytes`.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(bytes: &[u8], to: *mut u8) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
    /// What one store writes, and the alignment that it demands.
    const LINE: usize = 16;
    let head = to.align_offset(LINE).min(bytes.len());
    let (first, rest) = bytes.split_at(head);
    // SAFETY: the head is a part of the range that the caller vouches for.
    unsafe { std::ptr::copy_nonoverlapping(first.as_ptr(), to, head) };
    let mut at = head;
    let mut lines = rest.chunks_exact(LINE);
    for line in &mut lines {
        // SAFETY: `line` has 16 bytes, and the load demands no alignment.
        let value = unsafe { _mm_loadu_si128(line.as_ptr().cast()) };
        // SAFETY: the destination has room for 16 bytes more, and is aligned to 16: it began so,
        // and moves in steps of 16.
        unsafe { _mm_stream_si128(to.wrapping_add(at).cast(), value) };
        at += LINE;
    }
    let last = lines.remainder();
    // SAFETY: the remainder is the end of the range that the caller vouches for.
    unsafe { std::ptr::copy_nonoverlapping(last.as_ptr(), to.wrapping_add(at), last.len()) };
}

/// Elsewhere the ordinary copy does.
///
/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(bytes: &[u8], to: *mut u8) {
    // SAFETY: the caller vouches for the range.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_writes_to_large_regions_arrive_whole_wherever_they_begin() {
        let region = Region::new(STREAMED_REGION_BYTES)
            .expect("address space")
            .handle();
        let bytes: Vec<u8> = (0..=250).cycle().take(3 * PAGE_BYTES).collect();
        for (offset, len) in [
            (0, 4096),
            (1, 4096),
            (15, 4097),
            (4_099, 12_287),
            (16, 4_111),
        ] {
            region.zero(0, 5 * PAGE_BYTES);
            region.copy_in(offset, &bytes[..len]);
            publish();
            assert!(region.equals(offset, &bytes[..len]), "{len} at {offset}");
            assert!(region.equals(offset + len, &[0; 64]), "{len} at {offset}");
            assert!(region.equals(0, &vec![0; offset]), "{len} at {offset}");
        }
    }

    #[test]
    fn bytes_written_are_read_and_fresh_memory_is_zero() {
        let region = Region::new(10_000).expect("a small mapping").handle();
        assert_eq!(region.len(), 12_288);
        region.copy_in(4_090, b"across a page");
        assert!(region.equals(4_090, b"across a page"));
        assert!(!region.equals(4_090, b"across a pagf"));
        region.zero(4_092, 4);
        let mut out = [1u8; 8];
        region.copy_out(4_088, &mut out);
        assert_eq!(&out, b"\0\0ac\0\0\0\0");
    }

    #[test]
    fn discarded_bytes_read_as_zeroes_and_their_neighbours_stay() {
        let region = Region::new(5 * 4_096).expect("a small mapping").handle();
        for (offset, len) in [
            (100, 50),
            (4_000, 200),
            (4_096, 8_192),
            (10, 16_000),
            (7, 0),
        ] {
            let mut expected = vec![0xA5u8; region.len()];
            region.copy_in(0, &expected);
            region.discard(offset, len);
            expected[offset..offset + len].fill(0);
            assert!(region.equals(0, &expected), "{len} bytes at {offset}");
        }
    }

    #[test]
    #[should_panic(expected = "lies outside")]
    fn a_range_beyond_the_end_is_refused() {
        let region = Region::new(4_096).expect("a small mapping").handle();
        region.copy_in(4_095, b"ab");
    }
}
