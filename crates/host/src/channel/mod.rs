//! One core's way to a remote namespace: its lanes, and the requests that wait for one.
//!
//! A lane is a connection, an I/O queue of the controller's. The channel follows the association:
//! it opens its lanes when one is live, closes them when it is lost, keeps what was not answered,
//! and sends it again on the next (docs/design/decisions/0004-replay.md). It must never complete a
//! request as done that no controller answered, and never let a newer write overtake an
//! overlapping one that is being sent again.

mod commands;
mod completions;
mod displaced;
mod extents;
mod giving_up;
mod lanes;
mod refused;
mod reopening;
mod resting;
mod state;
mod submit;
mod waiting;

pub(crate) use commands::supports;
pub(crate) use displaced::OtherWay;
use reopening::Reopening;
pub use state::ChannelState;

use crate::association::Association;
use crate::association::namespace_state::NamespaceState;
use crate::association::parameters::Parameters;
use crate::command::apart::ApartCommands;
use crate::command::exchange::Exchange;
use crate::command::extents::ExtentsRequest;
use crate::command::state::SlotState;
use crate::qpair::{Qpair, QpairConfig};
use crate::recovery::epoch::{Epoch, Phase};
use crate::recovery::replay::Recovery;
use crate::recovery::rest::Rest;
use base::state::StateMachine;
use base::{ShortQueue, Time};
use block::{
    BlockError, Capabilities, Channel, Completion, DeviceError, Extents, Request, Submit,
    SubmitExtents,
};
use reactor::{Context, Driver, Guard, OpNamespace, OpNamespaceLease, Wake};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::doorbell::{self, Mode};
use switch::{CaravanLimits, Class};

/// A connection of the channel.
#[derive(Debug)]
struct Lane {
    qpair: Qpair,
    queue_id: u16,
    /// The association counts it as open.
    open: bool,
    /// It is being opened, and has not been live since.
    opening: bool,
    /// It is among the busy ones.
    listed: bool,
}

/// A namespace served by a channel.
#[derive(Debug)]
struct ChannelNamespace {
    state: Arc<NamespaceState>,
    capabilities: Capabilities,
    /// Losses of unflushed writes that a Flush of this channel has reported.
    reported: u32,
}

/// The connections of a channel.
#[derive(Debug)]
struct Lanes {
    all: Vec<Lane>,
    /// While the channel is live: the lanes that have something under way. Others need no look in a
    /// turn, so what a turn takes follows the requests and not the connections.
    busy: Vec<usize>,
    /// The lane to be tried first for the next request.
    next: usize,
    /// Class of the requests that the lanes carry.
    class: Class,
    /// The lanes serve a switchboard: they stay when a namespace goes.
    shared: bool,
    /// The way of requests that find no queue.
    other_way: OtherWay,
    /// Time at which a channel that got no queue asks for one again.
    ask_again_at: Time,
    /// It does so now. The association is not lost with the attempt: others have queues and go on.
    asks_again: bool,
    /// Those that the controller has refused, which are opened again.
    reopening: Reopening,
    /// First and last time at which the lanes could not be opened, since the channel was live.
    unopened: Option<(Time, Time)>,
}

/// The requests of a channel that no lane has.
#[derive(Debug)]
struct Requests {
    /// Requests that no lane has yet, in order; never more than `capacity`.
    waiting: VecDeque<Exchange>,
    /// Completions that were not reaped yet.
    done: ShortQueue<Completion>,
    /// Number of completions that were reaped.
    reaped: u64,
    /// Flushes among `done`: the number of completions up to each, and the losses of the cache that
    /// were known when it was done.
    flushes: VecDeque<(u64, u32)>,
    /// The Flush that was reaped last: the number of completions up to it, and the losses.
    flush: (u64, u32),
    /// Requests that are to go another way, because no lane has a queue, with their limits.
    displaced: VecDeque<(Request, Time)>,
    /// Commands over extents that were not reaped yet.
    done_extents: VecDeque<Extents>,
    /// Memory of such commands, to be used again.
    #[expect(
        clippy::vec_box,
        reason = "slots are small, and the boxes themselves are used again"
    )]
    spare: Vec<Box<ExtentsRequest>>,
    /// Requests that were not reaped yet, wherever they are.
    outstanding: usize,
    /// Those of them that are commands over extents, and those that were given up and not answered:
    /// the controller counts them.
    extents: usize,
    /// Those of them of which each extent leaves alone.
    apart: ApartCommands,
    /// Requests that all lanes can hold.
    capacity: usize,
    /// No request that is not over has an earlier [limit](Exchange::limit).
    next_limit: Time,
}

