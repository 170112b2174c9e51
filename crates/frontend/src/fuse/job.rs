//! Requests of the kernel on their way through the dataplane thread.

use super::gate::Permit;
use crate::device_io::KnownLosses;
use block::{BlockError, Geometry, Operation};
use fuser::{ReplyData, ReplyEmpty, ReplyWrite};
use reactor::IoSlice;
use rustix::io::Errno;
use switch::Class;

/// A message to the dataplane thread.
#[derive(Debug)]
pub(super) enum Message {
    /// Carry a request out.
    Job(Job),
    /// End; what is under way is aborted.
    End,
}

/// A request with the kernel's reply object.
#[derive(Debug)]
pub(super) struct Job {
    /// Index of the file.
    pub(super) file: usize,
    pub(super) class: Class,
    pub(super) range: Range,
    pub(super) work: Work,
    /// The place among the requests under way, with the data of a write.
    pub(super) permit: Permit,
}

/// The work of a request.
#[derive(Debug)]
pub(super) enum Work {
    Read(ReplyData),
    Write {
        /// Answered when it is on stable storage.
        durable: bool,
        reply: ReplyWrite,
    },
    Flush {
        client: KnownLosses,
        reply: ReplyEmpty,
    },
    /// Write Zeroes.
    Plain {
        operation: Operation,
        reply: ReplyEmpty,
    },
}

/// A range of bytes within the whole blocks that contain it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    /// First byte of the first block.
    pub(super) start: u64,
    /// Bytes of the blocks.
    pub(super) span: u64,
    /// Bytes of the first block before the range.
    pub(super) skip: usize,
    /// Bytes of the range.
    pub(super) len: usize,
}

impl Range {
    /// The range of at most `len` bytes from `offset` on, as far as it is on the device; `None`
    /// where nothing of it is.
    pub(super) fn clamped(offset: u64, len: usize, geometry: Geometry) -> Option<Self> {
        let left = geometry.bytes().checked_sub(offset)?;
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(len);
        if len == 0 {
            return None;
        }
        let block = u64::from(geometry.block_bytes);
        let start = offset - offset % block;
        let end = (offset + len as u64).next_multiple_of(block);
        Some(Self {
            start,
            span: end - start,
            skip: usize::try_from(offset - start).expect("less than a block"),
            len,
        })
    }

    /// Returns true if the range consists of whole blocks.
    pub(super) const fn is_whole(&self) -> bool {
        self.skip == 0 && self.len as u64 == self.span
    }

    /// Bytes of the blocks, as a length in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        usize::try_from(self.span).expect("a request's data is bounded")
    }
}

impl Job {
    /// Returns the operation with which the request begins: a write of part of a block reads first.
    pub(super) const fn operation(&self) -> Operation {
        match &self.work {
            Work::Read(_) => Operation::Read,
            Work::Write { durable, .. } if self.range.is_whole() => {
                Operation::Write { durable: *durable }
            }
            Work::Write { .. } => Operation::Read,
            Work::Flush { .. } => Operation::Flush,
            Work::Plain { operation, .. } => *operation,
        }
    }

    /// Returns true if the request changes blocks, and so takes part in the order of writes.
    pub(super) const fn is_write(&self) -> bool {
        match &self.work {
            Work::Read(_) | Work::Flush { .. } => false,
            Work::Write { .. } => true,
            Work::Plain { operation, .. } => operation.is_write(),
        }
    }

    /// Puts the data of a write into the memory of its blocks.
    pub(super) fn fill(&self, memory: &mut [IoSlice]) {
        let (mut at, mut data) = (self.range.skip, self.permit.data());
        for slice in memory {
            if at >= slice.len() {
                at -= slice.len();
                continue;
            }
            let here = data.len().min(slice.len() - at);
            slice.copy_in(at, &data[..here]);
            data = &data[here..];
            at = 0;
        }
    }

    /// Answers the kernel with the result; `memory` is that of the blocks, `scratch` room to make
    /// one piece of several.
    pub(super) fn answer(
        self,
        result: Result<(), BlockError>,
        memory: &[IoSlice],
        scratch: &mut Vec<u8>,
    ) {
        if let Err(error) = result {
            self.fail(crate::errno::errno_of(error));
            return;
        }
        match self.work {
            Work::Read(reply) => {
                let wanted = self.range.skip..self.range.skip + self.range.len;
                if let [slice] = memory
                    && let Some(bytes) = slice.bytes()
                {
                    reply.data(&bytes[wanted]);
                    return;
                }
                scratch.clear();
                for slice in memory {
                    slice.append_to(0, scratch);
                }
                reply.data(&scratch[wanted]);
            }
            Work::Write { reply, .. } => {
                reply.written(u32::try_from(self.range.len).expect("a write is bounded"));
            }
            Work::Flush { reply, .. } | Work::Plain { reply, .. } => reply.ok(),
        }
    }

    /// Answers the kernel with an error.
    pub(super) fn fail(self, errno: Errno) {
        let errno = fuser::Errno::from_i32(errno.raw_os_error());
        match self.work {
            Work::Read(reply) => reply.error(errno),
            Work::Write { reply, .. } => reply.error(errno),
            Work::Flush { reply, .. } | Work::Plain { reply, .. } => reply.error(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_off_at_the_end_and_extended_to_blocks() {
        let geometry = Geometry {
            block_bytes: 512,
            blocks: 9,
        };
        let of = |offset, len| {
            let range = Range::clamped(offset, len, geometry)?;
            Some((range.start, range.span, range.skip, range.len))
        };
        assert_eq!(of(0, 512), Some((0, 512, 0, 512)));
        assert_eq!(of(511, 2), Some((0, 1024, 511, 2)));
        assert_eq!(of(4096, 4096), Some((4096, 512, 0, 512)));
        assert_eq!(of(4607, 4096), Some((4096, 512, 511, 1)));
        assert_eq!(of(4608, 1), None);
        assert_eq!(of(u64::MAX, 1), None);
        assert_eq!(of(0, 0), None);
    }
}
