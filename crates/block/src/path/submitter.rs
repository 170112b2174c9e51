//! A submitter: one thread's channel through a path.
//!
//! Overlapping requests of one thread, one of which writes, are executed in the order of
//! submission: a later one waits here until the earlier ones are complete. So no queue, runner or
//! merged command needs to preserve order.

use super::done::Done;
use super::inbox::Inbox;
use super::queue::Entry;
use super::runner::{Own, Runner};
use super::{Inner, PathDevice};
use crate::device::{Channel, DeviceError, Submit, check_memory};
use crate::request::{BlockError, Completion, Operation, Request};
use crate::submitter_memory::SubmitterMemory;
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use reactor::{Context, Driver, Guard, IoSlice};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::path::{Properties, Route};

/// Longest time between two checks for a stuck runner while no request completes, in hand-over
/// times.
const LOOKS_RARE: u64 = 16;

/// A request that is not complete.
#[derive(Debug)]
struct Pending {
    tag: u64,
    operation: Operation,
    /// Range of blocks, from the first to the one after the last.
    first: u64,
    end: u64,
    /// The data, unless the channel below has it.
    data: Option<IoSlice>,
    /// Bounce buffer in the channel's memory, if the data is in other memory.
    bounce: Option<u32>,
    /// True once it was sent; until then it waits for an earlier one.
    sent: bool,
    /// Losses of the device's cache that Flushes of this thread had reported when it arrived.
    reported: u32,
}

impl Pending {
    /// Returns true if the two must be executed in order.
    fn conflicts(&self, later: &Self) -> bool {
        let ranged = self.operation != Operation::Flush && later.operation != Operation::Flush;
        let overlap = self.first < later.end && later.first < self.end;
        ranged && overlap && (self.operation.is_write() || later.operation.is_write())
    }
}

/// One thread's channel.
#[derive(Debug)]
pub(super) struct SubmitterChannel {
    inner: Arc<Inner>,
    awaited: bool,
    only_in_calls: bool,
    inbox: Arc<Inbox>,
    memory: SubmitterMemory,
    bytes: u32,
    slots: Vec<Option<Pending>>,
    free: Vec<u32>,
    /// Requests that wait for earlier ones, in order of arrival.
    held: VecDeque<u32>,
    /// True if one of these may be sent by now: another request completed, or there was no room.
    may_release: bool,
    /// Number of writes that are not complete.
    writes: u32,
    runner: Runner,
    /// Losses of the device's cache that Flushes of this thread have reported.
    reported: u32,
    finished: VecDeque<Completion>,
    /// Flushes among them: their tags, and the losses known when each completed.
    flushes: VecDeque<(u64, u32)>,
    /// The losses of the last reaped Flush.
    losses: Option<u32>,
    closing: bool,
    closed: bool,
    /// Time of the next check for a stuck runner, and the interval until the one after it.
    look_at: Time,
    look_after: Nanos,
}

impl SubmitterChannel {
    pub(super) fn open(device: &PathDevice, driver: &mut dyn Driver) -> Result<Self, DeviceError> {
        let inner = Arc::clone(&device.inner);
        let memory = SubmitterMemory::new(device.depth, device.bytes as usize)?;
        let region = memory.region().clone();
        let inbox = Arc::new(Inbox::new(device.depth as usize, region, driver.waker()));
        let own = Own {
            inbox: Arc::clone(&inbox),
            only_in_calls: device.only_in_calls,
            outstanding: 0,
        };
        let runner = inner.runner(driver, own)?;
        Ok(Self {
            awaited: device.awaited,
            only_in_calls: device.only_in_calls,
            reported: runner.losses().unwrap_or(0),
            flushes: VecDeque::new(),
            losses: runner.losses(),
            inbox,
            memory,
            bytes: device.bytes,
            slots: (0..device.depth).map(|_| None).collect(),
            free: (0..device.depth).rev().collect(),
            held: VecDeque::new(),
            may_release: false,
            writes: 0,
            runner,
            finished: VecDeque::new(),
            closing: false,
            closed: false,
            look_at: Time::NEVER,
            look_after: inner.rules.handover,
            inner,
        })
    }

    fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the error of an invalid request, or `None`.
    fn refuse(&self, request: &mut Request) -> Option<BlockError> {
        if self.closing {
            return Some(BlockError::Aborted);
        }
        let geometry = self.inner.below.geometry();
        if self.runner.is_gone() || geometry.is_gone() {
            return Some(BlockError::Gone);
        }
        let capabilities = crate::Capabilities {
            max_transfer_bytes: self.bytes,
            ..self.inner.below.capabilities()
        };
        check_memory(request, geometry, capabilities).err()
    }

    /// Returns true if a request must wait for an earlier one.
    fn conflicts(&self, later: &Pending, slot: Option<u32>) -> bool {
        if self.writes == 0 && !later.operation.is_write() {
            return false;
        }
        let sent = self.slots.iter().flatten().filter(|other| other.sent);
        let earlier = self.held.iter().take_while(|&&held| Some(held) != slot);
        let earlier = earlier.filter_map(|&held| self.slots[held as usize].as_ref());
        sent.chain(earlier).any(|other| other.conflicts(later))
    }

    /// Sends a request by its route. Returns its completion if it completes at once; `Err` if there
    /// is no room.
    fn send(&mut self, slot: u32, cx: &mut Context<'_>) -> Result<Option<Completion>, ()> {
        let pending = self.slots[slot as usize].as_mut().expect("it has a slot");
        let properties = Properties {
            reads: pending.operation == Operation::Read,
            awaited: self.awaited,
        };
        let lba = base::units::Lba(pending.first);
        let blocks = u32::try_from(pending.end - pending.first).expect("it came with as many");
        match self.inner.path.route(properties) {
            Route::Own => {
                let request = Request {
                    tag: slot.into(),
                    operation: pending.operation,
                    lba,
                    blocks,
                    data: pending.data.take(),
                };
                match self.runner.submit_own(request, cx) {
                    Submit::Queued => pending.sent = true,
                    Submit::Done(completion) => {
                        pending.sent = true;
                        return Ok(Some(completion));
                    }
                    Submit::Busy(request) => {
                        pending.data = request.data;
                        return Err(());
                    }
                }
            }
            Route::Queue(index) => {
                let data = match &pending.data {
                    None => None,
                    Some(data) => {
                        let placed = self.memory.place(data, pending.operation).ok_or(())?;
                        pending.bounce = placed.bounce;
                        Some((placed.offset, data.len()))
                    }
                };
                pending.sent = true;
                let entry = Entry {
                    inbox: Arc::clone(&self.inbox),
                    slot,
                    properties,
                    operation: pending.operation,
                    lba,
                    blocks,
                    data,
                };
                if let Some(term) = self.inner.queues[index].put(entry, cx.now) {
                    self.runner.begin(index, term);
                } else if !self.runner.runs(index) {
                    self.inner.stats.lost();
                }
            }
        }
        Ok(None)
    }

    /// Ends a request; its data is in its original place, or comes with the completion.
    fn end(
        &mut self,
        slot: u32,
        result: Result<(), BlockError>,
        data: Option<IoSlice>,
        losses: Option<u32>,
    ) {
        let pending = self.slots[slot as usize].take();
        let pending = pending.expect("a request is over once");
        if let (Operation::Flush, Some(losses)) = (pending.operation, losses) {
            self.flushes.push_back((pending.tag, losses));
        }
        self.free.push(slot);
        self.may_release = true;
        self.look_after = self.inner.rules.handover;
        self.writes -= u32::from(pending.operation.is_write());
        let mut data = data.or(pending.data);
        if let Some(place) = pending.bounce {
            if let (Operation::Read, Ok(()), Some(data)) = (pending.operation, result, &mut data) {
                self.memory.copy_back(place, data);
            }
            self.memory.free(place);
        }
        self.finished.push_back(Completion {
            tag: pending.tag,
            result,
            data,
        });
    }

