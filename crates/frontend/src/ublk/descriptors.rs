//! The descriptors of a queue's requests, which the kernel writes into shared memory.
#![allow(unsafe_code)] // A mapping that the kernel writes to.

use super::abi::{DESCRIPTOR_BYTES, DESCRIPTORS_STRIDE};
use super::queue::Descriptions;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::ptr::NonNull;

/// The descriptors of one queue, once they are mapped.
#[derive(Debug)]
pub(super) struct Descriptors {
    queue: u16,
    depth: u16,
    mapped: Option<Mapped>,
}

impl Descriptors {
    /// Names the descriptors of a queue with `depth` tags.
    pub(super) const fn new(queue: u16, depth: u16) -> Self {
        Self {
            queue,
            depth,
            mapped: None,
        }
    }
}

impl Descriptions for Descriptors {
    fn map(&mut self, device: &File) -> io::Result<()> {
        self.mapped = Some(Mapped::new(device, self.queue, self.depth)?);
        Ok(())
    }

    fn read(&self, tag: u16) -> [u8; DESCRIPTOR_BYTES] {
        let mapped = self.mapped.as_ref();
        mapped
            .expect("they are mapped before requests arrive")
            .read(tag)
    }
}

/// The mapping of a queue's descriptors, indexed by tag.
#[derive(Debug)]
struct Mapped {
    start: NonNull<[u8; DESCRIPTOR_BYTES]>,
    /// Number of tags.
    depth: u16,
    mapped_bytes: usize,
}

impl Mapped {
    /// Maps the descriptors of a queue with `depth` tags of a device, `/dev/ublkcN`.
    fn new(device: &File, queue: u16, depth: u16) -> io::Result<Self> {
        let bytes = usize::from(depth) * DESCRIPTOR_BYTES;
        let mapped_bytes = bytes.next_multiple_of(rustix::param::page_size());
        let offset = u64::from(queue) * DESCRIPTORS_STRIDE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses the place of a new mapping, which overlaps with no other.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ,
                flags,
                device,
                offset,
            )
        }?;
        Ok(Self {
            start: NonNull::new(start.cast()).expect("a mapping is not at 0"),
            depth,
            mapped_bytes,
        })
    }

    fn read(&self, tag: u16) -> [u8; DESCRIPTOR_BYTES] {
        assert!(tag < self.depth, "the queue has {} tags", self.depth);
        // SAFETY: the mapping has room for `depth` descriptions.
        let at = unsafe { self.start.add(tag.into()) };
        // SAFETY: the mapping is readable while `self` is there; bytes of any value are valid.
        unsafe { at.read_volatile() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and nothing points into it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.mapped_bytes) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}
