//! One core's channel to a remote namespace: its lanes, and the requests that wait for a lane.
//!
//! The channel follows the association by its [state machine](crate::recovery::machine): it opens
//! its lanes when an association is live, closes them when it is lost, keeps unanswered requests,
//! and sends them again on the next association (docs/design/decisions/0004-replay.md). Two
//! invariants: it never completes a request as done that no controller answered, and no newer write
//! overtakes an overlapping one that is being sent again.
//!
//! A request enters in `submit`, is sent by its lane's queue pair, and ends in `reap`. `follow`
//! moves the state machine, and `lost` has the requests that lost their connection.

mod follow;
mod lanes;
mod lost;
mod reap;
mod submit;

use crate::association::Association;
use crate::association::NamespaceState;
use crate::command::apart::ApartCommands;
use crate::command::exchange::Exchange;
use crate::command::extents::ExtentsRequest;
use crate::info::Parameters;
use crate::qpair::QpairConfig;
use crate::recovery::epoch::{Epoch, Phase};
use crate::recovery::machine::{Cause, ChannelMachine, ChannelState, OtherWay};
use crate::recovery::replay::Recovery;
use crate::recovery::rest::Rest;
use base::{ShortQueue, Time};
use block::{
    Capabilities, Channel, Completion, DeviceError, Extents, Request, Submit, SubmitExtents,
};
use lanes::Lanes;
use reactor::{Context, Driver, Guard, OpNamespace, OpNamespaceLease, Wake};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::doorbell::{self, Mode};
use switch::{CaravanLimits, Class};

/// A namespace served by a channel.
#[derive(Debug)]
struct ChannelNamespace {
    state: Arc<NamespaceState>,
    capabilities: Capabilities,
    /// Losses of unflushed writes that a Flush of this channel has reported.
    reported: u32,
}

/// The requests of a channel that are in no lane.
#[derive(Debug)]
struct Requests {
    /// Requests that wait for a lane, in order; at most `capacity`.
    waiting: VecDeque<Exchange>,
    /// Completions that were not reaped yet, oldest first.
    done: ShortQueue<Completion>,
    /// Number of completions that were reaped.
    reaped: u64,
    /// Flushes among `done`: the number of completions up to each, and the cache losses known when
    /// it completed.
    flushes: VecDeque<(u64, u32)>,
    /// The last reaped Flush: the number of completions up to it, and the cache losses.
    flush: (u64, u32),
    /// Requests of a channel without a queue, with their limits, for the channel's owner to take.
    displaced: VecDeque<(Request, Time)>,
    /// Commands over extents that were not reaped yet.
    done_extents: VecDeque<Extents>,
    /// Unused memory of such commands.
    #[expect(
        clippy::vec_box,
        reason = "slots are small, and the boxes themselves are used again"
    )]
    spare: Vec<Box<ExtentsRequest>>,
    /// Requests that were not reaped yet, wherever they are.
    outstanding: usize,
    /// Commands over extents that count against the controller's limit: those in `outstanding`, and
    /// given-up ones that were not answered.
    extents: usize,
    /// Commands over extents whose extents are sent as separate requests.
    apart: ApartCommands,
    /// Requests that all lanes can hold.
    capacity: usize,
    /// Lower bound of the [limits](Exchange::limit) of all outstanding requests.
    next_limit: Time,
}

/// One core's channel to a remote namespace, or (shared) to all of a controller.
#[derive(Debug)]
pub struct RemoteChannel {
    association: Arc<Association>,
    /// Key of the core's waker in the association.
    waker: Option<u64>,
    op_namespace: OpNamespaceLease,
    /// Namespaces that the lanes serve; never empty unless the channel is `shared`.
    namespaces: Vec<ChannelNamespace>,
    /// The lanes serve a switchboard: they stay when a namespace is removed.
    shared: bool,
    machine: ChannelMachine,
    /// The epoch that the channel follows.
    epoch: Epoch,
    /// Properties of the association on which the lanes were last opened.
    parameters: Parameters,
    lanes: Lanes,
    requests: Requests,
    recovery: Recovery,
    rest: Arc<Rest>,
    at_rest: bool,
}

impl RemoteChannel {
    /// Returns the association of the lanes.
    pub(crate) fn association(&self) -> &Association {
        &self.association
    }

    pub(crate) fn new(
        association: Arc<Association>,
        namespace: Arc<NamespaceState>,
        capabilities: Capabilities,
        class: Class,
        queues: u16,
        depth: u16,
        driver: &mut dyn Driver,
    ) -> Self {
        let waker = driver.waker();
        let mut channel = Self::shared(association, class, queues, depth, waker, driver);
        channel.shared = false;
        channel.add_namespace(namespace, capabilities);
        channel
    }

