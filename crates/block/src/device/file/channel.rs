//! One core's channel to a file: requests become operations of the driver.
//!
//! A request occupies a slot from `submit` until it is finished. Most requests are one operation on
//! their own memory. Compare, Verify and data that is not aligned for direct I/O go through scratch
//! memory piece by piece; ranges that the file system cannot zero are written from a region of
//! zeroes. Short transfers are continued. Nothing is allocated per request.

use super::errno::{Direction, Unsupported, block_error, unsupported};
use super::sync_queue::SyncQueue;
use super::{FileDevice, FileState, IoMode};
use crate::device::copy::{copy_from_region, copy_to_region, equals_region};
use crate::device::{Capabilities, Channel, DeviceError, Geometry, Submit, check_memory};
use crate::limits::{
    ALLOCATE_PIECE_BYTES, FILE_QUEUE_DEPTH, SCRATCH_BYTES, SCRATCH_COUNT, ZERO_PIECE_BYTES,
};
use crate::request::{BlockError, Completion, Operation, Request};
use base::{Slab, SlabKey};
use reactor::{
    Allocation, Context, FileId, Guard, IoSlice, Memory, Op, OpKey, OpNamespace, OpNamespaceLease,
    Outcome, Region, RegionHandle,
};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Kinds of operations, as encoded in an [`OpKey`].
const KIND_SLOT: u8 = 0;
const KIND_SYNC: u8 = 1;

/// One core's channel to a file.
#[derive(Debug)]
pub(super) struct FileChannel {
    op_namespace: OpNamespaceLease,
    /// `None` once it is closed.
    file: Option<FileId>,
    geometry: Geometry,
    capabilities: Capabilities,
    direct: bool,
    /// Alignment of offsets, lengths and memory, in bytes.
    align: usize,
    shared: Arc<FileState>,
    slots: Slab<Slot>,
    finished: VecDeque<Completion>,
    syncs: SyncQueue,
    scratch: RegionHandle,
    /// Starts of the free scratch ranges, in bytes.
    scratch_free: Vec<usize>,
    zeroes: RegionHandle,
    can_zero: bool,
    can_punch: bool,
    closing: bool,
    gone: bool,
}

/// A request that is not finished.
#[derive(Debug)]
struct Slot {
    tag: u64,
    operation: Operation,
    /// Start of the range in the file, its length, and the bytes done, all in bytes.
    offset: u64,
    len: u64,
    done: u64,
    work: Work,
    /// The request's data, unless the driver has it.
    data: Option<IoSlice>,
    /// Start of the data in its memory, to return the whole slice.
    data_offset: usize,
}

/// How a request is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// On the request's own memory.
    Whole,
    /// Through the scratch range that starts at this byte.
    Scratch(usize),
    /// By the file system.
    Allocate(Allocation),
    /// By writing zeroes.
    Zeroes,
    /// The data is written; only the sync remains.
    Sync,
}

impl FileChannel {
    pub(super) fn new(
        device: &FileDevice,
        op_namespace: OpNamespaceLease,
        file: FileId,
    ) -> Result<Self, DeviceError> {
        let (direct, align) = match device.mode {
            IoMode::Direct { align_bytes } => (true, align_bytes as usize),
            IoMode::Buffered(_) => (false, 1),
        };
        Ok(Self {
            op_namespace,
            file: Some(file),
            geometry: crate::Device::geometry(device),
            capabilities: device.capabilities,
            direct,
            align,
            shared: Arc::clone(&device.shared),
            slots: Slab::with_capacity(FILE_QUEUE_DEPTH),
            finished: VecDeque::with_capacity(FILE_QUEUE_DEPTH),
            syncs: SyncQueue::with_capacity(FILE_QUEUE_DEPTH),
            scratch: Region::new(SCRATCH_COUNT * SCRATCH_BYTES)?.handle(),
            scratch_free: (0..SCRATCH_COUNT).map(|i| i * SCRATCH_BYTES).collect(),
            zeroes: Region::new(ZERO_PIECE_BYTES)?.handle(),
            can_zero: true,
            can_punch: true,
            closing: false,
            gone: false,
        })
    }

