//! Requests from the kernel while the dataplane thread handles them.

use super::abi::Answer;
use super::session::Session;
use crate::KnownLosses;
use block::{BlockError, Geometry, Operation};
use reactor::IoSlice;
use std::cell::Cell;
use std::rc::Rc;
use switch::Class;

/// Outstanding requests of a mount.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    pub(super) requests: Cell<usize>,
    /// Bytes of write data held for them.
    pub(super) bytes: Cell<usize>,
}

/// The slot of an outstanding request, with the data held for it. Dropping it frees both.
#[derive(Debug)]
pub(super) struct JobPlace {
    under_way: Rc<UnderWay>,
    data: Vec<u8>,
}

impl JobPlace {
    pub(super) fn new(under_way: Rc<UnderWay>) -> Self {
        under_way.requests.set(under_way.requests.get() + 1);
        Self {
            under_way,
            data: Vec::new(),
        }
    }

    /// Copies the data of a write that cannot begin yet or changes part of a block.
    fn hold(&mut self, data: &[u8]) {
        let bytes = &self.under_way.bytes;
        bytes.set(bytes.get() + data.len());
        self.data.extend_from_slice(data);
    }

    /// Frees the data.
    fn release(&mut self) {
        let bytes = &self.under_way.bytes;
        bytes.set(bytes.get() - self.data.len());
        self.data = Vec::new();
    }
}

impl Drop for JobPlace {
    fn drop(&mut self) {
        self.release();
        let requests = &self.under_way.requests;
        requests.set(requests.get() - 1);
    }
}

/// Identifier of a request of the front end itself, which no request of the kernel has.
pub(super) const OWN: u64 = 0;

/// A request for a device.
#[derive(Debug)]
pub(super) struct Job {
    /// The kernel's identifier of the request, or [`OWN`].
    pub(super) unique: u64,
    /// Identifier of the submitting thread; 0 for kernel threads.
    pub(super) thread: u32,
    /// Index of the file.
    pub(super) file: usize,
    pub(super) class: Class,
    pub(super) range: Range,
    pub(super) work: Work,
    pub(super) place: JobPlace,
}

/// Work on a range of blocks.
pub(super) type RangeWork = (Work, Range);

/// The work of a request.
#[derive(Debug)]
pub(super) enum Work {
    Read,
    Write {
        /// The reply waits until the data is on stable storage.
        durable: bool,
    },
    Flush(KnownLosses),
    /// Write zeroes to part of a block; then the work on later blocks.
    ZeroPart(Option<Box<RangeWork>>),
    /// Write Zeroes on whole blocks; then the work on later blocks.
    Plain(Operation, Option<Box<RangeWork>>),
}

impl Work {
    /// Returns the work after this one.
    fn then(&self) -> Option<&RangeWork> {
        match self {
            Self::ZeroPart(then) | Self::Plain(_, then) => then.as_deref(),
            Self::Read | Self::Write { .. } | Self::Flush(_) => None,
        }
    }
}

/// A range of bytes within the whole blocks that contain it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    /// First byte of the first block.
    pub(super) start: u64,
    /// Bytes of the blocks.
    pub(super) span: u64,
    /// Bytes before the range in the first block.
    pub(super) skip: usize,
    /// Bytes of the range.
    pub(super) len: usize,
}

impl Range {
    /// Returns the range of at most `len` bytes from `offset`, cut at the end of the device; `None`
    /// if it begins beyond it.
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
    /// Returns the operation that the request begins with: a write of part of a block begins with a
    /// read.
    pub(super) const fn operation(&self) -> Operation {
        match &self.work {
            Work::Read => Operation::Read,
            Work::Write { durable } if self.range.is_whole() => {
                Operation::Write { durable: *durable }
            }
            Work::Write { .. } | Work::ZeroPart(_) => Operation::Read,
            Work::Flush(_) => Operation::Flush,
            Work::Plain(operation, _) => *operation,
        }
    }

    /// Returns true if the request changes blocks, and is therefore ordered with other writes.
    pub(super) const fn is_write(&self) -> bool {
        match &self.work {
            Work::Read | Work::Flush(_) => false,
            Work::Write { .. } | Work::ZeroPart(_) => true,
            Work::Plain(operation, _) => operation.is_write(),
        }
    }

    /// Returns the work after the current step, in order.
    fn steps(&self) -> impl Iterator<Item = &RangeWork> {
        std::iter::successors(self.work.then(), |(work, _)| work.then())
    }

    /// Returns the bytes of all blocks that a write touches.
    pub(super) fn blocks(&self) -> std::ops::Range<u64> {
        let last = self.steps().last().map_or(self.range, |&(_, last)| last);
        self.range.start..last.start + last.span
    }

    /// Returns true if a write changes part of a block, which must be read first.
    pub(super) fn changes_parts(&self) -> bool {
        let mut steps = self.steps();
        let part = |(work, _): &RangeWork| matches!(work, Work::ZeroPart(_));
        self.operation() == Operation::Read || steps.any(part)
    }

    /// Continues with the next step; returns false if there is none.
    pub(super) fn next_step(&mut self) -> bool {
        let (Work::ZeroPart(then) | Work::Plain(_, then)) = &mut self.work else {
            return false;
        };
        let next = then.take();
        next.map(|next| (self.work, self.range) = *next).is_some()
    }

    /// Copies the data of a write that cannot begin yet or changes part of a block.
    pub(super) fn hold(&mut self, data: &[u8]) {
        self.place.hold(data);
    }

    /// Copies the data of a write into the memory of its blocks: `data`, or else the held data,
    /// which is freed.
    pub(super) fn fill(&mut self, data: Option<&[u8]>, memory: &mut [IoSlice]) {
        let mut data = data.unwrap_or(&self.place.data);
        let mut at = self.range.skip;
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
        self.place.release();
    }

    /// Replies to the kernel with the result; `memory` holds the blocks' data, `scratch` is a
    /// buffer to join several pieces.
    pub(super) fn answer(
        &self,
        result: Result<(), BlockError>,
        memory: &[IoSlice],
        scratch: &mut Vec<u8>,
        session: &mut Session,
    ) {
        if let Err(error) = result {
            session.refuse(self.unique, crate::errno::errno_of(error));
            return;
        }
        match self.work {
            Work::Read => self.answer_read(memory, scratch, session),
            Work::Write { .. } => {
                let written = u32::try_from(self.range.len).expect("a write is bounded");
                self.send(Answer::written(written).bytes(), session);
            }
            Work::Flush(_) | Work::ZeroPart(_) | Work::Plain(..) => self.send(&[], session),
        }
    }

    fn answer_read(&self, memory: &[IoSlice], scratch: &mut Vec<u8>, session: &mut Session) {
        let wanted = self.range.skip..self.range.skip + self.range.len;
        if let [slice] = memory
            && let Some(bytes) = slice.bytes()
        {
            self.send(&bytes[wanted], session);
            return;
        }
        scratch.clear();
        for slice in memory {
            slice.append_to(0, scratch);
        }
        self.send(&scratch[wanted], session);
    }

    fn send(&self, bytes: &[u8], session: &mut Session) {
        match self.class {
            Class::Latency => session.answer(self.unique, bytes),
            Class::Throughput => session.gather(self.unique, bytes),
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