/// One core's channel to a remote namespace, or (shared) to all of a controller.
#[derive(Debug)]
pub struct RemoteChannel {
    association: Arc<Association>,
    /// Key of the core's waker in the association.
    waker: Option<u64>,
    op_namespace: OpNamespaceLease,
    /// Namespaces that the lanes serve; never empty unless the channel is [`shared`](Self::shared).
    namespaces: Vec<ChannelNamespace>,
    state: StateMachine<ChannelState, { ChannelState::COUNT }>,
    closing: bool,
    /// The epoch that the channel follows.
    epoch: Epoch,
    /// Properties of the association that the lanes were opened on last.
    parameters: Parameters,
    lanes: Lanes,
    requests: Requests,
    recovery: Recovery,
    rest: Arc<Rest>,
    at_rest: bool,
}

impl RemoteChannel {
    /// The association of its lanes.
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
        channel.lanes.shared = false;
        channel.add_namespace(namespace, capabilities);
        channel
    }

    /// A channel for any namespaces of a controller, which [`add_namespace`](Self::add_namespace)
    /// makes known and [`submit_to`](Self::submit_to) names. `waker` is woken when the association
    /// moves.
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
        let lists = driver.send_lists();
        let lanes: Vec<_> = (0..u32::from(queues))
            .map(|index| Lane {
                qpair: Qpair::new(config.clone(), op_namespace.id(), index, depth, lists),
                queue_id: 0,
                open: false,
                opening: false,
                listed: false,
            })
            .collect();
        let capacity = lanes.len() * usize::from(depth);
        let mut channel = Self {
            waker: Some(waker),
            op_namespace,
            namespaces: Vec::new(),
            state: StateMachine::new(ChannelState::Waiting),
            closing: false,
            epoch: Epoch {
                generation: 0,
                phase: Phase::Connecting,
            },
            parameters: Parameters::default(),
            lanes: Lanes {
                busy: Vec::with_capacity(lanes.len()),
                all: lanes,
                next: 0,
                class,
                shared: true,
                other_way: OtherWay::None,
                ask_again_at: Time::NEVER,
                asks_again: false,
                reopening: Reopening::new(association.options()),
                unopened: None,
            },
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
        };
        channel.number_lanes();
        channel
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

    /// Returns true if every namespace that the channel was opened for is gone.
    fn is_deserted(&self) -> bool {
        !self.lanes.shared && self.namespaces.iter().all(|entry| entry.state.is_gone())
    }

    /// The state now.
    #[must_use]
    pub fn state(&self) -> ChannelState {
        self.state.get()
    }

    /// Returns how often the channel entered each state, with the state's name.
    pub fn states_entered(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.state.entered()
    }

    /// Returns how often requests entered each state on their lanes, with the state's name.
    #[must_use]
    pub fn request_states_entered(&mut self) -> [(&'static str, u64); SlotState::COUNT] {
        let mut total = std::array::from_fn(|state| (SlotState::ALL[state].name(), 0));
        for lane in &mut self.lanes.all {
            let entered = lane.qpair.table().entered();
            for ((_, total), entered) in total.iter_mut().zip(entered) {
                *total += entered;
            }
        }
        total
    }

    /// Returns how often the lanes entered each state of a connection, with the state's name.
    pub fn connection_states_entered(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let lanes = self.lanes.all.iter();
        lanes.flat_map(|lane| lane.qpair.states_entered())
    }

    /// Requests that were not reaped yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.requests.outstanding
    }

    /// Returns the number of requests that the channel takes before it answers busy.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.requests.capacity
    }

    /// Returns true if the volume that a request is for went away: its NSID may name another one
    /// now, so nothing more of the request may be sent.
    fn is_gone(&self, exchange: &Exchange) -> bool {
        let number = exchange.namespace();
        number.is_some_and(|number| self.namespaces[usize::from(number)].state.is_gone())
    }

    /// Returns how many losses of the target's cache the completion that was reaped last knows of:
    /// 0 where it was of another request than a Flush, or of one that failed otherwise.
    #[inline]
    pub(crate) fn reaped_losses(&self) -> u32 {
        let (place, losses) = self.requests.flush;
        if place == self.requests.reaped {
            losses
        } else {
            0
        }
    }

    /// Returns true if a request has to wait.
    fn must_wait(&mut self, exchange: &Exchange) -> bool {
        if !self.may_send() {
            return true;
        }
        if !self.recovery.has_rules() {
            return !self.requests.waiting.is_empty();
        }
        self.recovery.holds_back(exchange)
    }

    /// Lets the commands of all lanes leave by these rules from now on.
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

    /// The namespace of the operations of all lanes.
    pub(crate) fn op_namespace(&self) -> OpNamespace {
        self.op_namespace.id()
    }

    /// Requests that wait for a doorbell.
    pub(crate) fn waiting_for_doorbell(&self) -> u32 {
        let lanes = self.lanes.all.iter();
        lanes.map(|lane| lane.qpair.waiting_for_doorbell()).sum()
    }

    /// Sends what may leave; how many bytes of data did, where there is a rule for it.
    pub(crate) fn pump(&mut self, cx: &mut Context<'_>) -> u64 {
        let Lanes { all, busy, .. } = &mut self.lanes;
        let busy = busy.iter();
        busy.map(|&index| all[index].qpair.pump(cx)).sum()
    }

    /// Gives a lane with room a request.
    fn start(&mut self, lane: usize, exchange: Exchange, now: Time) {
        self.lanes.all[lane].qpair.start(exchange, now);
        self.list(lane);
    }

    /// A lane needs a look in each turn until it has nothing under way any more.
    fn list(&mut self, index: usize) {
        let lane = &mut self.lanes.all[index];
        if !std::mem::replace(&mut lane.listed, true) {
            self.lanes.busy.push(index);
        }
    }

    /// Does what is due on a lane.
    fn tick_lane(&mut self, index: usize, cx: &mut Context<'_>) {
        if self.lanes.all[index].qpair.tick(cx) {
            self.look_for_timeouts(index, cx);
        }
        if self.state() != ChannelState::Live || !self.lanes.all[index].qpair.is_live() {
            self.check_lane(index, cx);
        }
    }

    /// Does what is due on the busy lanes. Lanes with nothing under way are busy no more.
    fn tick_busy(&mut self, cx: &mut Context<'_>) {
        let mut at = 0;
        while let Some(&index) = self.lanes.busy.get(at) {
            self.tick_lane(index, cx);
            if self.lanes.all[index].qpair.is_idle() {
                self.lanes.all[index].listed = false;
                self.lanes.busy.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Sends what an event made ready, unless the lanes are shared: then their owner pumps them at
    /// the end of its turn, in an order of its own.
    fn follow_up(&mut self, cx: &mut Context<'_>) {
        if !self.lanes.shared {
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
        self.list(index);
        self.check_lane(index, cx);
        if !self.requests.waiting.is_empty() || !self.recovery.is_empty() {
            self.drain_waiting(cx.now);
            self.follow_up(cx);
        }
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
        self.make_up_for_absence(cx.now);
        self.follow(cx);
        if self.is_lost_for_long() {
            // The next association is followed as by a channel that got no queue.
            self.gone(BlockError::Gone);
        }
        if self.requests.next_limit <= cx.now {
            self.give_up_late(cx);
        }
        if self.state() != ChannelState::Gone && !self.closing && self.is_deserted() {
            if self.lanes.all.iter().all(|lane| lane.qpair.is_closed()) {
                self.gone(BlockError::Gone);
            } else if self.state() != ChannelState::Leaving {
                self.leave(cx);
            }
        }
        if self.lanes.reopening.at <= cx.now {
            self.reopen(cx);
        }
        if self.state() == ChannelState::Live {
            self.tick_busy(cx);
        } else {
            for index in 0..self.lanes.all.len() {
                self.tick_lane(index, cx);
            }
        }
        if self.state() == ChannelState::Gone {
            self.displace(cx);
        }
        if !self.requests.waiting.is_empty() || !self.recovery.is_empty() {
            self.drain_waiting(cx.now);
            self.follow_up(cx);
        }
        self.rest();
    }

    fn is_back(&self) -> bool {
        // One that asks for a queue may be refused it.
        self.state() != ChannelState::Gone && !self.lanes.asks_again
    }

    fn opened(&self) -> Option<Result<(), DeviceError>> {
        let refused = |(queue, status)| {
            DeviceError::NoQueue(format!(
                "{} at {} refuses Connect of I/O queue {queue}: {status}; use fewer queues, or \
                 raise the target's limits",
                self.association.options().subsystem,
                self.association.address()
            ))
        };
        self.connected().map(|result| result.map_err(refused))
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
            // An answer, which makes room, is followed by what waits.
            ChannelState::Live if !self.recovery.is_empty() && !has_room() => Time::NEVER,
            ChannelState::Live => self.recovery.deadline(),
            ChannelState::Gone => self.recovery.deadline().min(self.lanes.ask_again_at),
            _ => Time::NEVER,
        };
        let lanes = lanes.unwrap_or(Time::NEVER);
        let own = self.requests.next_limit.min(self.lanes.reopening.at);
        lanes.min(replay).min(own).min(self.lanes.reopening.due)
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        if self.closing {
            return;
        }
        self.closing = true;
        if self.state() == ChannelState::Gone {
            return self.gone(BlockError::Aborted);
        }
        self.leave(cx);
        self.gone(BlockError::Aborted);
        for index in 0..self.lanes.all.len() {
            self.check_lane(index, cx);
        }
    }

    fn closed(&self) -> bool {
        self.lanes.all.iter().all(|lane| lane.qpair.is_closed())
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
        self.association.leave_open(self.open_lanes());
        self.release_queues();
    }
}