    /// Returns the error of an invalid request, or `None`.
    fn refuse(&self, request: &mut Request) -> Option<BlockError> {
        if self.gone {
            return Some(BlockError::Gone);
        }
        if self.closing {
            return Some(BlockError::Aborted);
        }
        if let Err(error) = check_memory(request, self.geometry, self.capabilities) {
            return Some(error);
        }
        (is_durable(request.operation) && self.flush_failed()).then_some(BlockError::WriteFailure)
    }

    fn flush_failed(&self) -> bool {
        self.shared.flush_failed.load(Ordering::Acquire)
    }

    /// Chooses how to execute the request; `None` if no scratch memory is free now.
    fn choose_work(&mut self, request: &Request) -> Option<Work> {
        let aligned = request
            .data
            .as_ref()
            .is_none_or(|data| data.offset() % self.align == 0);
        Some(match request.operation {
            Operation::Read | Operation::Write { .. } if aligned => Work::Whole,
            Operation::Read | Operation::Write { .. } | Operation::Compare | Operation::Verify => {
                Work::Scratch(self.scratch_free.pop()?)
            }
            Operation::Flush => Work::Sync,
            Operation::Deallocate
            | Operation::WriteZeroes {
                deallocate: true, ..
            } if self.can_punch => Work::Allocate(Allocation::PunchHole),
            Operation::WriteZeroes {
                deallocate: false, ..
            } if self.can_zero => Work::Allocate(Allocation::ZeroRange),
            Operation::Deallocate | Operation::WriteZeroes { .. } => Work::Zeroes,
        })
    }

    /// Starts the next operation of the slot's request.
    fn advance(&mut self, key: SlabKey, cx: &mut Context<'_>) {
        let file = self.file.expect("a closed channel has no requests");
        let slot = self.slots.get_mut(key).expect("the caller found the slot");
        let (offset, left) = (slot.offset + slot.done, slot.len - slot.done);
        let durable = self.direct && slot.operation == Operation::Write { durable: true };
        let transfer = |write, slice| {
            if write {
                Op::Write {
                    file,
                    offset,
                    slice,
                    durable,
                }
            } else {
                Op::Read {
                    file,
                    offset,
                    slice,
                }
            }
        };
        let op = match slot.work {
            Work::Sync => {
                self.syncs.push(key);
                return self.start_sync(cx);
            }
            Work::Whole => {
                let slice = slot.data.take().expect("the driver gave the data back");
                transfer(slot.operation != Operation::Read, slice)
            }
            Work::Scratch(at) => {
                let slice = fill_scratch(slot, &self.scratch, at);
                transfer(slot.operation.is_write(), slice)
            }
            Work::Allocate(allocation) => Op::Allocate {
                file,
                allocation,
                offset,
                len: left.min(ALLOCATE_PIECE_BYTES),
            },
            Work::Zeroes => {
                let piece = at_most(left, ZERO_PIECE_BYTES);
                let memory = Memory::Region(self.zeroes.clone());
                transfer(true, IoSlice::new(memory, 0, piece))
            }
        };
        cx.submit(OpKey::new(self.op_namespace.id(), KIND_SLOT, key), op);
    }

