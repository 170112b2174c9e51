//! Memory from which payloads are sent and into which they are received.
//!
//! One call of `madvise` needs `unsafe`: a RAM device has its memory in huge pages, and without
//! them the limit would include address translation that the measured system does not need.
#![allow(unsafe_code)]

use base::Prng;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Resident memory, aligned to a huge page, and in huge pages if the kernel has them.
#[derive(Debug)]
pub struct Region {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Region {
    /// A region of `len` bytes with non-uniform content.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let mut bytes = vec![0; len + HUGE_PAGE_BYTES];
        let start = bytes
            .as_ptr()
            .align_offset(HUGE_PAGE_BYTES)
            .min(HUGE_PAGE_BYTES);
        let advised = len
            .next_multiple_of(HUGE_PAGE_BYTES)
            .min(bytes.len() - start);
        let at = bytes[start..start + advised].as_mut_ptr();
        // SAFETY: the range lies within `bytes`, and the advice changes which pages back it, not
        // what it holds. A kernel that refuses leaves ordinary pages, which are right as well.
        let _ =
            unsafe { rustix::mm::madvise(at.cast(), advised, rustix::mm::Advice::LinuxHugepage) };
        let mut region = Self { bytes, start, len };
        let mut random = Prng::from_seed(1);
        for page in region.bytes_mut().chunks_mut(4096) {
            page.fill(random.next_u64().to_le_bytes()[0]);
        }
        region
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
