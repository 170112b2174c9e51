//! A submitter: the channel of one application thread through the switchboard.

use super::Switchboard;
use super::application_steering::Registration;
use super::direct_lane::DirectLane;
use super::ingress::{
    AbandonedWrites, Ingress, IngressCompletion, IngressRequest, Submitter, TargetNumber,
};
use super::limits::{
    DEPTH_MAX, MEMORY_BYTES_MAX, ROOM_BYTES_MAX, SUBMITTER_BYTES, SUBMITTER_DEPTH,
};
use super::request_steering::LoadTable;
use crate::namespace::RemoteNamespace;
use crate::recovery::epoch::Phase;
use crate::recovery::machine::OtherWay;
use crate::recovery::span::Span;
use base::Time;
use block::{
    BlockError, CacheLife, Capabilities, Channel, Completion, Device, DeviceError, Geometry,
    Operation, Request, Submit, SubmitterMemory,
};
use reactor::{Context, Driver, Guard, IoSlice, OpNamespace};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use switch::Class;

/// A remote namespace behind a [`Switchboard`]. Every thread that opens it becomes a submitter.
#[derive(Clone)]
pub struct SwitchedNamespace {
    board: Switchboard,
    remote: RemoteNamespace,
    target: Arc<TargetNumber>,
    namespace: u16,
    class: Class,
    depth: u32,
    bytes: u32,
    room: usize,
    steered: bool,
}

impl SwitchedNamespace {
    pub(super) fn new(
        board: Switchboard,
        remote: RemoteNamespace,
        target: Arc<TargetNumber>,
        namespace: u16,
    ) -> Self {
        let bytes = SUBMITTER_BYTES.min(remote.capabilities().max_transfer_bytes);
        Self {
            board,
            remote,
            target,
            namespace,
            class: Class::DEFAULT,
            depth: SUBMITTER_DEPTH,
            bytes,
            room: 0,
            steered: false,
        }
    }

    /// Opts threads that open the namespace in to application steering: they may be moved to other
    /// cores of the switchboard while they have the channel, unless they were pinned.
    #[must_use]
    pub const fn steered(mut self, steered: bool) -> Self {
        self.steered = steered;
        self
    }

    /// Sets the class of requests on channels opened from it.
    #[must_use]
    pub const fn with_class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// The same namespace; channels opened from it hold `depth` requests (1 to 4,096) of at most
    /// `bytes` bytes (one block up to the controller's limit). Both determine how much memory a
    /// channel may use.
    #[must_use]
    pub fn with_requests(mut self, depth: u32, bytes: u32) -> Self {
        let block = self.remote.geometry().block_bytes;
        let most = self.remote.capabilities().max_transfer_bytes;
        self.bytes = bytes.min(most).next_multiple_of(block).clamp(block, most);
        let room = MEMORY_BYTES_MAX / (2 * u64::from(self.bytes));
        self.depth = depth
            .clamp(1, DEPTH_MAX)
            .min(u32::try_from(room).unwrap_or(DEPTH_MAX));
        self
    }

    /// The same namespace; channels opened from it have `bytes` bytes of memory for reserved
    /// buffers, at most 1 GiB.
    #[must_use]
    pub(crate) fn with_room(mut self, bytes: u64) -> Self {
        self.room = usize::try_from(bytes.min(ROOM_BYTES_MAX)).expect("1 GiB is an address");
        self
    }

    /// Opens it as [`open`](Device::open) does, with its concrete type.
    pub(crate) fn open_switched(
        &self,
        driver: &mut dyn Driver,
    ) -> Result<SwitchedChannel, DeviceError> {
        SwitchedChannel::open(self.clone(), driver)
    }
}

impl fmt::Debug for SwitchedNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} through a switchboard", self.remote)
    }
}

impl Device for SwitchedNamespace {
    fn geometry(&self) -> Geometry {
        self.remote.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_transfer_bytes: self.bytes,
            // Requests of many threads already share a caravan, so commands over extents would gain
            // nothing.
            extents_max: 0,
            ..self.remote.capabilities()
        }
    }

    fn supports(&self, operation: Operation) -> bool {
        self.remote.supports(operation)
    }

    fn cache_losses(&self) -> u32 {
        self.remote.cache_losses()
    }

    fn cache_life(&self) -> CacheLife {
        self.remote.cache_life()
    }

    fn inherit_writes(&self) {
        self.remote.inherit_writes();
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        self.open_switched(driver)
            .map(|channel| Box::new(channel) as _)
    }
}