    /// Handles the end of an operation of the slot's request.
    fn progress(
        &mut self,
        key: SlabKey,
        result: io::Result<usize>,
        slice: Option<IoSlice>,
        cx: &mut Context<'_>,
    ) {
        let Some(slot) = self.slots.get_mut(key) else {
            debug_assert!(false, "a completion for a request that is not there");
            return;
        };
        if slot.work == Work::Whole {
            slot.data = slice;
        }
        let moved = match (result, slot.work) {
            (Err(error), _) if error.kind() == io::ErrorKind::Interrupted => 0,
            (Err(error), Work::Allocate(allocation)) => match unsupported(&error) {
                None => return self.failed(key, &error),
                Some(unsupported) => {
                    slot.work = Work::Zeroes;
                    let able = match allocation {
                        Allocation::ZeroRange => &mut self.can_zero,
                        Allocation::PunchHole => &mut self.can_punch,
                    };
                    *able &= unsupported == Unsupported::ThisTime;
                    0
                }
            },
            (Err(error), _) => return self.failed(key, &error),
            (Ok(_), Work::Allocate(_)) => (slot.len - slot.done).min(ALLOCATE_PIECE_BYTES),
            (Ok(count), _) => {
                // Direct I/O can only continue at an aligned offset.
                let count = count / self.align * self.align;
                if count == 0 {
                    // Nothing was transferred: the file ends before its recorded size.
                    let error = Direction::of(slot.operation).failure();
                    return self.finish(key, Err(error));
                }
                if let Err(error) = take_piece(slot, &self.scratch, count) {
                    return self.finish(key, Err(error));
                }
                count as u64
            }
        };
        slot.done += moved;
        assert!(slot.done <= slot.len, "no more moves than was asked for");
        if slot.done < slot.len {
            if self.closing && slot.work != Work::Whole {
                return self.finish(key, Err(BlockError::Aborted));
            }
            return self.advance(key, cx);
        }
        // A direct write has put its own data on stable storage.
        let stable = self.direct && slot.operation.has_data();
        if is_durable(slot.operation) && !stable {
            if self.closing {
                return self.finish(key, Err(BlockError::Aborted));
            }
            self.release_scratch(key);
            self.slots.get_mut(key).expect("looked up above").work = Work::Sync;
            return self.advance(key, cx);
        }
        self.finish(key, Ok(()));
    }

    /// Handles an operation of the slot's request that the kernel refused.
    fn failed(&mut self, key: SlabKey, error: &io::Error) {
        let Some(slot) = self.slots.get(key) else {
            return;
        };
        let direction = Direction::of(slot.operation);
        if self.direct && is_durable(slot.operation) && error.raw_os_error() == Some(libc::EIO) {
            // The flush within the write may have failed, and the kernel reports that only once.
            self.shared.flush_failed.store(true, Ordering::Release);
        }
        let mut error = block_error(error, direction);
        if error == BlockError::Gone {
            self.gone = true;
        } else if self.gone {
            error = BlockError::Gone;
        }
        self.finish(key, Err(error));
    }

    /// Starts a sync for all requests that wait for one, unless a sync is already running.
    fn start_sync(&mut self, cx: &mut Context<'_>) {
        let Some(file) = self.file else { return };
        if self.syncs.start() {
            cx.submit(
                OpKey::single(self.op_namespace.id(), KIND_SYNC),
                Op::Sync { file },
            );
        }
    }

    fn synced(&mut self, result: io::Result<usize>, cx: &mut Context<'_>) {
        let outcome = match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(BlockError::Aborted),
            Err(error) => {
                self.shared.flush_failed.store(true, Ordering::Release);
                self.gone |= block_error(&error, Direction::Write) == BlockError::Gone;
                Err(if self.gone {
                    BlockError::Gone
                } else {
                    BlockError::WriteFailure
                })
            }
            // Another core may have received a report of lost data meanwhile.
            Ok(_) if self.flush_failed() => Err(BlockError::WriteFailure),
            Ok(_) => Ok(()),
        };
        while let Some(key) = self.syncs.pop_started() {
            self.finish(key, outcome);
        }
        self.syncs.end();
        self.start_sync(cx);
    }

    fn release_scratch(&mut self, key: SlabKey) {
        if let Some(slot) = self.slots.get_mut(key)
            && let Work::Scratch(at) = slot.work
        {
            slot.work = Work::Whole;
            self.scratch_free.push(at);
        }
    }

    fn finish(&mut self, key: SlabKey, result: Result<(), BlockError>) {
        self.release_scratch(key);
        let Some(slot) = self.slots.remove(key) else {
            return;
        };
        let data = slot.data.map(|data| {
            let len = at_most(slot.len, usize::MAX);
            IoSlice::new(data.into_memory(), slot.data_offset, len)
        });
        self.finished.push_back(Completion {
            tag: slot.tag,
            result,
            data,
        });
    }

    fn is_idle(&self) -> bool {
        self.slots.is_empty() && !self.syncs.is_running()
    }

    fn close_if_idle(&mut self, cx: &mut Context<'_>) {
        if let (true, true, Some(file)) = (self.closing, self.is_idle(), self.file) {
            self.file = None;
            cx.driver.close_file(file);
        }
    }
}

