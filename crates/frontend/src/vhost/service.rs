//! The virtqueues of one core: chains in, device requests out.

use super::guest_memory::Regions;
use super::ring::{Kick, Ring, RingSetup, Stopped, recovered, signal};
use super::served_disk::{Message, ServedDisk};
use super::taken::{Taken, fits, status_of};
use crate::cache_life::{ABSENT, mark};
use crate::core_thread::passes;
use crate::virtio_blk::{
    Command, Request, SEGMENTS_KEPT, Segment, Status, copy_in, copy_out, parse,
};
use crate::{ClassChoice, DeviceIo, Finished};
use base::{SlabKey, Time};
use block::{BlockError, Operation};
use reactor::{Completion, Context, Op, OpKey, OpNamespace, Outcome, Service};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::{Class, PerClass};
use virtio_queue::{QueueOwnedT as _, QueueT as _};

/// Maximum number of vectors kept for reuse.
const SPARE_MAX: usize = 1024;

/// Maximum data segments of incomplete requests; above it no ring is read. As many as
/// [`CORE_REQUESTS_MAX`](crate::limits::CORE_REQUESTS_MAX) requests within the reported limits can
/// have; 8 MiB.
const SEGMENTS_MAX: usize = 512 * 1024;

/// The work of one core.
#[derive(Debug)]
pub(super) struct VhostService {
    shared: Arc<ServedDisk>,
    io: DeviceIo<Taken>,
    op_namespace: OpNamespace,
    /// Indexed by queue; `None` for queues of other cores.
    rings: Vec<Option<Ring>>,
    /// Indices of the rings that are present.
    served: Vec<u16>,
    /// Data segments of incomplete requests.
    segments: usize,
    /// Requests waiting for memory or room in the device.
    ready: PerClass<VecDeque<Taken>>,
    /// Writes waiting while the disk [holds](ServedDisk::holds_writes) them.
    held: PerClass<VecDeque<Taken>>,
    /// Number of ring starts.
    starts: u64,
    spare: Vec<Vec<Segment>>,
    other: Vec<Segment>,
    /// Bounce buffer for data that cannot be borrowed.
    scratch: Vec<u8>,
    /// The last turn took chains.
    took: bool,
    /// Work remains that no completion will trigger.
    again: bool,
    closing: bool,
}

impl VhostService {
    pub(super) fn new(
        shared: Arc<ServedDisk>,
        io: DeviceIo<Taken>,
        op_namespace: OpNamespace,
    ) -> Self {
        let rings = shared.queues;
        let mut service = Self {
            shared,
            io,
            op_namespace,
            rings: Vec::new(),
            served: Vec::with_capacity(rings.into()),
            segments: 0,
            ready: PerClass::default(),
            held: PerClass::default(),
            starts: 0,
            spare: Vec::new(),
            other: Vec::new(),
            scratch: Vec::new(),
            took: false,
            again: false,
            closing: false,
        };
        service.rings.resize_with(rings.into(), || None);
        service
    }

    fn start(&mut self, setup: RingSetup, cx: &mut Context<'_>) {
        let index = setup.index;
        let kick = match setup.kick.clone().map(|kick| cx.driver.open_file(kick)) {
            None => Kick::Absent,
            Some(Ok(file)) => {
                cx.submit(self.kick_key(index), Op::Watch { file });
                Kick::Watched(file)
            }
            Some(Err(error)) => {
                if let Some(suppressed) = self.shared.log.allow() {
                    tracing::error!(suppressed, "cannot poll the eventfd of a queue: {error}");
                }
                Kick::Absent
            }
        };
        let unfinished = setup.unfinished.clone();
        self.starts += 1;
        let mut ring = Ring::new(setup, kick, self.starts);
        // The driver may wait for completions of another back end.
        ring.call.iter().for_each(signal);
        if !unfinished.is_empty() {
            match recovered(&ring.queue, &ring.memory, &unfinished) {
                Some((mut queue, memory)) => {
                    let room = unfinished.len();
                    self.take_from(index, &mut ring, &mut queue, &memory, room);
                }
                None => ring.break_off(&"cannot recover the requests of the previous back end"),
            }
        }
        self.rings[usize::from(index)] = Some(ring);
        if !self.served.contains(&index) {
            self.served.push(index);
        }
        // Take the requests that arrived before the watch.
        self.again = true;
    }

