//! One core's way to a remote namespace: its lanes, and the requests that wait for one.
//!
//! A lane is a connection, an I/O queue of the controller's. The channel follows the association:
//! it opens its lanes when one is live, closes them when it is lost, keeps what was not answered,
//! and sends it again on the next (docs/decisions/0004-replay.md). It must never complete a
//! request as done that no controller answered, and never let a newer write overtake an
//! overlapping one that is being sent again.

mod barrier;
mod commands;
mod lanes;
mod replay;

pub use barrier::QueueFull;

use crate::association::Association;
use crate::association::namespace_state::NamespaceState;
use crate::association::parameters::Parameters;
use crate::command::BlockRequest;
use crate::command::exchange::Exchange;
use crate::command::table::{Finished, Outcome};
use crate::controller::qpair_config;
use crate::limits::RETRIES_PER_REQUEST_MAX;
use crate::qpair::{LaneDoorbell, Qpair};
use crate::recovery::epoch::{Epoch, Phase};
use crate::recovery::fences::{FenceSnapshot, ReplayPermission};
use crate::recovery::range_locks::RangeLocks;
use crate::recovery::status::{Verdict, judge};
use base::Time;
use base::mutation::{self, Mutation};
use block::{BlockError, Capabilities, Channel, Completion, Operation, Request, Submit};
use reactor::{Context, Driver, IoSlice, OpNamespace, OpNamespaceLease};
use replay::Replay;
use std::collections::VecDeque;
use std::sync::Arc;
use switch::doorbell::{self, Mode};
use switch::{CaravanLimits, Class};

/// What state a channel is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// No association is live: requests wait.
    Waiting,
    /// Lanes are being connected: requests wait until all are.
    Joining,
    /// Requests flow.
    Live,
    /// The association was lost: lanes are being closed.
    Leaving,
    /// It will not come back: requests fail.
    Gone,
}

/// A connection of the channel.
#[derive(Debug)]
struct Lane {
    qpair: Qpair,
    queue_id: u16,
    /// The association counts it as open.
    open: bool,
    /// It is among the busy ones.
    listed: bool,
}

/// A namespace whose requests a channel carries.
#[derive(Debug)]
struct ChannelNamespace {
    state: Arc<NamespaceState>,
    capabilities: Capabilities,
    /// Losses of unflushed writes that a Flush of this channel has reported.
    told: u32,
}

/// One core's channel to a remote namespace, or (shared) to all of a controller.
#[derive(Debug)]
pub struct RemoteChannel {
    association: Arc<Association>,
    /// Whose requests the lanes carry; never empty unless the channel is [`shared`](Self::shared).
    namespaces: Vec<ChannelNamespace>,
    /// The lanes are nobody's own: they stay when a namespace goes.
    shared: bool,
    /// What the lanes carry.
    class: Class,
    op_namespace: OpNamespaceLease,
    waker: Option<u64>,
    state: ChannelState,
    epoch: Epoch,
    parameters: Parameters,
    /// The association that the lanes were opened on last.
    joined: u64,
    /// What may still come of lost associations, and which change of it this is.
    fence_snapshot: FenceSnapshot,
    fence_version: u64,
    lanes: Vec<Lane>,
    /// While the channel is live: the lanes that have something under way. Others need no look in a
    /// turn, so what a turn takes follows the requests and not the connections.
    busy: Vec<usize>,
    next_lane: usize,
    /// Requests that no lane has yet, in order; never more than all lanes could hold.
    waiting: VecDeque<Exchange>,
    /// Requests that were lost with a connection.
    replay: VecDeque<Replay>,
    /// Writes among them may leave from then on.
    replay_writes_at: Time,
    /// When the lanes were closed last.
    left_at: Time,
    locks: RangeLocks,
    capacity: usize,
    /// Barriers that are not done; whether the first of them was sent.
    barriers: usize,
    barrier_sent: bool,
    outstanding: usize,
    done: VecDeque<Completion>,
    closing: bool,
}