/// One thread's channel through a switchboard.
#[derive(Debug)]
pub struct SwitchedChannel {
    device: SwitchedNamespace,
    number: u32,
    submitter: Arc<Submitter>,
    memory: SubmitterMemory,
    /// Index of the switchboard's core whose ingress takes this thread's requests.
    core: usize,
    slots: Vec<Option<Pending>>,
    free: Vec<u32>,
    /// True if a request was put into the ingress since the last kick.
    is_put: bool,
    /// Registration for application steering, if this thread may be moved.
    registration: Option<Registration>,
    /// Bytes of data outstanding.
    outstanding_bytes: u64,
    /// Losses of the target's cache that a Flush of this thread has reported.
    reported: u32,
    /// Direct lane of the thread, for `Latency` work.
    direct: Option<DirectLane>,
    /// Requests of that lane, which has no queue any more, that do not fit into the ingress.
    displaced: VecDeque<(Request, Time)>,
    /// Completions of those that were given up meanwhile.
    given_up: VecDeque<Completion>,
    /// Key of the thread's waker in the association: a thread to which the namespace was reported
    /// gone has nothing outstanding that would wake it when it is back.
    waker: u64,
    closing: bool,
}

impl SwitchedChannel {
    fn open(device: SwitchedNamespace, driver: &mut dyn Driver) -> Result<Self, DeviceError> {
        let (depth, bytes) = (device.depth as usize, device.bytes as usize);
        let memory = SubmitterMemory::with_room(device.depth, bytes, device.room)?;
        let region = memory.region().clone();
        let submitter = Submitter::new(depth, region, driver.waker());
        let submitter = Arc::new(submitter.with_target(&device.target));
        device.board.inner.health.watch(&submitter);
        let number = device
            .board
            .inner
            .join(&submitter)
            .map_err(|error| DeviceError::Invalid(error.to_string()))?;
        let mut channel = Self {
            number,
            memory,
            submitter,
            core: 0,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..device.depth).rev().collect(),
            is_put: false,
            registration: device
                .steered
                .then(|| device.board.inner.steering.join(device.class))
                .flatten(),
            outstanding_bytes: 0,
            reported: device.remote.state().unflushed.reported(),
            direct: None,
            displaced: VecDeque::new(),
            given_up: VecDeque::new(),
            waker: device.remote.association().add_waker(driver.waker()),
            closing: false,
            device,
        };
        if channel.device.class == Class::Latency {
            channel.loads().direct(channel.core).enter();
        }
        channel.look_where(driver);
        if channel.device.class == Class::Latency {
            channel.direct = channel.open_direct(driver);
        }
        Ok(channel)
    }

    /// Returns the number of requests that it holds.
    pub(crate) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// The memory of its requests and reserved buffers.
    pub(crate) fn memory_mut(&mut self) -> &mut SubmitterMemory {
        &mut self.memory
    }

    /// Chooses the ingress of the core that the thread runs on now.
    #[inline]
    fn look_where(&mut self, driver: &dyn Driver) {
        let cores = &self.device.board.inner.cores;
        if cores.len() == 1 {
            return;
        }
        let here = driver.core();
        let core = cores
            .iter()
            .position(|&core| core == here)
            .unwrap_or(here.0 as usize % cores.len());
        let before = std::mem::replace(&mut self.core, core);
        if before != core && self.device.class == Class::Latency {
            self.loads().direct(before).leave();
            self.loads().direct(core).enter();
        }
        if let Some(registration) = &self.registration {
            registration.steered.note_core(here);
        }
    }

    /// Samples the load of a thread that may be moved, with a request that it just submitted.
    #[inline]
    fn note_load(&self, now: Time) {
        if let Some(registration) = &self.registration {
            let direct = self.direct.as_ref().map_or(0, DirectLane::bytes);
            let steered = &registration.steered;
            steered.note_request(now, self.outstanding_bytes + direct);
        }
    }

    /// Checks a request before it takes the direct lane or the ingress.
    fn check(&self, request: &mut Request) -> Result<(), BlockError> {
        let (geometry, capabilities) = (self.device.geometry(), self.device.capabilities());
        block::check(request, geometry, capabilities)?;
        // Shared memory can only be read.
        let is_shared = |data: &mut IoSlice| data.bytes().is_some() && data.bytes_mut().is_none();
        if request.operation == Operation::Read && request.data.as_mut().is_some_and(is_shared) {
            return Err(BlockError::Malformed);
        }
        Ok(())
    }

    fn loads(&self) -> &LoadTable {
        &self.device.board.inner.loads
    }

    /// Opens a direct lane if the core has few of them and the controller has more free queues than
    /// the switchboard's lanes need, which may not have taken theirs yet.
    fn open_direct(&self, driver: &mut dyn Driver) -> Option<DirectLane> {
        let free = self.device.remote.association().free_queues();
        let spare = free > self.device.board.inner.lanes_per_target;
        if !spare || !self.loads().has_few_submitters(self.core) {
            return None;
        }
        let depth = u16::try_from(self.device.depth).unwrap_or(u16::MAX);
        let remote = self.device.remote.clone().with_queues(1, depth);
        let remote = remote.with_other_way(OtherWay::Taken);
        let channel = remote.with_class(self.device.class).open_remote(driver);
        channel.ok().map(DirectLane::new)
    }

    fn ingress(&self) -> &Ingress {
        &self.device.board.inner.ingresses[self.core]
    }

    /// Returns true if a dataplane thread broke: outstanding requests end without an answer.
    fn is_broken(&self) -> bool {
        self.device.board.inner.health.is_broken()
    }

    fn complete_one(&mut self, done: IngressCompletion) -> Completion {
        let IngressCompletion { slot, result, .. } = done;
        let pending = self.slots[slot as usize]
            .take()
            .expect("a request is answered once");
        self.submitter.is_over(slot);
        self.free.push(slot);
        let mut data = pending.data;
        self.outstanding_bytes -= data.as_ref().map_or(0, IoSlice::len) as u64;
        if let Some(place) = pending.bounce {
            if let (true, true, Some(data)) = (pending.reads, result.is_ok(), &mut data) {
                self.memory.copy_back(place, data);
            }
            self.memory.free(place);
        }
        Completion {
            tag: pending.tag,
            result: match pending.reported {
                Some(reported) => self.flushed(result, done.losses, reported),
                None => result,
            },
            data,
        }
    }

    /// Returns the result of a Flush for this thread. `losses` is the number of cache losses before
    /// its answer, `reported` the number that the thread knew when it submitted the Flush. A lane
    /// reports a loss only to the first thread that flushes by it, but every thread must see each
    /// loss once, because its writes may be among the lost ones.
    fn flushed(
        &mut self,
        result: Result<(), BlockError>,
        losses: u32,
        reported: u32,
    ) -> Result<(), BlockError> {
        match result {
            Ok(()) | Err(BlockError::CacheLost) if losses <= reported => Ok(()),
            Ok(()) | Err(BlockError::CacheLost) => {
                self.reported = self.reported.max(losses);
                Err(BlockError::CacheLost)
            }
            _ => result,
        }
    }
}