    /// Creates a channel for any namespaces of a controller, which
    /// [`add_namespace`](Self::add_namespace) registers and [`submit_to`](Self::submit_to) selects.
    /// `waker` is woken when the association moves.
    pub(crate) fn shared(
        association: Arc<Association>,
        class: Class,
        queues: u16,
        depth: u16,
        waker: Arc<dyn Wake>,
        driver: &mut dyn Driver,
    ) -> Self {
        let op_namespace = driver.lease_op_namespace();
        let (waker, rest) = association.add_channel(waker);
        let config = QpairConfig::new(association.options(), false);
        let depth = depth.min(association.parameters().depth.max(1));
        let (id, size) = (op_namespace.id(), (queues, depth));
        let mut lanes = Lanes::new(&config, id, size, driver.send_lists(), class);
        lanes.take_queues(&association, 0);
        let capacity = usize::from(queues) * usize::from(depth);
        Self {
            waker: Some(waker),
            op_namespace,
            namespaces: Vec::new(),
            shared: true,
            machine: ChannelMachine::new(association.options()),
            epoch: Epoch {
                generation: 0,
                phase: Phase::Connecting,
            },
            parameters: Parameters::default(),
            lanes,
            requests: Requests {
                waiting: VecDeque::with_capacity(capacity),
                done: ShortQueue::with_capacity(capacity),
                reaped: 0,
                flushes: VecDeque::new(),
                flush: (0, 0),
                displaced: VecDeque::new(),
                done_extents: VecDeque::new(),
                spare: Vec::new(),
                outstanding: 0,
                extents: 0,
                apart: ApartCommands::default(),
                capacity,
                next_limit: Time::NEVER,
            },
            recovery: Recovery::new(capacity),
            rest,
            at_rest: false,
            association,
        }
    }

    /// Adds a namespace that the lanes serve. Returns the number that
    /// [`submit_to`](Self::submit_to) takes.
    pub(crate) fn add_namespace(
        &mut self,
        state: Arc<NamespaceState>,
        capabilities: Capabilities,
    ) -> usize {
        let reported = state.unflushed.reported();
        self.requests.flush.1 = reported;
        self.namespaces.push(ChannelNamespace {
            reported,
            state,
            capabilities,
        });
        self.namespaces.len() - 1
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> ChannelState {
        self.machine.state()
    }

    /// Sets what happens to requests while the channel has no queue.
    pub(crate) fn set_other_way(&mut self, other_way: OtherWay) {
        self.machine.other_way = other_way;
    }

    /// Returns true if any lane has a queue. One is enough for all requests.
    pub(crate) fn has_queue(&self) -> bool {
        self.lanes.has_queue()
    }

    /// Returns true if the channel is live and a lane with a queue has no live connection. Such a
    /// lane is opened again after a delay.
    #[must_use]
    pub fn lacks_lane(&self) -> bool {
        let lacks = |lane: &lanes::Lane| lane.queue_id > 0 && !lane.qpair.is_live();
        self.state() == ChannelState::Live && self.lanes.all.iter().any(lacks)
    }

    /// Returns how often the lanes entered each state of a connection, with the state's name.
    pub fn connection_states_entered(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let lanes = self.lanes.all.iter();
        lanes.flat_map(|lane| lane.qpair.states_entered())
    }

    /// Returns the number of requests that were not reaped yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.requests.outstanding
    }

    /// Returns the number of requests that the channel accepts before it answers busy.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.requests.capacity
    }

    /// Returns the number of losses of the target's cache known to the last reaped Flush; 0 if the
    /// last completion is of another operation, or of a Flush that failed otherwise.
    #[inline]
    pub(crate) fn reaped_losses(&self) -> u32 {
        let (place, losses) = self.requests.flush;
        if place == self.requests.reaped {
            losses
        } else {
            0
        }
    }

    /// Sets the doorbell mode and the caravan limits of all lanes.
    pub(crate) fn set_doorbell(&mut self, mode: Mode, limits: CaravanLimits) {
        let class = self.lanes.class;
        for lane in &mut self.lanes.all {
            lane.qpair.pace(mode, limits, class);
        }
    }

    /// Adds the doorbell counters of all lanes to `counters`.
    pub(crate) fn add_doorbell_counters(&self, counters: &mut doorbell::DoorbellCounters) {
        for lane in &self.lanes.all {
            counters.merge(lane.qpair.doorbell_counters());
        }
    }

    /// Returns the namespace of the lanes' operations in the driver.
    pub(crate) fn op_namespace(&self) -> OpNamespace {
        self.op_namespace.id()
    }

    /// Returns the number of requests that wait for a doorbell.
    pub(crate) fn waiting_for_doorbell(&self) -> u32 {
        let lanes = self.lanes.all.iter();
        lanes.map(|lane| lane.qpair.waiting_for_doorbell()).sum()
    }

    /// Sends what is ready. Returns the bytes of data sent under a doorbell.
    pub(crate) fn pump(&mut self, cx: &mut Context<'_>) -> u64 {
        self.lanes.pump(cx)
    }

    /// Sends after an event. The owner of shared lanes pumps them itself at the end of its turn, in
    /// its own order.
    fn follow_up(&mut self, cx: &mut Context<'_>) {
        if !self.shared {
            self.pump(cx);
        }
    }
}