    fn end_own(&mut self, completion: Completion) {
        let slot = u32::try_from(completion.tag).expect("a slot's number");
        let losses = self.runner.losses();
        self.end(slot, completion.result, completion.data, losses);
    }

    /// Returns the result of a Flush for this thread. Its channel reports each loss of the device's
    /// cache once, to the thread whose Flush comes first; but each thread must see every loss,
    /// because its writes may be among the lost ones.
    fn judged(&self, done: &Done) -> Result<(), BlockError> {
        if mutation::active(Mutation::LossToldOnce) {
            return done.result;
        }
        let pending = self.slots[done.slot as usize].as_ref();
        let reported = pending.map(|pending| pending.reported);
        match (done.result, done.losses) {
            (Ok(()) | Err(BlockError::CacheLost), Some(_)) if done.losses == reported => Ok(()),
            (Ok(()), Some(_)) => Err(BlockError::CacheLost),
            (result, _) => result,
        }
    }

    /// Takes the completions of its requests from other threads, and from this one as a runner.
    fn take_done(&mut self) {
        while let Some(done) = self.inbox.take() {
            let result = self.judged(&done);
            if let (Err(BlockError::CacheLost), Some(losses)) = (result, done.losses) {
                self.reported = self.reported.max(losses);
            }
            self.end(done.slot, result, None, done.losses);
        }
    }

    fn turn_runner(&mut self, cx: &mut Context<'_>) {
        self.runner.note_outstanding(self.outstanding());
        self.runner.turn(cx);
        self.take_own_done();
    }

    /// Returns true if completions must wait until nothing is in flight for other threads, because
    /// the thread does not run its channel after that.
    fn serves_others(&self) -> bool {
        self.only_in_calls && self.outstanding() == 0 && self.runner.is_active()
    }

    fn take_own_done(&mut self) {
        while let Some(completion) = self.runner.own_done() {
            self.end_own(completion);
        }
    }

    /// Sends requests that waited for earlier ones.
    fn release(&mut self, cx: &mut Context<'_>) {
        self.may_release = false;
        let mut index = 0;
        while let Some(&slot) = self.held.get(index) {
            let pending = self.slots[slot as usize].as_ref().expect("it is not over");
            if self.conflicts(pending, Some(slot)) {
                index += 1;
                continue;
            }
            match self.send(slot, cx) {
                Ok(done) => {
                    self.held.remove(index);
                    if let Some(done) = done {
                        self.end_own(done);
                    }
                }
                Err(()) => {
                    self.may_release = true;
                    return;
                }
            }
        }
    }

    /// Runs this thread's queues, and takes the completions.
    fn run(&mut self, cx: &mut Context<'_>) {
        self.inbox.sleeper.awake();
        for (index, queue) in self.inner.queues.iter().enumerate() {
            let handed = self.inbox.take_handed(index);
            let stuck = cx.now >= self.look_at && self.outstanding() > 0;
            let term = if handed {
                // Even if it believes that it runs the queue: it may have been deposed.
                queue.begin_handed(cx.now)
            } else if stuck && !self.runner.runs(index) {
                queue.take_over(cx.now)
            } else {
                None
            };
            if let Some(term) = term {
                self.runner.begin(index, term);
            }
        }
        if cx.now >= self.look_at {
            self.look_at = Time::NEVER;
        }
        self.turn_runner(cx);
        self.take_done();
        if self.may_release && !self.held.is_empty() {
            self.release(cx);
            self.turn_runner(cx);
        }
        let waits = self.outstanding() > 0 && !self.inner.queues.is_empty();
        let soon = cx.now + self.look_after;
        if !waits {
            self.look_at = Time::NEVER;
        } else if self.look_at == Time::NEVER {
            self.look_at = soon;
            // The interval doubles for a device that is generally slow.
            let most = LOOKS_RARE * self.inner.rules.handover.0;
            self.look_after = Nanos(2 * self.look_after.0).min(Nanos(most));
        } else {
            // A completed request brings the check forward.
            self.look_at = self.look_at.min(soon);
        }
        self.close_if_idle(cx);
    }

