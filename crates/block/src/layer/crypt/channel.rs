//! One core's channel to an encrypted device.
//!
//! A write is encrypted into a buffer of the channel, so nobody sees the encrypted blocks in the
//! submitter's memory, and the device none of the plain ones. A read is decrypted where the device
//! read it to. A Compare reads into a buffer of the channel, because zeroes have two forms on the
//! device: encrypted, and deallocated.
//!
//! Requests of more than [`CRYPT_PIECE_BYTES`] are encrypted and decrypted piece by piece, one in
//! each turn of the core.

use super::key::DataKey;
use super::xts::Xts;
use crate::device::{Capabilities, Channel, DeviceError, Geometry, Submit, check_memory};
use crate::limits::{CRYPT_BUFFERS, CRYPT_PIECE_BYTES, LAYER_QUEUE_DEPTH};
use crate::request::{BlockError, Completion, Operation, Request};
use base::mutation::{self, Mutation};
use base::units::Lba;
use base::{Slab, SlabKey, Time};
use reactor::{BufferClass, BufferPool, Context, Guard, IoSlice, OpNamespace};
use std::collections::VecDeque;

/// Bytes of the largest block.
const BLOCK_BYTES_MAX: usize = 4096;

/// One core's channel to an encrypted device.
#[derive(Debug)]
pub(super) struct CryptChannel {
    inner: Box<dyn Channel>,
    /// Of the volume, without the header.
    geometry: Geometry,
    capabilities: Capabilities,
    /// Block of the device that is block 0 of the volume.
    first: u64,
    cipher: Cipher,
    buffers: BufferPool,
    slots: Slab<Slot>,
    /// Requests of which a part is to be encrypted or decrypted.
    work: VecDeque<SlabKey>,
    /// Requests for which the channel below has had no room.
    waiting: VecDeque<Request>,
    done: VecDeque<Completion>,
    closing: bool,
}

/// A request that is not complete.
#[derive(Debug)]
struct Slot {
    tag: u64,
    operation: Operation,
    lba: Lba,
    blocks: u32,
    /// The request's data, unless the channel below has it.
    data: Option<IoSlice>,
    /// The buffer of the channel, unless the channel below has it.
    own: Option<IoSlice>,
    /// Bytes encrypted or decrypted.
    at: usize,
}

impl CryptChannel {
    pub(super) fn new(
        inner: Box<dyn Channel>,
        geometry: Geometry,
        capabilities: Capabilities,
        first: u64,
        key: &DataKey,
    ) -> Result<Self, DeviceError> {
        let memory = || DeviceError::Invalid("not enough memory for the cipher".to_owned());
        let classes = CRYPT_BUFFERS.map(|(bytes, count)| BufferClass { bytes, count });
        let buffers = BufferPool::new(&classes).map_err(|source| DeviceError::Io {
            what: "cannot allocate the buffers of an encrypted device".to_owned(),
            source,
            remedy: "free memory",
        })?;
        Ok(Self {
            inner,
            geometry,
            capabilities,
            first,
            cipher: Cipher {
                xts: Xts::new(key.bytes()).ok_or_else(memory)?,
                block_bytes: geometry.block_bytes as usize,
            },
            buffers,
            slots: Slab::with_capacity(LAYER_QUEUE_DEPTH),
            work: VecDeque::with_capacity(LAYER_QUEUE_DEPTH),
            waiting: VecDeque::with_capacity(LAYER_QUEUE_DEPTH),
            done: VecDeque::with_capacity(LAYER_QUEUE_DEPTH),
            closing: false,
        })
    }

    /// Encrypts or decrypts the next piece of a request, which it continues after the last piece.
    /// Returns its completion if it completes.
    fn work_on(&mut self, key: SlabKey, cx: &mut Context<'_>) -> Option<Completion> {
        let slot = self.slots.get_mut(key)?;
        match self.cipher.piece(slot) {
            Ok(false) => {
                self.work.push_back(key);
                None
            }
            Ok(true) if slot.operation.is_write() => {
                let own = slot.own.take();
                self.pass(key, own, cx)
            }
            Ok(true) => self.finish(key, Ok(())),
            Err(error) => self.finish(key, Err(error)),
        }
    }

    /// Passes a request with this data to the channel below. Returns its completion if it
    /// completes.
    fn pass(
        &mut self,
        key: SlabKey,
        data: Option<IoSlice>,
        cx: &mut Context<'_>,
    ) -> Option<Completion> {
        let slot = self.slots.get(key)?;
        let operation = match slot.operation {
            Operation::Compare => Operation::Read,
            other => other,
        };
        // A Flush ignores its range, which may be anything.
        let lba = Lba(slot.lba.0.saturating_add(self.first));
        self.send(
            Request {
                tag: key.tag(),
                operation,
                lba,
                blocks: slot.blocks,
                data,
            },
            cx,
        )
    }