    fn kick_key(&self, ring: u16) -> OpKey {
        let slot = SlabKey {
            index: ring.into(),
            generation: 0,
        };
        OpKey::new(self.op_namespace, 0, slot)
    }

    /// Takes available chains of the guests. Returns true if there were any.
    fn take(&mut self) -> bool {
        let mut any = false;
        for place in 0..self.served.len() {
            let number = self.served[place];
            let index = usize::from(number);
            let Some(mut ring) = self.rings[index].take() else {
                continue;
            };
            if ring.takes() && self.segments < SEGMENTS_MAX {
                ring.disarm();
                let room = usize::from(ring.queue.size()) - ring.outstanding;
                let memory = Arc::clone(&ring.memory);
                // The ring's own queue, moved out while chains are taken from it.
                let mut queue = std::mem::take(&mut ring.queue);
                any |= self.take_from(number, &mut ring, &mut queue, &memory, room);
                ring.queue = queue;
            }
            self.rings[index] = Some(ring);
        }
        any
    }

    /// Takes at most `room` available chains of `queue` in `memory`, which is `ring`'s own or
    /// contains it. Returns true if there was one.
    fn take_from(
        &mut self,
        index: u16,
        ring: &mut Ring,
        queue: &mut virtio_queue::Queue,
        memory: &Regions,
        room: usize,
    ) -> bool {
        let chains = match queue.iter(memory) {
            Ok(chains) => chains,
            Err(error) => {
                ring.break_off(&error);
                return false;
            }
        };
        let mut any = false;
        for chain in chains.take(room) {
            any = true;
            let data = self.spare.pop().unwrap_or_default();
            match parse(chain, memory, data, &mut self.other) {
                Ok(request) => {
                    ring.took(request.head);
                    self.sort((index, ring.start), request, ring.outstanding);
                }
                Err(malformed) => {
                    ring.break_off(&malformed);
                    break;
                }
            }
        }
        any
    }

    /// Queues a request by its class; `depth` is the number of outstanding requests of its ring.
    fn sort(&mut self, (ring, start): (u16, u64), request: Request, depth: usize) {
        let bytes = match request.command {
            Ok(Command::Read { bytes, .. } | Command::Write { bytes, .. }) => bytes,
            _ => 0,
        };
        let by_rule = self.shared.rules.class(bytes, depth);
        let class = by_rule.unwrap_or_else(|| match self.shared.class {
            ClassChoice::Fixed(class) => class,
            ClassChoice::ByIoPriority => request.class(),
        });
        self.segments += request.data.len();
        self.ready[class].push_back(Taken {
            ring,
            start,
            class,
            done: 0,
            // A refused request is completed in its turn.
            command: request.command.unwrap_or(Command::Flush),
            request,
            life: ABSENT,
        });
    }

    /// Submits requests to the device while there is memory; returns true if any was submitted.
    fn begin(&mut self, cx: &mut Context<'_>) -> bool {
        let mut begun = false;
        let holds_writes = self.shared.holds_writes();
        for class in Class::ALL {
            if !holds_writes && !self.held[class].is_empty() {
                let mut first = std::mem::take(&mut self.held[class]);
                first.append(&mut self.ready[class]);
                self.ready[class] = first;
            }
            while !self.io.is_full()
                && let Some(taken) = self.ready[class].front()
            {
                if holds_writes && taken.changes() {
                    self.held[class].extend(self.ready[class].pop_front());
                    continue;
                }
                let bytes = usize::try_from(taken.part_bytes()).expect("a part is bounded");
                let Some(memory) = self.io.memory(class, bytes, cx) else {
                    // The lower classes would take memory that this class needs first.
                    return begun;
                };
                let taken = self.ready[class].pop_front().expect("it was in front");
                self.begin_one(taken, memory);
                begun = true;
            }
        }
        begun
    }