    fn close_if_idle(&mut self, cx: &mut Context<'_>) {
        if !self.closing || self.closed || self.outstanding() > 0 {
            return;
        }
        self.runner.stop(cx);
        if !self.runner.is_active() {
            self.runner.close(cx);
            self.closed = self.runner.closed();
        }
    }
}

impl Channel for SubmitterChannel {
    fn submit(&mut self, mut request: Request, cx: &mut Context<'_>) -> Submit {
        if let Some(error) = self.refuse(&mut request) {
            return Submit::Done(request.ended(Err(error)));
        }
        let Some(&slot) = self.free.last() else {
            return Submit::Busy(request);
        };
        // A Flush ignores its range, which may be anything.
        let (first, blocks) = match request.operation {
            Operation::Flush => (0, 0),
            _ => (request.lba.0, request.blocks),
        };
        let pending = Pending {
            tag: request.tag,
            operation: request.operation,
            first,
            end: first + u64::from(blocks),
            data: request.data,
            bounce: None,
            sent: false,
            reported: self.reported,
        };
        let conflicts = self.conflicts(&pending, None);
        self.free.pop();
        self.writes += u32::from(pending.operation.is_write());
        self.slots[slot as usize] = Some(pending);
        if conflicts {
            self.held.push_back(slot);
            return Submit::Queued;
        }
        match self.send(slot, cx) {
            Ok(None) => Submit::Queued,
            Ok(Some(done)) => {
                self.end_own(done);
                let done = self.finished.pop_back().expect("it was just put there");
                if let Some((_, losses)) = self.flushes.pop_back_if(|(tag, _)| *tag == done.tag) {
                    self.losses = Some(losses);
                }
                Submit::Done(done)
            }
            Err(()) => {
                let pending = self.slots[slot as usize].take().expect("it was just put");
                self.free.push(slot);
                self.writes -= u32::from(pending.operation.is_write());
                Submit::Busy(Request {
                    data: pending.data,
                    ..request
                })
            }
        }
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.run(cx);
    }

    fn unplug(&mut self, cx: &mut Context<'_>) {
        if self.runner.is_gone() {
            return;
        }
        for (index, queue) in self.inner.queues.iter().enumerate() {
            if let Some(term) = queue.unplug(cx.now) {
                self.runner.begin(index, term);
            }
        }
    }

    fn owns(&self, op_namespace: reactor::OpNamespace) -> bool {
        self.runner.owns(op_namespace)
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        self.runner.note_outstanding(self.outstanding());
        self.runner.complete(completion, cx);
    }

    fn reap(&mut self) -> Option<Completion> {
        if self.serves_others() {
            return None;
        }
        let done = self.finished.pop_front()?;
        if let Some((_, losses)) = self.flushes.pop_front_if(|(tag, _)| *tag == done.tag) {
            self.losses = Some(losses);
        }
        Some(done)
    }

    fn losses(&self) -> Option<u32> {
        self.losses
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.run(cx);
    }

    fn is_back(&self) -> bool {
        self.runner.is_back()
    }

    fn opened(&self) -> Option<Result<(), DeviceError>> {
        self.runner.opened()
    }

    fn memory(&mut self, bytes: usize) -> Option<IoSlice> {
        self.memory.lend(bytes)
    }

    fn deadline(&self) -> Time {
        if !self.finished.is_empty() && !self.serves_others() {
            return Time::ZERO;
        }
        let below = self.runner.deadline(self.inner.path.polls());
        if below == Time::ZERO || !self.inbox.may_sleep() {
            return Time::ZERO;
        }
        below.min(self.look_at)
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.closing = true;
        self.run(cx);
    }

    fn closed(&self) -> bool {
        self.closed
    }

    fn abandon(&mut self, guard: &Guard) {
        let _ = self.inbox.guard.set(Arc::clone(guard));
        self.runner.abandon(guard);
    }
}

impl Drop for SubmitterChannel {
    fn drop(&mut self) {
        for queue in self.inner.queues.iter() {
            drop(queue.withdraw(&self.inbox, Time::ZERO));
        }
    }
}