impl RemoteChannel {
    pub(crate) fn new(
        association: Arc<Association>,
        namespace: Arc<NamespaceState>,
        capabilities: Capabilities,
        class: Class,
        queues: u16,
        depth: u16,
        driver: &mut dyn Driver,
    ) -> Self {
        let mut channel = Self::shared(association, class, queues, depth, driver);
        channel.shared = false;
        channel.add_namespace(namespace, capabilities);
        channel
    }

    /// A channel for any namespaces of a controller, which [`add_namespace`](Self::add_namespace)
    /// makes known and [`submit_to`](Self::submit_to) names.
    pub(crate) fn shared(
        association: Arc<Association>,
        class: Class,
        queues: u16,
        depth: u16,
        driver: &mut dyn Driver,
    ) -> Self {
        let op_namespace = driver.lease_op_namespace();
        let waker = association.add_waker(driver.waker());
        let config = qpair_config(association.options(), false);
        let depth = depth.min(association.parameters().depth.max(1));
        let lanes: Vec<_> = (0..u32::from(queues))
            .map(|index| Lane {
                qpair: Qpair::new(config.clone(), op_namespace.id(), index, depth),
                queue_id: 0,
                open: false,
                listed: false,
            })
            .collect();
        let capacity = lanes.len() * usize::from(depth);
        let mut channel = Self {
            op_namespace,
            class,
            waker: Some(waker),
            state: ChannelState::Waiting,
            epoch: Epoch {
                generation: 0,
                phase: Phase::Connecting,
            },
            parameters: Parameters::default(),
            joined: 0,
            fence_snapshot: FenceSnapshot::default(),
            fence_version: 0,
            busy: Vec::with_capacity(lanes.len()),
            lanes,
            next_lane: 0,
            waiting: VecDeque::with_capacity(capacity),
            replay: VecDeque::with_capacity(capacity),
            replay_writes_at: Time::ZERO,
            left_at: Time::ZERO,
            locks: RangeLocks::with_capacity(capacity),
            capacity,
            barriers: 0,
            barrier_sent: false,
            outstanding: 0,
            done: VecDeque::with_capacity(capacity),
            closing: false,
            association,
            namespaces: Vec::new(),
            shared: true,
        };
        channel.number_lanes();
        channel
    }

    /// Another namespace whose requests the lanes carry: the number that
    /// [`submit_to`](Self::submit_to) takes.
    pub(crate) fn add_namespace(
        &mut self,
        state: Arc<NamespaceState>,
        capabilities: Capabilities,
    ) -> usize {
        let told = state.unflushed.told();
        self.namespaces.push(ChannelNamespace {
            told,
            state,
            capabilities,
        });
        self.namespaces.len() - 1
    }

    /// Whether everything that the channel was opened for is gone.
    fn is_deserted(&self) -> bool {
        !self.shared && self.namespaces.iter().all(|entry| entry.state.is_gone())
    }

    /// The state now.
    #[must_use]
    pub fn state(&self) -> ChannelState {
        self.state
    }

    /// Requests that were not reaped yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// How many requests the channel takes before it answers busy.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// A write without FUA was acknowledged.
    #[inline]
    fn wrote(&self, namespace: u16) {
        if !self.parameters.features.volatile_cache {
            return;
        }
        let unflushed = &self.namespaces[usize::from(namespace)].state.unflushed;
        unflushed.wrote();
        if self.association.caches_lost() >= self.joined {
            // The answer is older than the loss, and was not known when that was noticed.
            unflushed.lose_answered();
        }
    }

    /// A Flush was done: it fails all the same where it promised what was lost before.
    fn flushed(&mut self, request: &BlockRequest) -> Result<(), BlockError> {
        let (mark, told) = request.promise();
        let entry = &mut self.namespaces[usize::from(request.namespace)];
        let unflushed = &entry.state.unflushed;
        unflushed.flushed(mark);
        let losses = unflushed.losses();
        if losses == told {
            return Ok(());
        }
        entry.told = losses;
        unflushed.tell(losses);
        Err(BlockError::CacheLost)
    }