    fn begin_one(&mut self, mut taken: Taken, mut memory: Vec<reactor::IoSlice>) {
        let ring = self.rings[usize::from(taken.ring)].as_ref();
        let durable = ring.expect("a ring outlives its requests").durable;
        let geometry = self.io.geometry();
        let (operation, range) = match (taken.request.command, taken.command) {
            (Err(status), _) => return self.refuse(taken, status, memory),
            (_, Command::GetId) => return self.tell_id(taken, memory),
            (_, Command::Flush) => {
                taken.life = mark(&*self.shared.device);
                (Operation::Flush, (0, 0))
            }
            (_, Command::Read { offset, bytes }) if fits(geometry, offset, bytes) => {
                (Operation::Read, (offset + taken.done, taken.part_bytes()))
            }
            (_, Command::Write { offset, bytes }) if fits(geometry, offset, bytes) => {
                let part = (offset + taken.done, taken.part_bytes());
                (Operation::Write { durable }, part)
            }
            (_, Command::Read { .. } | Command::Write { .. }) => {
                return self.refuse(taken, Status::IoError, memory);
            }
            (_, Command::Discard { offset, bytes }) => (Operation::Deallocate, (offset, bytes)),
            (_, command) => {
                let Command::WriteZeroes {
                    offset,
                    bytes,
                    unmap,
                } = command
                else {
                    unreachable!("all others are above");
                };
                let operation = Operation::WriteZeroes {
                    deallocate: unmap,
                    durable,
                };
                (operation, (offset, bytes))
            }
        };
        if operation.is_write() && self.shared.read_only {
            return self.refuse(taken, Status::IoError, memory);
        }
        if matches!(operation, Operation::Write { .. }) {
            let ring = self.rings[usize::from(taken.ring)].as_ref();
            let ring = ring.expect("a ring outlives its requests");
            let segments = (&*taken.request.data, taken.done);
            let copied = copy_in(&*ring.memory, segments, &mut memory, &mut self.scratch);
            if let Err(status) = copied {
                return self.refuse(taken, status, memory);
            }
        }
        let class = taken.class;
        self.io.submit(class, operation, range, memory, taken);
    }

    fn tell_id(&mut self, taken: Taken, memory: Vec<reactor::IoSlice>) {
        self.io.recycle(memory);
        let ring = self.rings[usize::from(taken.ring)].as_mut();
        let ring = ring.expect("a ring outlives its requests");
        let mut left = &self.shared.id[..];
        let mut status = Status::Ok;
        for segment in &taken.request.data {
            let len = left.len().min(segment.len as usize);
            let (piece, rest) = left.split_at(len);
            if vm_memory::Bytes::write_slice(&*ring.memory, piece, segment.address).is_err() {
                status = Status::IoError;
            }
            left = rest;
        }
        let len = u32::try_from(self.shared.id.len() - left.len()).expect("20 bytes");
        self.answer(taken, status, len);
    }

    fn refuse(&mut self, taken: Taken, status: Status, memory: Vec<reactor::IoSlice>) {
        self.io.recycle(memory);
        self.answer(taken, status, 0);
    }

    fn answer(&mut self, taken: Taken, status: Status, len: u32) {
        let Taken {
            ring,
            class,
            request,
            life,
            ..
        } = taken;
        // A Flush updates the mark when it is published.
        let at_once = class == Class::Latency || life != ABSENT;
        if let Some(ring) = &mut self.rings[usize::from(ring)] {
            ring.answer((request.head, at_once), request.status, status, len);
        }
        self.recycle(request);
    }

    fn recycle(&mut self, request: Request) {
        self.segments -= request.data.len();
        if self.spare.len() < SPARE_MAX && request.data.capacity() <= SEGMENTS_KEPT {
            self.spare.push(request.data);
        }
    }

