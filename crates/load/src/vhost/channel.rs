//! A channel: one virtqueue, with a slot for each request.

use super::Queue;
use super::ring::{Data, SLOTS};
use base::{Nanos, Time};
use block::{BlockError, Capabilities, Channel, Completion, Geometry, Operation, Request, Submit};
use reactor::{Context, Driver, FileId, Op, OpKey, OpNamespace, OpNamespaceLease, Outcome};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use switch::Class;

/// Request types. `[virtio 1.2 §5.2.6]`
const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

/// The flag of Write Zeroes that allows deallocation. `[virtio 1.2 §5.2.6]`
const UNMAP: u32 = 1;

/// Status values. `[virtio 1.2 §5.2.6]`
const OK: u8 = 0;
const UNSUPPORTED: u8 = 2;

/// The I/O priority of a real-time thread, in the header of a request.
const REAL_TIME: u32 = 1 << 13;

/// Interval at which the connection to the back end is checked while requests are in flight.
const LOOK: Nanos = Nanos::from_millis(500);

/// A request in flight.
#[derive(Debug)]
struct Slot {
    request: Request,
    /// The remainder of a range that is processed in parts, in sectors.
    rest: (u64, u64),
    /// A flush is still to be sent.
    flush: bool,
}

#[derive(Debug)]
pub(super) struct VhostChannel {
    queue: Queue,
    geometry: Geometry,
    capabilities: Capabilities,
    range_sectors: u32,
    /// Class of the requests; `None` to follow the submitting thread's I/O priority.
    class: Option<Class>,
    slots: Vec<Option<Slot>>,
    free: Vec<u16>,
    done: VecDeque<Completion>,
    op_namespace: OpNamespaceLease,
    /// The watched event counter; `None` after the watch.
    call: Option<FileId>,
    closing: bool,
    /// The back end has disconnected.
    gone: bool,
    /// Time of the next check of the connection.
    next_look: Time,
    scratch: Vec<u8>,
}