/// Returns true if the operation completes only once its effect is on stable storage.
const fn is_durable(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Flush
            | Operation::Write { durable: true }
            | Operation::WriteZeroes { durable: true, .. }
    )
}

/// Converts `count` to a length in memory, at most `limit`.
fn at_most(count: u64, limit: usize) -> usize {
    usize::try_from(count).map_or(limit, |count| count.min(limit))
}

/// Returns the scratch memory of the request's next piece, filled with the piece if it is to be
/// written.
fn fill_scratch(slot: &Slot, scratch: &RegionHandle, at: usize) -> IoSlice {
    let piece = at_most(slot.len - slot.done, SCRATCH_BYTES);
    if let (true, Some(data)) = (slot.operation.is_write(), &slot.data) {
        copy_to_region(data, at_most(slot.done, usize::MAX), scratch, at, piece);
    }
    IoSlice::new(Memory::Region(scratch.clone()), at, piece)
}

/// Processes `count` bytes that an operation transferred.
fn take_piece(slot: &mut Slot, scratch: &RegionHandle, count: usize) -> Result<(), BlockError> {
    let done = at_most(slot.done, usize::MAX);
    match (slot.work, &mut slot.data) {
        (Work::Whole, Some(data)) => data.advance(count),
        (Work::Scratch(at), Some(data)) if slot.operation == Operation::Read => {
            copy_from_region(scratch, at, data, done, count);
        }
        (Work::Scratch(at), Some(data))
            if slot.operation == Operation::Compare
                && !equals_region(data, done, scratch, at, count) =>
        {
            return Err(BlockError::CompareFailure);
        }
        _ => {}
    }
    Ok(())
}

impl Channel for FileChannel {
    fn submit(&mut self, mut request: Request, cx: &mut Context<'_>) -> Submit {
        if let Some(error) = self.refuse(&mut request) {
            return Submit::Done(request.ended(Err(error)));
        }
        if request.operation == Operation::Flush && self.capabilities.read_only {
            return Submit::Done(request.ended(Ok(())));
        }
        // Finished requests that were not reaped count too, which bounds their list.
        if self.slots.len() + self.finished.len() >= FILE_QUEUE_DEPTH {
            return Submit::Busy(request);
        }
        let Some(work) = self.choose_work(&request) else {
            return Submit::Busy(request);
        };
        let block = u64::from(self.geometry.block_bytes);
        // A Flush ignores its range, which may be anything.
        let range = if request.operation == Operation::Flush {
            0
        } else {
            block
        };
        let slot = Slot {
            tag: request.tag,
            operation: request.operation,
            offset: request.lba.0.saturating_mul(range),
            len: u64::from(request.blocks) * range,
            done: 0,
            work,
            data_offset: request.data.as_ref().map_or(0, IoSlice::offset),
            data: request.data,
        };
        let Ok(key) = self.slots.insert(slot) else {
            unreachable!("the slab has as many slots as were counted above");
        };
        self.advance(key, cx);
        Submit::Queued
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        op_namespace == self.op_namespace.id()
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        let Outcome::File { result, slice } = completion.outcome else {
            debug_assert!(false, "only file operations are started here");
            return;
        };
        match completion.key.kind {
            KIND_SYNC => self.synced(result, cx),
            _ => self.progress(completion.key.slab_key(), result, slice, cx),
        }
        self.close_if_idle(cx);
    }

    fn reap(&mut self) -> Option<Completion> {
        self.finished.pop_front()
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.closing = true;
        while let Some(key) = self.syncs.pop_waiting() {
            self.finish(key, Err(BlockError::Aborted));
        }
        self.close_if_idle(cx);
    }

    fn closed(&self) -> bool {
        self.file.is_none()
    }

    fn abandon(&mut self, guard: &Guard) {
        if !self.is_idle() {
            self.op_namespace.abandon(guard);
        }
    }
}
