//! Memory that the kernel may read or write while an operation is in flight.
//!
//! Two kinds, both owned by the operation that uses them, so that no operation can outlive its
//! memory: a [`Buffer`] belongs to one owner and goes back to its core's [`BufferPool`] when it is
//! dropped; a [`Region`] is a device's own memory, shared by every core that serves the device.
//! [`IoSlice`] names a range of either. This is one of the rooms where `unsafe` is allowed.

mod pool;
mod region;

pub use pool::{Buffer, BufferClass, BufferPool};
pub use region::{Region, RegionError, RegionHandle};

/// A range of memory that takes part in an operation, with its owner.
#[derive(Debug)]
pub struct IoSlice {
    memory: Memory,
    offset: usize,
    len: usize,
}

/// Who owns the memory of an [`IoSlice`].
#[derive(Debug)]
pub enum Memory {
    /// A buffer of this core's pool, owned by the slice.
    Buffer(Buffer),
    /// A device's memory, kept alive by the slice.
    Region(RegionHandle),
}

impl IoSlice {
    /// The first `len` bytes of `buffer`.
    ///
    /// # Panics
    /// If the buffer is shorter than that.
    #[must_use]
    pub fn from_buffer(buffer: Buffer, len: usize) -> Self {
        Self::new(Memory::Buffer(buffer), 0, len)
    }

    /// `len` bytes of `memory` from `offset` on.
    ///
    /// # Panics
    /// If the range does not lie within the memory: the caller checked it against the geometry.
    #[must_use]
    pub fn new(memory: Memory, offset: usize, len: usize) -> Self {
        let size = match &memory {
            Memory::Buffer(buffer) => buffer.len(),
            Memory::Region(region) => region.len(),
        };
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= size),
            "range {offset}+{len} lies outside of {size} bytes of memory"
        );
        Self {
            memory,
            offset,
            len,
        }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the range is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives the memory back.
    #[must_use]
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// Copies `bytes` into the range from `at` on.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn copy_in(&mut self, at: usize, bytes: &[u8]) {
        assert!(
            at.checked_add(bytes.len())
                .is_some_and(|end| end <= self.len)
        );
        match &mut self.memory {
            Memory::Buffer(buffer) => {
                buffer[self.offset + at..][..bytes.len()].copy_from_slice(bytes);
            }
            Memory::Region(region) => region.copy_in(self.offset + at, bytes),
        }
    }

    /// Drops the first `bytes` bytes of the range: what was received or written already.
    ///
    /// # Panics
    /// If the range is shorter than that.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.len);
        self.offset += bytes;
        self.len -= bytes;
    }

    /// Copies `out.len()` bytes of the range from `at` on.
    ///
    /// # Panics
    /// If the range is shorter than that.
    pub fn copy_out(&self, at: usize, out: &mut [u8]) {
        assert!(at.checked_add(out.len()).is_some_and(|end| end <= self.len));
        match &self.memory {
            Memory::Buffer(buffer) => {
                out.copy_from_slice(&buffer[self.offset + at..][..out.len()]);
            }
            Memory::Region(region) => region.copy_out(self.offset + at, out),
        }
    }

    /// The bytes of the range, where one owner has them; `None` for a device's shared memory.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.memory {
            Memory::Buffer(buffer) => Some(&buffer[self.offset..self.offset + self.len]),
            Memory::Region(_) => None,
        }
    }

    /// The bytes of the range, to change; `None` for a device's shared memory.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.memory {
            Memory::Buffer(buffer) => Some(&mut buffer[self.offset..self.offset + self.len]),
            Memory::Region(_) => None,
        }
    }

    /// Appends the range's bytes to `out`: for drivers without a kernel, and for tests.
    pub fn append_to(&self, from: usize, out: &mut Vec<u8>) {
        match &self.memory {
            Memory::Buffer(buffer) => {
                out.extend_from_slice(&buffer[self.offset..self.offset + self.len][from..]);
            }
            Memory::Region(region) => {
                let start = out.len();
                out.resize(start + self.len - from, 0);
                region.copy_out(self.offset + from, &mut out[start..]);
            }
        }
    }

    /// Address of the first byte, for the kernel's scatter lists.
    pub(crate) fn address(&self) -> *mut u8 {
        let start = match &self.memory {
            Memory::Buffer(buffer) => buffer.address(),
            Memory::Region(region) => region.address(),
        };
        start.wrapping_add(self.offset)
    }
}