    fn send(&mut self, request: Request, cx: &mut Context<'_>) -> Option<Completion> {
        match self.inner.submit(request, cx) {
            Submit::Done(completion) => self.ended_below(completion, cx),
            Submit::Queued => None,
            Submit::Busy(request) => {
                self.waiting.push_back(request);
                None
            }
        }
    }

    /// Handles a completion of the channel below. Returns the completion of the request if it
    /// completes.
    fn ended_below(&mut self, completion: Completion, cx: &mut Context<'_>) -> Option<Completion> {
        let key = SlabKey::from_tag(completion.tag);
        let slot = self.slots.get_mut(key)?;
        match slot.operation {
            Operation::Read => slot.data = completion.data,
            Operation::Compare => slot.own = completion.data,
            // The buffer of a write returns to the pool.
            _ => drop(completion.data),
        }
        let decrypts = matches!(slot.operation, Operation::Read | Operation::Compare);
        match completion.result {
            Ok(()) if decrypts && self.closing => self.finish(key, Err(BlockError::Aborted)),
            Ok(()) if decrypts => self.begin_work(key, cx),
            result => self.finish(key, result),
        }
    }

    /// Begins to encrypt or decrypt a request: at once, unless it is large.
    fn begin_work(&mut self, key: SlabKey, cx: &mut Context<'_>) -> Option<Completion> {
        let len = self.slots.get(key).map_or(0, Slot::len);
        if len <= CRYPT_PIECE_BYTES {
            return self.work_on(key, cx);
        }
        self.work.push_back(key);
        None
    }

    fn finish(&mut self, key: SlabKey, result: Result<(), BlockError>) -> Option<Completion> {
        let Slot { tag, data, .. } = self.slots.remove(key)?;
        Some(Completion { tag, result, data })
    }

    /// Collects the completions of the channel below, and passes waiting requests on.
    fn collect(&mut self, cx: &mut Context<'_>) {
        let mut freed = false;
        while let Some(completion) = self.inner.reap() {
            freed = true;
            let ended = self.ended_below(completion, cx);
            self.done.extend(ended);
        }
        if !freed && !self.is_idle_below() {
            return;
        }
        for _ in 0..self.waiting.len() {
            let Some(request) = self.waiting.pop_front() else {
                break;
            };
            let before = self.waiting.len();
            let ended = self.send(request, cx);
            self.done.extend(ended);
            if self.waiting.len() > before {
                // Still no room: it keeps its place.
                self.waiting.rotate_right(1);
                break;
            }
        }
    }

    /// Returns true if every request that is not complete waits in this channel.
    fn is_idle_below(&self) -> bool {
        self.slots.len() == self.work.len() + self.waiting.len()
    }

    /// Aborts the requests that the channel below does not have.
    fn abort_waiting(&mut self) {
        let waiting = self.waiting.drain(..);
        let keys: Vec<_> = waiting
            .map(|request| (SlabKey::from_tag(request.tag), request.data))
            .chain(self.work.drain(..).map(|key| (key, None)))
            .collect();
        for (key, data) in keys {
            if let Some(slot) = self.slots.get_mut(key)
                && slot.operation == Operation::Read
                && data.is_some()
            {
                slot.data = data;
            }
            let ended = self.finish(key, Err(BlockError::Aborted));
            self.done.extend(ended);
        }
    }
}

impl Channel for CryptChannel {
    fn submit(&mut self, mut request: Request, cx: &mut Context<'_>) -> Submit {
        if self.closing {
            return Submit::Done(request.ended(Err(BlockError::Aborted)));
        }
        if let Err(error) = check_memory(&mut request, self.geometry, self.capabilities) {
            return Submit::Done(request.ended(Err(error)));
        }
        // Completions that were not reaped count too, which bounds their list.
        if self.slots.len() + self.done.len() >= LAYER_QUEUE_DEPTH {
            return Submit::Busy(request);
        }
        let operation = request.operation;
        let needs_own = matches!(operation, Operation::Write { .. } | Operation::Compare);
        let len = request.data.as_ref().map_or(0, IoSlice::len);
        let own = needs_own.then(|| self.buffers.take(len));
        let own = match own {
            // All are in use by requests of this channel.
            Some(None) => return Submit::Busy(request),
            Some(Some(buffer)) => Some(IoSlice::from_buffer(buffer, len)),
            None => None,
        };
        let mut slot = Slot {
            tag: request.tag,
            operation,
            lba: request.lba,
            blocks: request.blocks,
            data: request.data,
            own,
            at: 0,
        };
        let below = match operation {
            Operation::Write { .. } => None,
            Operation::Compare => slot.own.take(),
            _ => slot.data.take(),
        };
        let Ok(key) = self.slots.insert(slot) else {
            unreachable!("the slots were counted above");
        };
        let ended = match operation {
            Operation::Write { .. } => self.begin_work(key, cx),
            _ => self.pass(key, below, cx),
        };
        ended.map_or(Submit::Queued, Submit::Done)
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.inner.kick(cx);
        self.collect(cx);
    }