    /// Ends a request.
    fn finish(&mut self, exchange: Exchange, mut result: Result<(), BlockError>) {
        if let Some(&request) = exchange.request().filter(|_| result.is_ok()) {
            if request.is_cached() {
                self.wrote(request.namespace);
            } else if request.operation == Operation::Flush {
                result = self.flushed(&request);
            }
        }
        if exchange.replayed
            && let Some(request) = exchange.request()
        {
            self.locks.unlock(request);
        }
        if exchange.is_barrier() {
            self.barriers -= 1;
            self.barrier_sent = false;
        }
        let private = exchange
            .request()
            .is_some_and(|request| request.private_data);
        if mutation::active(Mutation::CompletedTwice) {
            let (tag, data) = (exchange.tag, None);
            self.done.push_back(Completion { tag, result, data });
        }
        self.done.push_back(Completion {
            tag: exchange.tag,
            result,
            data: exchange.data.filter(|_| !private),
        });
    }

    /// Whether the volume that a request is for went away: its NSID may name another one now, so
    /// nothing more of the request may be sent.
    fn is_gone(&self, exchange: &Exchange) -> bool {
        let request = exchange.request();
        request.is_some_and(|request| {
            let number = usize::from(request.namespace);
            self.namespaces[number].state.is_gone()
        })
    }

    /// The lane that has room and comes next.
    #[inline]
    fn free_lane(&mut self) -> Option<usize> {
        for _ in 0..self.lanes.len() {
            let lane = self.next_lane;
            self.next_lane = if lane + 1 == self.lanes.len() {
                0
            } else {
                lane + 1
            };
            if self.lanes[lane].qpair.has_room() {
                return Some(lane);
            }
        }
        None
    }

    /// Whether a request has to wait although the channel is live.
    fn must_wait(&self, exchange: &Exchange) -> bool {
        if self.state != ChannelState::Live || self.barriers > 0 {
            return true;
        }
        if self.locks.is_empty() {
            return !self.waiting.is_empty();
        }
        let request = exchange.request();
        request.is_some_and(|request| self.locks.blocks(request))
    }

    /// Takes what the lanes finished.
    fn collect(&mut self, lane: usize, cx: &mut Context<'_>) {
        loop {
            let table = self.lanes[lane].qpair.table();
            if let Some((tag, data, cached)) = table.take_done() {
                let result = Ok(());
                if let Some(namespace) = cached {
                    self.wrote(namespace);
                }
                self.done.push_back(Completion { tag, result, data });
            } else if let Some(finished) = table.take_finished() {
                self.finished(finished, cx);
            } else {
                return;
            }
        }
    }

    fn finished(&mut self, finished: Finished, cx: &mut Context<'_>) {
        let Finished {
            mut exchange,
            outcome,
        } = finished;
        let completion = match outcome {
            Outcome::Answered(completion) => completion,
            Outcome::TimedOut => return self.finish(exchange, Err(BlockError::TimedOut)),
            Outcome::Lost if mutation::active(Mutation::LostWriteDone) => {
                return self.finish(exchange, Ok(()));
            }
            Outcome::Lost => return self.lost(exchange),
        };
        match judge(completion.status) {
            Verdict::Done => self.part_done(exchange, cx.now),
            Verdict::Retry(error) if exchange.retries >= RETRIES_PER_REQUEST_MAX => {
                self.finish(exchange, Err(error));
            }
            Verdict::Retry(_) => {
                exchange.retries += 1;
                self.replay.push_back(exchange.into());
                self.drain_waiting(cx.now);
            }
            Verdict::Failed(error) => self.finish(exchange, Err(error)),
        }
    }

    /// A command succeeded; its request may need another one for the rest of its range.
    #[inline]
    fn part_done(&mut self, mut exchange: Exchange, now: Time) {
        let replayed = exchange.replayed;
        let Some(request) = exchange.request_mut() else {
            return self.finish(exchange, Ok(()));
        };
        if request.blocks_left == 0 || mutation::active(Mutation::SplitDoneEarly) {
            self.finish(exchange, Ok(()));
            return;
        }
        let state = &self.namespaces[usize::from(request.namespace)].state;
        if state.is_gone() {
            self.finish(exchange, Err(BlockError::Gone));
            return;
        }
        if replayed {
            self.locks.unlock(request);
        }
        request.advance(state.geometry(), &self.parameters);
        if replayed {
            self.locks.lock(request);
        }
        let range = request.private_data.then(|| request.range());
        if let (Some(range), Some(list)) = (range, &mut exchange.data) {
            list.copy_in(0, &range.to_bytes());
        }
        exchange.retries = 0;
        match self.free_lane() {
            Some(lane) => self.start(lane, exchange, now),
            None => self.replay.push_front(exchange.into()),
        }
    }