impl Channel for RemoteChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        self.submit_to(0, request, cx)
    }

    fn cancel(&mut self, tag: u64, cx: &mut Context<'_>) -> bool {
        Self::cancel(self, tag, cx)
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.pump(cx);
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        op_namespace == self.op_namespace.id()
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        if !self.is_awake() {
            self.follow(cx);
        }
        let index = completion.key.index as usize;
        self.lanes.all[index].qpair.apply(completion, cx);
        self.lanes.set_busy(index);
        self.check_lane(index, cx);
        self.send_waiting(cx);
    }

    fn reap(&mut self) -> Option<Completion> {
        let requests = &mut self.requests;
        let done = requests.done.pop_front()?;
        debug_assert!(requests.outstanding > 0, "a request ends once");
        requests.outstanding -= 1;
        requests.reaped += 1;
        let reaped = requests.reaped;
        let flush = requests.flushes.pop_front_if(|(place, _)| *place == reaped);
        requests.flush = flush.unwrap_or(requests.flush);
        Some(done)
    }

    fn losses(&self) -> Option<u32> {
        Some(self.requests.flush.1)
    }

    fn submit_extents(&mut self, command: Extents, cx: &mut Context<'_>) -> SubmitExtents {
        self.submit_extents_to(0, command, Time::NEVER, cx)
    }

    fn reap_extents(&mut self) -> Option<Extents> {
        self.take_extents()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.machine.make_up_for_absence(cx.now);
        self.follow(cx);
        self.check_loss(cx);
        if self.requests.next_limit <= cx.now {
            self.give_up_late(cx);
        }
        self.check_namespaces(cx);
        if self.machine.take_reopening(cx.now) && self.is_awake() {
            self.reopen(cx);
        }
        if self.state() == ChannelState::Live {
            let mut at = 0;
            while let Some(&index) = self.lanes.busy.get(at) {
                self.tick_lane(index, cx);
                at += usize::from(!self.lanes.visited(at));
            }
        } else {
            for index in 0..self.lanes.all.len() {
                self.tick_lane(index, cx);
            }
        }
        if self.state().is_over() && !self.retry(cx) {
            self.displace(cx.now);
        }
        self.send_waiting(cx);
        self.rest();
    }

    fn is_back(&self) -> bool {
        self.machine.is_back()
    }

    fn opened(&self) -> Option<Result<(), DeviceError>> {
        if !self.state().is_opening() {
            return Some(Ok(()));
        }
        let (queue, status) = self.machine.refusal?;
        if self.lanes.open() > 0 {
            return None;
        }
        Some(Err(DeviceError::NoQueue(format!(
            "{} at {} refused Connect of I/O queue {queue}: {status}; use fewer queues, or raise \
             the target's limits",
            self.association.options().subsystem,
            self.association.address()
        ))))
    }

    fn deadline(&self) -> Time {
        let of = |index: usize| self.lanes.all[index].qpair.deadline();
        let lanes = if self.state() == ChannelState::Live {
            self.lanes.busy.iter().map(|&index| of(index)).min()
        } else {
            (0..self.lanes.all.len()).map(of).min()
        };
        let has_room = || self.lanes.all.iter().any(|lane| lane.qpair.has_room());
        let replay = match self.state() {
            // The next answer makes room and sends the next request.
            ChannelState::Live if !self.recovery.is_empty() && !has_room() => Time::NEVER,
            ChannelState::Live | ChannelState::Gone | ChannelState::Closed => {
                self.recovery.deadline()
            }
            _ => Time::NEVER,
        };
        let lanes = lanes.unwrap_or(Time::NEVER);
        let own = self.requests.next_limit.min(self.machine.deadline());
        lanes.min(replay).min(own)
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        if self.state() != ChannelState::Closed {
            self.enter(Cause::Closed, cx);
            for index in 0..self.lanes.all.len() {
                self.check_lane(index, cx);
            }
        }
    }

    fn closed(&self) -> bool {
        self.lanes.all_closed()
    }

    fn abandon(&mut self, guard: &Guard) {
        self.op_namespace.abandon(guard);
    }
}

impl Drop for RemoteChannel {
    fn drop(&mut self) {
        if let Some(waker) = self.waker.take() {
            self.association.remove_waker(waker);
        }
        self.end_rest();
        self.let_go_all();
        self.close_blocks();
        self.association.leave_open(self.lanes.open());
        self.lanes.release_queues(&self.association, 0);
    }
}