    fn unplug(&mut self, cx: &mut Context<'_>) {
        self.inner.unplug(cx);
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        self.inner.owns(op_namespace)
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        self.inner.complete(completion, cx);
        self.collect(cx);
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn losses(&self) -> Option<u32> {
        self.inner.losses()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.inner.tick(cx);
        self.collect(cx);
        if let Some(key) = self.work.pop_front() {
            let ended = self.work_on(key, cx);
            self.done.extend(ended);
            // The last piece of a write may have passed it on.
            self.inner.kick(cx);
            self.collect(cx);
        }
    }

    fn is_served_elsewhere(&self) -> bool {
        self.work.is_empty() && self.inner.is_served_elsewhere()
    }

    fn is_back(&self) -> bool {
        self.inner.is_back()
    }

    fn deadline(&self) -> Time {
        let has_work = !self.work.is_empty() || !self.waiting.is_empty() && self.is_idle_below();
        if has_work {
            Time(0)
        } else {
            self.inner.deadline()
        }
    }

    fn opened(&self) -> Option<Result<(), DeviceError>> {
        self.inner.opened()
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.closing = true;
        self.abort_waiting();
        self.inner.close(cx);
        self.collect(cx);
    }

    fn closed(&self) -> bool {
        self.inner.closed()
    }

    fn abandon(&mut self, guard: &Guard) {
        self.inner.abandon(guard);
    }
}

impl Slot {
    /// Bytes to encrypt or decrypt.
    fn len(&self) -> usize {
        let data = self.data.as_ref().or(self.own.as_ref());
        data.map_or(0, IoSlice::len)
    }
}

/// The cipher of a channel.
#[derive(Debug)]
struct Cipher {
    xts: Xts,
    block_bytes: usize,
}

impl Cipher {
    /// Encrypts or decrypts the next piece of a request. Returns true if it was the last one.
    fn piece(&mut self, slot: &mut Slot) -> Result<bool, BlockError> {
        let len = slot.len();
        let end = len.min(slot.at + CRYPT_PIECE_BYTES);
        while slot.at < end {
            self.block(slot)?;
            slot.at += self.block_bytes;
        }
        Ok(end == len)
    }

    /// Encrypts or decrypts one block.
    fn block(&mut self, slot: &mut Slot) -> Result<(), BlockError> {
        let (at, size) = (slot.at, self.block_bytes);
        let index = (at / size) as u64;
        let unit = if mutation::active(Mutation::CryptTweakRelative) {
            index
        } else {
            slot.lba.0 + index
        };
        let data = slot.data.as_mut().ok_or(BlockError::Internal)?;
        match slot.operation {
            Operation::Write { .. } => {
                let own = slot.own.as_mut().and_then(IoSlice::bytes_mut);
                let own = &mut own.ok_or(BlockError::Internal)?[at..at + size];
                if mutation::active(Mutation::CryptPlaintextWritten) {
                    data.copy_out(at, own);
                } else if let Some(bytes) = data.bytes() {
                    self.xts.encrypt(unit, &bytes[at..at + size], own);
                } else {
                    // Other threads may change the memory: it is read once.
                    data.copy_out(at, own);
                    self.xts.encrypt_in_place(unit, own);
                }
            }
            Operation::Read => {
                if let Some(bytes) = data.bytes_mut() {
                    decrypt(&mut self.xts, unit, &mut bytes[at..at + size]);
                } else {
                    let mut copy = [0; BLOCK_BYTES_MAX];
                    data.copy_out(at, &mut copy[..size]);
                    decrypt(&mut self.xts, unit, &mut copy[..size]);
                    data.copy_in(at, &copy[..size]);
                }
            }
            _ => {
                let own = slot.own.as_mut().and_then(IoSlice::bytes_mut);
                let own = &mut own.ok_or(BlockError::Internal)?[at..at + size];
                decrypt(&mut self.xts, unit, own);
                let mut expected = [0; BLOCK_BYTES_MAX];
                data.copy_out(at, &mut expected[..size]);
                if *own != expected[..size] {
                    return Err(BlockError::CompareFailure);
                }
            }
        }
        Ok(())
    }
}

/// Decrypts a block. Zeroes stay: such a block was never written, or deallocated.
pub(super) fn decrypt(xts: &mut Xts, unit: u64, block: &mut [u8]) {
    let is_plain = mutation::active(Mutation::CryptPlaintextWritten);
    if block.iter().any(|&byte| byte != 0) && !is_plain {
        xts.decrypt(unit, block);
    }
}
