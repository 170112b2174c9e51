//! Memory that the kernel may read or write while an operation is in flight.
//!
//! Two kinds, both owned by the operation that uses them, so that no operation can outlive its
//! memory. A [`Buffer`] has one owner and returns to its core's [`BufferPool`] when dropped. A
//! [`Region`] is a device's own memory, shared by every core that serves the device. An [`IoSlice`]
//! is a range of either. `unsafe` is allowed in this module.

mod pool;
mod prefetch;
mod region;
mod shared;

pub use pool::{Buffer, BufferClass, BufferPool};
pub use prefetch::prefetch;
pub use region::{Region, RegionError, RegionHandle, UnorderedStores};
pub use shared::SharedBuffer;

/// A range of memory used by an operation, with its owner.
#[derive(Debug)]
pub struct IoSlice {
    memory: Memory,
    offset: usize,
    len: usize,
}

/// The owner of the memory of an [`IoSlice`].
#[derive(Debug)]
pub enum Memory {
    /// A buffer of this core's pool, owned by the slice.
    Buffer(Buffer),
    /// A buffer of this core's pool with several owners, all read-only.
    Shared(SharedBuffer),
    /// A device's memory, kept alive by the slice.
    Region(RegionHandle),
}

impl IoSlice {
    /// Creates a slice of the first `len` bytes of `buffer`.
    ///
    /// # Panics If the buffer is shorter.
    #[must_use]
    pub fn from_buffer(buffer: Buffer, len: usize) -> Self {
        Self::new(Memory::Buffer(buffer), 0, len)
    }

    /// Creates a slice of `len` bytes of `memory` at `offset`.
    ///
    /// # Panics If the range is not within the memory: the caller has checked it against the
    /// geometry.
    #[must_use]
    pub fn new(memory: Memory, offset: usize, len: usize) -> Self {
        let size = match &memory {
            Memory::Buffer(buffer) => buffer.len(),
            Memory::Shared(shared) => shared.bytes().len(),
            Memory::Region(region) => region.len(),
        };
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= size),
            "range {offset}+{len} exceeds {size} bytes of memory"
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

    /// Returns true if the range is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the start of the range in its memory, in bytes.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the same range as shared memory, which [`duplicate`](Self::duplicate) can copy. Its
    /// bytes cannot change until it is [exclusive](Self::into_exclusive) again. A device's memory
    /// is always shared and stays as it is.
    #[must_use]
    pub fn into_shared(self) -> Self {
        let memory = match self.memory {
            Memory::Buffer(buffer) => Memory::Shared(SharedBuffer::new(buffer)),
            other => other,
        };
        Self { memory, ..self }
    }

    /// Returns the same range with a single owner; a device's memory stays as it is.
    ///
    /// # Errors The slice itself, while another slice shares its buffer.
    pub fn into_exclusive(self) -> Result<Self, Self> {
        let Self {
            memory,
            offset,
            len,
        } = self;
        let (memory, alone) = match memory {
            Memory::Shared(shared) => match shared.into_buffer() {
                Ok(buffer) => (Memory::Buffer(buffer), true),
                Err(shared) => (Memory::Shared(shared), false),
            },
            other => (other, true),
        };
        let slice = Self {
            memory,
            offset,
            len,
        };
        if alone { Ok(slice) } else { Err(slice) }
    }

    /// Creates another slice of `len` bytes at `at` if the memory is shared; `None` if this slice
    /// is its buffer's only owner.
    ///
    /// # Panics If the range is shorter.
    #[must_use]
    pub fn duplicate(&self, at: usize, len: usize) -> Option<Self> {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len));
        let memory = match &self.memory {
            Memory::Buffer(_) => return None,
            Memory::Shared(shared) => Memory::Shared(shared.share()),
            Memory::Region(region) => Memory::Region(region.clone()),
        };
        Some(Self {
            memory,
            offset: self.offset + at,
            len,
        })
    }

    /// Returns the owner of the memory.
    pub(crate) const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the memory.
    #[must_use]
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// Copies `bytes` into the range at `at`.
    ///
    /// # Panics If they do not fit, or while the buffer is shared.
    pub fn copy_in(&mut self, at: usize, bytes: &[u8]) {
        assert!(
            at.checked_add(bytes.len())
                .is_some_and(|end| end <= self.len)
        );
        match &mut self.memory {
            Memory::Buffer(buffer) => {
                buffer[self.offset + at..][..bytes.len()].copy_from_slice(bytes);
            }
            Memory::Shared(_) => panic!("a shared buffer is only read"),
            Memory::Region(region) => region.copy_in(self.offset + at, bytes),
        }
    }

    /// Drops the first `bytes` bytes of the range, which have been transferred.
    ///
    /// # Panics If the range is shorter.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.len);
        self.offset += bytes;
        self.len -= bytes;
    }

    /// Copies `out.len()` bytes out of the range at `at`.
    ///
    /// # Panics If the range is shorter.
    pub fn copy_out(&self, at: usize, out: &mut [u8]) {
        assert!(at.checked_add(out.len()).is_some_and(|end| end <= self.len));
        match &self.memory {
            Memory::Buffer(buffer) => {
                out.copy_from_slice(&buffer[self.offset + at..][..out.len()]);
            }
            Memory::Shared(shared) => {
                out.copy_from_slice(&shared.bytes()[self.offset + at..][..out.len()]);
            }
            Memory::Region(region) => region.copy_out(self.offset + at, out),
        }
    }

    /// Returns the bytes of the range if they cannot change meanwhile; `None` for a device's
    /// memory.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.memory {
            Memory::Buffer(buffer) => Some(&buffer[self.offset..self.offset + self.len]),
            Memory::Shared(shared) => Some(&shared.bytes()[self.offset..self.offset + self.len]),
            Memory::Region(_) => None,
        }
    }

    /// Returns the bytes of the range, mutable; `None` for a device's memory and a shared buffer.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.memory {
            Memory::Buffer(buffer) => Some(&mut buffer[self.offset..self.offset + self.len]),
            Memory::Shared(_) | Memory::Region(_) => None,
        }
    }

    /// Appends the range's bytes from `from` to `out`: for drivers without a kernel, and for tests.
    pub fn append_to(&self, from: usize, out: &mut Vec<u8>) {
        match &self.memory {
            Memory::Buffer(buffer) => {
                out.extend_from_slice(&buffer[self.offset..self.offset + self.len][from..]);
            }
            Memory::Shared(shared) => {
                out.extend_from_slice(&shared.bytes()[self.offset..self.offset + self.len][from..]);
            }
            Memory::Region(region) => {
                let start = out.len();
                out.resize(start + self.len - from, 0);
                region.copy_out(self.offset + from, &mut out[start..]);
            }
        }
    }

    /// Returns true if the range lies in `region`.
    #[must_use]
    pub fn is_region_of(&self, region: &Region) -> bool {
        matches!(&self.memory, Memory::Region(handle) if handle.is_of(region))
    }

    /// Returns true if the kernel may write into the range: not while it has several owners, which
    /// may read it.
    pub(crate) fn is_writable(&self) -> bool {
        !matches!(self.memory, Memory::Shared(_))
    }

    /// Returns the address of the first byte: for the kernel's scatter lists, and for programs in
    /// other languages that borrow the memory. The slice's owner decides which accesses are
    /// allowed, and when.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        let start = match &self.memory {
            Memory::Buffer(buffer) => buffer.address(),
            Memory::Shared(shared) => shared.address(),
            Memory::Region(region) => region.address(),
        };
        start.wrapping_add(self.offset)
    }
}