    fn finish(&mut self, finished: Finished<Taken>) {
        let Finished {
            owner: mut taken,
            result,
            data,
        } = finished;
        let ring = self.rings[usize::from(taken.ring)].as_ref();
        let Some(ring) = ring.filter(|ring| ring.start == taken.start) else {
            self.io.recycle(data);
            return self.finish_late(taken, result);
        };
        let mut len = 0;
        let mut status = status_of(result);
        if let (Command::Read { bytes, .. }, Status::Ok) = (taken.command, status) {
            let segments = (&*taken.request.data, taken.done);
            match copy_out(&*ring.memory, segments, &data, &mut self.scratch) {
                Ok(()) => len = u32::try_from(bytes).expect("a request is bounded"),
                Err(failed) => status = failed,
            }
        }
        self.io.recycle(data);
        taken.done += taken.part_bytes();
        if status == Status::Ok && taken.part_bytes() > 0 {
            return self.ready[taken.class].push_front(taken);
        }
        let ring = usize::from(taken.ring);
        let is_told = taken.life != ABSENT && matches!(result, Ok(()) | Err(BlockError::CacheLost));
        let life = taken.life;
        self.answer(taken, status, len);
        if is_told && let Some(ring) = &self.rings[ring] {
            ring.flushed(life);
        }
    }

    /// Handles a request that finishes without a completion: its ring was
    /// [abandoned](Self::abandon), or the core ends.
    fn finish_late(&mut self, taken: Taken, result: Result<(), BlockError>) {
        if self.closing {
            return;
        }
        if taken.changes() {
            self.shared.write_is_over();
        }
        self.recycle(taken.request);
        if result == Err(BlockError::CacheLost) {
            // This Flush would have reported the loss; the next one must.
            self.shared.client.lost_before();
        }
    }

    /// Leaves the remaining chains of a stopping ring incomplete. Only later writes wait for those
    /// that are in the device.
    fn abandon(&mut self, index: u16) {
        let Some(Some(ring)) = self.rings.get_mut(usize::from(index)) else {
            // It has stopped meanwhile.
            return;
        };
        let start = std::mem::replace(&mut ring.start, 0);
        let is_its = |taken: &Taken| (taken.ring, taken.start) == (index, start);
        let unfinished = &mut ring.unfinished;
        for class in Class::ALL {
            for queue in [&mut self.ready[class], &mut self.held[class]] {
                queue.retain(|taken| {
                    let keeps = !is_its(taken);
                    if !keeps {
                        unfinished.push(taken.request.head);
                        self.segments -= taken.request.data.len();
                    }
                    keeps
                });
            }
        }
        let mut late_writes = 0;
        for taken in self.io.owners().filter(|taken| is_its(taken)) {
            unfinished.push(taken.request.head);
            late_writes += usize::from(taken.changes());
        }
        assert_eq!(unfinished.len(), ring.outstanding, "each is somewhere");
        ring.outstanding = 0;
        self.shared.hold_writes(late_writes);
    }

    /// Fails requests that wait for memory that can never become free.
    fn refuse_waiting(&mut self) {
        for class in Class::ALL {
            while let Some(taken) = self.ready[class].pop_front() {
                self.again = true;
                self.answer(taken, Status::IoError, 0);
            }
        }
    }

    /// Ends stopping rings that have nothing outstanding.
    fn settle(&mut self, cx: &mut Context<'_>) {
        let served = self.served.len();
        let rings = &mut self.rings;
        self.served.retain(|&index| {
            let slot = &mut rings[usize::from(index)];
            let Some(ring) = slot else { return false };
            ring.notify();
            if ring.outstanding > 0 || ring.stopping.is_none() {
                return true;
            }
            match ring.kick {
                Kick::Watched(file) => {
                    cx.driver.end_watch(file);
                    ring.kick = Kick::Ending(file);
                }
                Kick::Ending(_) => {}
                Kick::Absent => {
                    let ring = slot.take().expect("it was just there");
                    let done = ring.stopping.expect("asked above");
                    let stopped = Stopped {
                        base: ring.queue.next_avail(),
                        unfinished: ring.unfinished,
                    };
                    // The receiver may have timed out.
                    let _ = done.send(stopped);
                    return false;
                }
            }
            true
        });
        if served > 0 && self.served.is_empty() {
            cx.driver.buffers().release_free();
        }
    }