impl VhostChannel {
    pub(super) fn new(
        queue: Queue,
        geometry: Geometry,
        capabilities: Capabilities,
        range_sectors: u32,
        class: Option<Class>,
        driver: &mut dyn Driver,
    ) -> io::Result<Self> {
        let call = Arc::new(super::file_of(&queue.call)?);
        let call = driver.open_file(call)?;
        let op_namespace = driver.lease_op_namespace();
        driver.submit(
            OpKey::single(op_namespace.id(), 0),
            Op::Watch { file: call },
        );
        Ok(Self {
            queue,
            geometry,
            capabilities,
            range_sectors,
            class,
            slots: (0..SLOTS).map(|_| None).collect(),
            free: (0..SLOTS).rev().collect(),
            done: VecDeque::new(),
            op_namespace,
            call: Some(call),
            closing: false,
            gone: false,
            next_look: Time::ZERO,
            scratch: Vec::new(),
        })
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts the next part of a request into the queue.
    fn send(&mut self, slot: u16, priority: u32) {
        let entry = self.slots[usize::from(slot)].as_mut();
        let entry = entry.expect("a slot in use");
        let sectors = u64::from(self.geometry.block_bytes / 512);
        // The sector of a flush is ignored.
        let sector = entry.request.lba.0.saturating_mul(sectors);
        let ring = &mut self.queue.ring;
        let len = entry.request.data.as_ref().map_or(0, reactor::IoSlice::len);
        match entry.request.operation {
            Operation::Read => ring.add(slot, IN, priority, sector, Data::In(len)),
            Operation::Write { .. } => ring.add(slot, OUT, priority, sector, Data::Out(len)),
            Operation::WriteZeroes { .. } | Operation::Deallocate => {
                let (at, left) = entry.rest;
                let part = left.min(self.range_sectors.into());
                entry.rest = (at + part, left - part);
                let (kind, flags) = match entry.request.operation {
                    Operation::WriteZeroes { deallocate, .. } => {
                        (WRITE_ZEROES, if deallocate { UNMAP } else { 0 })
                    }
                    _ => (DISCARD, 0),
                };
                let part = u32::try_from(part).expect("at most a range");
                ring.put(slot, 0, &at.to_le_bytes());
                ring.put(slot, 8, &part.to_le_bytes());
                ring.put(slot, 12, &flags.to_le_bytes());
                ring.add(slot, kind, priority, 0, Data::Out(16));
            }
            _ => ring.add(slot, FLUSH, priority, 0, Data::None),
        }
    }

    /// Handles the completion of a part of a request.
    fn came_back(&mut self, slot: u16, status: u8) {
        let Some(mut entry) = self.slots[usize::from(slot)].take() else {
            return;
        };
        let again = status == OK && (entry.rest.1 > 0 || entry.flush);
        if again {
            let flushes = entry.rest.1 == 0;
            if flushes {
                entry.flush = false;
                self.queue.ring.add(slot, FLUSH, 0, 0, Data::None);
            }
            self.slots[usize::from(slot)] = Some(entry);
            if !flushes {
                self.send(slot, 0);
            }
            self.queue.publish();
            return;
        }
        let mut request = entry.request;
        let result = match (status, request.operation.is_write()) {
            (OK, _) => Ok(()),
            (UNSUPPORTED, _) => Err(BlockError::Unsupported),
            (_, true) => Err(BlockError::WriteFailure),
            (_, false) => Err(BlockError::ReadFailure),
        };
        if let (Operation::Read, Ok(()), Some(data)) =
            (request.operation, result, &mut request.data)
        {
            if let Some(bytes) = data.bytes_mut() {
                self.queue.ring.get(slot, bytes);
            } else {
                self.scratch.resize(data.len(), 0);
                self.queue.ring.get(slot, &mut self.scratch);
                data.copy_in(0, &self.scratch);
            }
        }
        self.free.push(slot);
        self.done.push_back(request.ended(result));
    }

    /// Checks from time to time whether the back end is connected; after a disconnect it completes
    /// nothing.
    fn watch_back_end(&mut self, now: Time) {
        if self.gone || self.in_flight() == 0 || now < self.next_look {
            return;
        }
        self.next_look = now + LOOK;
        self.gone = self.queue.shared.is_gone();
    }

    fn look(&mut self, cx: &mut Context<'_>) {
        self.watch_back_end(cx.now);
        while let Some((slot, status, _)) = self.queue.ring.take() {
            self.came_back(slot, status);
        }
        if self.gone {
            for slot in &mut self.slots {
                let left = slot.take().map(|slot| slot.request);
                let left = left.map(|request| request.ended(Err(BlockError::Gone)));
                self.done.extend(left);
            }
            self.free = (0..SLOTS).rev().collect();
        }
        if self.closing
            && self.in_flight() == 0
            && let Some(call) = self.call
        {
            cx.driver.end_watch(call);
        }
    }
}

impl Channel for VhostChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        if self.closing {
            return Submit::Done(request.ended(Err(BlockError::Aborted)));
        }
        if self.gone {
            return Submit::Done(request.ended(Err(BlockError::Gone)));
        }
        if let Err(error) = block::check(&request, self.geometry, self.capabilities) {
            return Submit::Done(request.ended(Err(error)));
        }
        if matches!(request.operation, Operation::Compare | Operation::Verify) {
            return Submit::Done(request.ended(Err(BlockError::Unsupported)));
        }
        let shared = matches!(request.operation, Operation::Read)
            && request.data.as_ref().is_some_and(is_shared);
        if shared {
            return Submit::Done(request.ended(Err(BlockError::Malformed)));
        }
        if self.in_flight() == 0 {
            self.next_look = cx.now + LOOK;
        }
        let Some(slot) = self.free.pop() else {
            return Submit::Busy(request);
        };
        if let (Operation::Write { .. }, Some(data)) = (request.operation, &request.data) {
            if let Some(bytes) = data.bytes() {
                self.queue.ring.put(slot, 0, bytes);
            } else {
                self.scratch.clear();
                data.append_to(0, &mut self.scratch);
                self.queue.ring.put(slot, 0, &self.scratch);
            }
        }
        let sectors = u64::from(self.geometry.block_bytes / 512);
        let rest = match request.operation {
            Operation::WriteZeroes { .. } | Operation::Deallocate => {
                (request.lba.0 * sectors, u64::from(request.blocks) * sectors)
            }
            _ => (0, 0),
        };
        let flush = matches!(
            request.operation,
            Operation::Write { durable: true } | Operation::WriteZeroes { durable: true, .. }
        );
        self.slots[usize::from(slot)] = Some(Slot {
            request,
            rest,
            flush,
        });
        let class = self.class;
        let class = class.unwrap_or_else(|| reactor::priority::io_class(cx.now));
        self.send(
            slot,
            if class == Class::Latency {
                REAL_TIME
            } else {
                0
            },
        );
        Submit::Queued
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.queue.publish();
        self.look(cx);
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        op_namespace == self.op_namespace.id()
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        if let (Outcome::Readable(Err(_)), Some(call)) = (completion.outcome, self.call) {
            cx.driver.close_file(call);
            self.call = None;
        }
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.look(cx);
    }

    fn deadline(&self) -> Time {
        // Called before every sleep: enables the device's notifications, unless there are
        // completions already.
        if !self.done.is_empty() || (self.in_flight() > 0 && self.queue.ring.arm()) {
            return Time::ZERO;
        }
        if self.in_flight() > 0 {
            return self.next_look;
        }
        Time::NEVER
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.closing = true;
        self.queue.publish();
        self.look(cx);
    }

    fn closed(&self) -> bool {
        self.closing && self.in_flight() == 0 && self.call.is_none()
    }
}

/// Returns true for a buffer with several owners, which may not be changed.
fn is_shared(data: &reactor::IoSlice) -> bool {
    data.bytes().is_some() && data.duplicate(0, 0).is_some()
}