impl SwitchedChannel {
    /// Submits a request that is given up at `limit`, with [`BlockError::TimedOut`]. Whether a
    /// write was done is not known then.
    pub(crate) fn submit_until(
        &mut self,
        mut request: Request,
        limit: Time,
        cx: &mut Context<'_>,
    ) -> Submit {
        if self.closing {
            return Submit::Done(request.ended(Err(BlockError::Aborted)));
        }
        if self.is_broken() || self.device.remote.state().is_gone() {
            return Submit::Done(request.ended(Err(BlockError::Gone)));
        }
        if let Err(error) = self.check(&mut request) {
            return Submit::Done(request.ended(Err(error)));
        }
        let loads = &self.device.board.inner.loads;
        if let Some(direct) = &mut self.direct
            && direct.is_better(request.operation, self.core, loads)
        {
            let submit = direct.submit(request, limit, self.core, loads, cx);
            self.note_load(cx.now);
            return submit;
        }
        match self.put(request, limit) {
            Ok(()) => self.note_load(cx.now),
            Err(request) => return Submit::Busy(request),
        }
        Submit::Queued
    }

    /// Puts a request into the ingress. Returns it if there is no room.
    #[allow(clippy::result_large_err)] // The caller gets its request back, to submit it later.
    #[inline]
    fn put(&mut self, request: Request, limit: Time) -> Result<(), Request> {
        let Some(&slot) = self.free.last() else {
            return Err(request);
        };
        let mut bounce = None;
        let mut range = None;
        if let Some(data) = &request.data {
            let length = narrow(data.len());
            let Some(placed) = self.memory.place(data, request.operation) else {
                return Err(request);
            };
            (bounce, range) = (placed.bounce, Some((narrow(placed.offset), length)));
        }
        let entry = IngressRequest {
            submitter: self.number,
            slot,
            target: self.device.target.0,
            namespace: self.device.namespace,
            class: self.device.class,
            steered: false,
            operation: request.operation,
            lba: request.lba,
            blocks: request.blocks,
            data: range,
            limit,
        };
        if self.ingress().put(entry).is_err() {
            if let Some(place) = bounce {
                self.memory.free(place);
            }
            return Err(request);
        }
        self.submitter.asked();
        self.free.pop();
        assert!(
            self.slots[slot as usize].is_none(),
            "a slot has one request"
        );
        self.is_put = true;
        self.outstanding_bytes += request.data.as_ref().map_or(0, IoSlice::len) as u64;
        self.slots[slot as usize] = Some(Pending {
            tag: request.tag,
            data: request.data,
            bounce,
            reads: request.operation == Operation::Read,
            reported: (request.operation == Operation::Flush).then_some(self.reported),
            written: request.operation.is_write().then(|| Span {
                nsid: self.device.remote.state().nsid,
                start: request.lba.0,
                end: request.lba.0 + u64::from(request.blocks),
            }),
        });
        Ok(())
    }
}

fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).expect("a channel's memory is less than 4 GiB")
}

impl Channel for SwitchedChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        self.submit_until(request, Time::NEVER, cx)
    }

    fn cancel(&mut self, tag: u64, cx: &mut Context<'_>) -> bool {
        let direct = self.direct.as_mut();
        let in_direct = direct.is_some_and(|direct| direct.channel().cancel(tag, cx));
        let in_displaced = self.give_up_displaced(tag);
        self.give_up_put(tag) | in_direct | in_displaced
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        if let Some(direct) = &mut self.direct {
            direct.channel().kick(cx);
        }
        if std::mem::take(&mut self.is_put) {
            self.ingress().sleeper.ring();
        }
        self.look_where(cx.driver);
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        let direct = self.direct.as_ref();
        direct.is_some_and(|direct| direct.channel_ref().owns(op_namespace))
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        if let Some(direct) = &mut self.direct {
            direct.channel().complete(completion, cx);
        }
    }

    fn reap(&mut self) -> Option<Completion> {
        let loads = &self.device.board.inner.loads;
        if let Some(direct) = &mut self.direct
            && let Some(done) = direct.reap(loads)
        {
            return Some(done);
        }
        if let Some(done) = self.given_up.pop_front() {
            return Some(done);
        }
        if self.is_broken() {
            if let Some((request, _)) = self.displaced.pop_front() {
                return Some(request.ended(Err(BlockError::Gone)));
            }
            let slot = self.slots.iter().position(Option::is_some)?;
            return Some(self.complete_one(IngressCompletion {
                slot: narrow(slot),
                result: Err(BlockError::Gone),
                losses: 0,
            }));
        }
        let done = self.submitter.take()?;
        Some(self.complete_one(done))
    }

    fn losses(&self) -> Option<u32> {
        Some(self.reported)
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.submitter.sleeper.awake();
        if let Some(direct) = &mut self.direct {
            direct.channel().tick(cx);
            if self.closing {
                direct.close_if_quiet(cx);
            }
            self.redirect();
        }
        self.kick(cx);
    }

    fn deadline(&self) -> Time {
        // No thread wakes this one when the ingress has room again.
        let waits_for_ingress = !self.displaced.is_empty() && !self.free.is_empty();
        // Called before a sleep: from now on a dataplane thread with a completion wakes this
        // thread.
        if !self.submitter.may_sleep() || waits_for_ingress {
            return Time::ZERO;
        }
        let direct = self.direct.as_ref();
        direct.map_or(Time::NEVER, |direct| direct.deadline(self.closing))
    }

    fn is_served_elsewhere(&self) -> bool {
        !self.direct.as_ref().is_some_and(DirectLane::is_busy)
    }

    fn is_back(&self) -> bool {
        let remote = &self.device.remote;
        let is_gone = self.is_broken() || remote.state().is_gone();
        if is_gone || remote.association().phase() != Phase::Live {
            return false;
        }
        // The lanes follow the association: a request that arrives before they do waits for them.
        // Lanes without a queue are marked as refused.
        let (target, class) = (usize::from(self.device.target.0), self.device.class);
        !self.loads().is_refused(self.core, target, class)
    }

    fn memory(&mut self, bytes: usize) -> Option<IoSlice> {
        // A thread that still serves may write into this memory.
        if self.is_broken() {
            return None;
        }
        self.memory.lend(bytes)
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.closing = true;
        if let Some(direct) = &mut self.direct {
            direct.close_if_quiet(cx);
        }
    }

    fn closed(&self) -> bool {
        let is_closed = |direct: &DirectLane| !direct.is_busy() && direct.channel_ref().closed();
        let is_quiet = self.displaced.is_empty() && self.free.len() == self.slots.len();
        self.closing && is_quiet && self.direct.as_ref().is_none_or(is_closed)
    }

    /// Dataplane threads have copies of the data, and hold newer writes back until the abandoned
    /// ones have ended.
    fn abandon(&mut self, guard: &Guard) {
        if let Some(direct) = &mut self.direct {
            direct.channel().abandon(guard);
        }
    }
}