    /// Commands of all lanes leave by these rules from now on.
    pub(crate) fn set_doorbell(&mut self, mode: Mode, limits: CaravanLimits) {
        for lane in &mut self.lanes {
            match lane.qpair.doorbell() {
                Some(doorbell) => doorbell.reconfigure(mode, limits),
                None => {
                    let doorbell = LaneDoorbell::new(mode, limits, self.class);
                    lane.qpair.set_doorbell(doorbell);
                }
            }
        }
    }

    /// Adds to `counters` what left on the lanes, and why.
    pub(crate) fn add_doorbell_counters(&mut self, counters: &mut doorbell::DoorbellCounters) {
        for lane in &mut self.lanes {
            if let Some(doorbell) = lane.qpair.doorbell() {
                counters.merge(doorbell.counters());
            }
        }
    }

    /// Requests that wait for a doorbell.
    pub(crate) fn waiting_for_doorbell(&mut self) -> u32 {
        let lanes = self.lanes.iter_mut();
        lanes
            .filter_map(|lane| lane.qpair.doorbell().map(|doorbell| doorbell.waiting()))
            .sum()
    }

    /// Sends what may leave; how many bytes of data did, where there is a rule for it.
    pub(crate) fn pump(&mut self, cx: &mut Context<'_>) -> u64 {
        let Self { busy, lanes, .. } = self;
        let busy = busy.iter();
        busy.map(|&index| lanes[index].qpair.pump(cx)).sum()
    }

    /// Gives a lane with room a request.
    fn start(&mut self, lane: usize, exchange: Exchange, now: Time) {
        self.lanes[lane].qpair.start(exchange, now);
        self.list(lane);
    }

    /// A lane needs a look in each turn until it has nothing under way any more.
    fn list(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        if !std::mem::replace(&mut lane.listed, true) {
            self.busy.push(index);
        }
    }

    /// What of a lane is due.
    fn tick_lane(&mut self, index: usize, cx: &mut Context<'_>) {
        if self.lanes[index].qpair.tick(cx) {
            self.look_for_timeouts(index, cx);
        }
        if self.state != ChannelState::Live || !self.lanes[index].qpair.is_live() {
            self.check_lane(index, cx);
        }
    }