    fn end(&mut self, cx: &mut Context<'_>) {
        self.closing = true;
        for class in Class::ALL {
            self.ready[class].clear();
            self.held[class].clear();
        }
        // The driver drops their watches when it ends.
        self.rings.iter_mut().for_each(|ring| *ring = None);
        self.served.clear();
        self.io.close(cx);
    }
}

impl Service for VhostService {
    type Message = Message;

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        let Some(Completion { key, outcome }) = self.io.apply(completion, cx) else {
            return;
        };
        let Outcome::Readable(result) = outcome else {
            unreachable!("the service starts nothing else");
        };
        let Err(error) = result else {
            // The rings are checked in each turn.
            return;
        };
        let Some(Some(ring)) = self.rings.get_mut(key.index as usize) else {
            return;
        };
        match std::mem::replace(&mut ring.kick, Kick::Absent) {
            Kick::Ending(file) => cx.driver.close_file(file),
            Kick::Watched(file) => {
                cx.driver.close_file(file);
                ring.break_off(&format_args!("cannot poll its eventfd: {error}"));
            }
            Kick::Absent => {}
        }
    }

    fn message(&mut self, message: Message, cx: &mut Context<'_>) {
        match message {
            // Dropping the message drops the sender of its reply, which ends the wait for it.
            Message::Start(_) | Message::Stop(..) | Message::Call(..) | Message::Error(..)
                if self.closing => {}
            Message::Start(setup) => self.start(*setup, cx),
            Message::Stop(index, done) => {
                if let Some(Some(ring)) = self.rings.get_mut(usize::from(index)) {
                    ring.stopping = Some(done);
                }
            }
            Message::Abandon(index) => self.abandon(index),
            // The following turn checks.
            Message::Look => {}
            Message::Call(index, call, done) => {
                if let Some(Some(ring)) = self.rings.get_mut(usize::from(index)) {
                    call.iter().for_each(signal);
                    ring.call = call;
                }
                let _ = done.send(());
            }
            Message::Error(index, error, done) => {
                if let Some(Some(ring)) = self.rings.get_mut(usize::from(index)) {
                    error.iter().filter(|_| ring.broken).for_each(signal);
                    ring.error = error;
                }
                let _ = done.send(());
            }
            Message::Ping(ping) => drop(ping),
            Message::End => self.end(cx),
        }
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.took = false;
        self.again = passes(|| {
            let took = self.take();
            self.took |= took;
            let mut progress = took | self.begin(cx);
            self.io.turn(cx);
            while let Some(finished) = self.io.finished() {
                self.finish(finished);
                progress = true;
            }
            progress
        });
        if self.io.under_way() == 0 && !self.again {
            self.refuse_waiting();
        }
        self.settle(cx);
    }

    fn took_work(&self) -> bool {
        self.took
    }

    fn deadline(&self) -> Time {
        if self.again {
            return Time::ZERO;
        }
        self.io.deadline()
    }

    fn may_sleep(&mut self) -> bool {
        let mut idle = true;
        // At the segment limit, the rings continue when requests finish.
        let has_room = self.segments < SEGMENTS_MAX;
        for &index in &self.served {
            let Some(ring) = &mut self.rings[usize::from(index)] else {
                continue;
            };
            // A full ring continues when one of its requests finishes.
            if ring.takes() && has_room {
                idle &= !ring.arm() && ring.kick != Kick::Absent;
            }
        }
        idle
    }

    fn finished(&self) -> bool {
        self.closing && self.io.closed()
    }
}