impl Drop for SwitchedChannel {
    fn drop(&mut self) {
        self.device.remote.association().remove_waker(self.waker);
        let loads = &self.device.board.inner.loads;
        if let Some(direct) = &mut self.direct {
            direct.abandon(loads);
        }
        if self.device.class == Class::Latency {
            loads.direct(self.core).leave();
        }
        self.abandon_writes();
        self.device.board.inner.leave(self.number);
    }
}

impl SwitchedChannel {
    /// Gives up the outstanding writes, and holds newer writes of their blocks back until no
    /// dataplane thread has one of them. A path reports them to other threads as aborted.
    fn abandon_writes(&mut self) {
        let association = self.device.remote.association();
        let slots = (0..).zip(&self.slots);
        let writes = slots.filter_map(|(slot, pending)| Some((slot, pending.as_ref()?.written?)));
        let (slots, spans): (Vec<u32>, Vec<_>) = writes.unzip();
        if slots.is_empty() {
            return;
        }
        let abandoned = AbandonedWrites::hold(association, spans);
        self.submitter.abandon(abandoned);
        slots
            .into_iter()
            .for_each(|slot| self.submitter.give_up(slot));
        for ingress in self.device.board.inner.ingresses.iter() {
            ingress.look_for_given_up();
        }
    }
}

impl SwitchedChannel {
    /// Puts the requests of a direct lane without a queue into the ingress.
    fn redirect(&mut self) {
        let Some(direct) = &mut self.direct else {
            return;
        };
        let loads = &self.device.board.inner.loads;
        while let Some(displaced) = direct.take_displaced(loads) {
            self.displaced.push_back(displaced);
        }
        if self.is_broken() {
            return;
        }
        while let Some((request, limit)) = self.displaced.pop_front() {
            if let Err(request) = self.put(request, limit) {
                self.displaced.push_front((request, limit));
                return;
            }
        }
    }

    /// Cancels displaced requests with this tag that wait for room in the ingress.
    fn give_up_displaced(&mut self, tag: u64) -> bool {
        let before = self.displaced.len();
        for _ in 0..before {
            let (request, limit) = self.displaced.pop_front().expect("counted above");
            if request.tag == tag {
                let ended = request.ended(Err(BlockError::Aborted));
                self.given_up.push_back(ended);
            } else {
                self.displaced.push_back((request, limit));
            }
        }
        self.displaced.len() < before
    }

    /// Cancels requests with this tag that were put into an ingress: every dataplane thread
    /// searches for them.
    fn give_up_put(&mut self, tag: u64) -> bool {
        let mut found = false;
        for (slot, pending) in (0..).zip(&self.slots) {
            if pending.as_ref().is_some_and(|pending| pending.tag == tag) {
                self.submitter.give_up(slot);
                found = true;
            }
        }
        if found {
            for ingress in self.device.board.inner.ingresses.iter() {
                ingress.look_for_given_up();
            }
        }
        found
    }
}

/// A request in the ingress or on a lane.
#[derive(Debug)]
struct Pending {
    tag: u64,
    /// Data that it was submitted with.
    data: Option<IoSlice>,
    /// Bounce buffer in the channel's memory, if the data is in other memory.
    bounce: Option<u32>,
    /// The data must be copied back from the bounce buffer.
    reads: bool,
    /// For a Flush: the losses of the target's cache that had been reported when it was submitted.
    reported: Option<u32>,
    /// The blocks that it writes.
    written: Option<Span>,
}