    /// What of the busy lanes is due; those that have nothing under way are busy no more.
    fn tick_busy(&mut self, cx: &mut Context<'_>) {
        let mut at = 0;
        while let Some(&index) = self.busy.get(at) {
            self.tick_lane(index, cx);
            if self.lanes[index].qpair.is_idle() {
                self.lanes[index].listed = false;
                self.busy.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// What an event made ready leaves at once, unless the lanes are shared: then their owner
    /// pumps them at the end of its turn, in an order of its own.
    fn follow_up(&mut self, cx: &mut Context<'_>) {
        if !self.shared {
            self.pump(cx);
        }
    }
}

impl RemoteChannel {
    /// Takes a request for the namespace with this number.
    pub(crate) fn submit_to(
        &mut self,
        namespace: usize,
        mut request: Request,
        cx: &mut Context<'_>,
    ) -> Submit {
        if self.outstanding >= self.capacity {
            return Submit::Busy(request);
        }
        let tag = request.tag;
        let entry = &self.namespaces[namespace];
        let refused = |error, data: Option<IoSlice>| {
            Submit::Done(Completion {
                tag,
                result: Err(error),
                data,
            })
        };
        if self.closing {
            return refused(BlockError::Aborted, request.data);
        }
        if self.state == ChannelState::Gone || entry.state.is_gone() {
            return refused(BlockError::Gone, request.data);
        }
        let capabilities = Capabilities {
            read_only: entry.state.read_only(),
            ..entry.capabilities
        };
        let geometry = entry.state.geometry();
        if let Err(error) = block::check(&request, geometry, capabilities) {
            return refused(error, request.data);
        }
        let latest;
        let parameters = if self.state == ChannelState::Live {
            &self.parameters
        } else {
            latest = self.association.parameters();
            &latest
        };
        if let Err(error) = commands::allowed(&mut request, geometry, parameters) {
            return refused(error, request.data);
        }
        let buffers = cx.driver.buffers();
        let nsid = entry.state.nsid;
        let names = (u16::try_from(namespace).expect("at most 1,024"), nsid);
        let mut exchange = match commands::exchange(request, names, geometry, parameters, buffers) {
            Ok(exchange) => exchange,
            Err(request) => return Submit::Busy(request),
        };
        if let Some(request) = exchange.request_mut()
            && request.operation == Operation::Flush
        {
            request.set_promise(entry.state.unflushed.begin_flush(), entry.told);
        }
        self.refresh_fences();
        let closed = exchange.request();
        if let Some(request) = closed.filter(|request| self.is_fenced(request)) {
            let private = request.private_data;
            return refused(BlockError::TimedOut, exchange.data.filter(|_| !private));
        }
        self.outstanding += 1;
        let lane = if self.must_wait(&exchange) {
            None
        } else {
            self.free_lane()
        };
        match lane {
            Some(lane) => self.start(lane, exchange, cx.now),
            None => self.waiting.push_back(exchange),
        }
        Submit::Queued
    }
}

impl Channel for RemoteChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        self.submit_to(0, request, cx)
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.pump(cx);
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        op_namespace == self.op_namespace.id()
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        let index = completion.key.index as usize;
        self.lanes[index].qpair.apply(completion, cx);
        self.list(index);
        self.check_lane(index, cx);
        if !self.waiting.is_empty() || !self.replay.is_empty() {
            self.drain_waiting(cx.now);
            self.follow_up(cx);
        }
    }

    fn reap(&mut self) -> Option<Completion> {
        let done = self.done.pop_front()?;
        self.outstanding -= 1;
        Some(done)
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.follow(cx);
        if self.state != ChannelState::Gone && !self.closing && self.is_deserted() {
            if self.lanes.iter().all(|lane| lane.qpair.is_closed()) {
                self.gone(BlockError::Gone);
            } else if self.state != ChannelState::Leaving {
                self.leave(cx);
            }
        }
        if self.state == ChannelState::Live {
            self.tick_busy(cx);
        } else {
            for index in 0..self.lanes.len() {
                self.tick_lane(index, cx);
            }
        }
        if !self.waiting.is_empty() || !self.replay.is_empty() {
            self.drain_waiting(cx.now);
            self.follow_up(cx);
        }
    }

    fn deadline(&self) -> Time {
        let of = |index: usize| self.lanes[index].qpair.deadline();
        let lanes = if self.state == ChannelState::Live {
            self.busy.iter().map(|&index| of(index)).min()
        } else {
            (0..self.lanes.len()).map(of).min()
        };
        // Who waits for a fence is woken when it falls.
        let waits = |replay: &Replay| {
            self.fence_snapshot.replay_permission(replay.lost_with) == ReplayPermission::Fenced
        };
        let due = !self.replay.iter().all(waits);
        let replay = if self.state == ChannelState::Live && due {
            self.replay_writes_at
        } else {
            Time::NEVER
        };
        lanes.unwrap_or(Time::NEVER).min(replay)
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        if self.closing {
            return;
        }
        self.closing = true;
        if self.state == ChannelState::Gone {
            return;
        }
        self.leave(cx);
        self.gone(BlockError::Aborted);
        for index in 0..self.lanes.len() {
            self.check_lane(index, cx);
        }
    }

    fn closed(&self) -> bool {
        self.lanes.iter().all(|lane| lane.qpair.is_closed())
    }
}

impl Drop for RemoteChannel {
    fn drop(&mut self) {
        if let Some(waker) = self.waker.take() {
            self.association.remove_waker(waker);
        }
        for lane in &self.lanes {
            if lane.open {
                self.association.leave_open();
            }
            if lane.queue_id > 0 {
                self.association.release_queue(lane.queue_id);
            }
        }
    }
}
