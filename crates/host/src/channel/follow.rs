//! The channel follows its association: lanes are opened when it is live, closed when it is lost,
//! and opened again when the controller refused them.
//!
//! A controller refuses a lane at Connect because it has fewer queues than it grants, or because it
//! still has the queue: it has not noticed the end of the previous connection. The association
//! stays, because other lanes and channels have queues. A lane also counts as refused if its
//! connection ends before Connect is answered, on two associations in a row.

use super::RemoteChannel;
use crate::ConnectionError;
use crate::association::AbortRequest;
use crate::limits::ABORT_TIME;
use crate::qpair::Join;
use crate::recovery::epoch::Phase;
use crate::recovery::machine::{Cause, ChannelState, OtherWay};
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use block::BlockError;
use reactor::Context;
use wire::fabrics::ConnectData;
use wire::nvme::Status;

/// Error of a channel that gets no queue.
const NO_QUEUE_LEFT: &str = "it grants no more I/O queues; use fewer queues, or raise the target's \
    limit";

impl RemoteChannel {
    /// Moves the state machine, and acts on lanes and requests as the new state requires.
    pub(super) fn enter(&mut self, cause: Cause, cx: &mut Context<'_>) {
        let was_live = self.state() == ChannelState::Live;
        let state = self.machine.enter(cause, cx.now);
        tracing::trace!(
            generation = self.epoch.generation,
            cause = cause.name(),
            state = state.name(),
            "channel"
        );
        match state {
            ChannelState::Waiting => {}
            ChannelState::Joining | ChannelState::Retrying => self.open_lanes(cx),
            ChannelState::Live => self.send_waiting(cx),
            ChannelState::Leaving | ChannelState::Refused => self.close_lanes(was_live, cx),
            ChannelState::Gone => {
                if cause == Cause::NoQueue && self.machine.other_way != OtherWay::None {
                    self.displace(cx.now);
                } else {
                    self.fail_waiting(BlockError::Gone);
                }
            }
            ChannelState::Closed => {
                self.close_lanes(was_live, cx);
                self.fail_waiting(BlockError::Aborted);
            }
        }
    }

    fn open_lanes(&mut self, cx: &mut Context<'_>) {
        for index in 0..self.lanes.all.len() {
            if self.lanes.all[index].queue_id > 0 && !self.open_lane(index, cx) {
                break;
            }
        }
    }

    fn close_lanes(&mut self, was_live: bool, cx: &mut Context<'_>) {
        self.end_rest();
        if was_live {
            // Otherwise no request was sent on them.
            self.recovery.leave(cx.now + self.parameters.quiet);
        }
        for lane in &mut self.lanes.all {
            lane.qpair.close(cx);
        }
    }

    /// Returns true if every namespace that the channel was opened for was removed.
    fn is_deserted(&self) -> bool {
        !self.shared && self.namespaces.iter().all(|entry| entry.state.is_gone())
    }

    /// Follows the association.
    pub(super) fn follow(&mut self, cx: &mut Context<'_>) {
        let (epoch, state) = (self.association.epoch(), self.state());
        let moved = epoch != self.epoch;
        if state == ChannelState::Closed || !moved && !state.is_leaving() {
            return;
        }
        if moved && !matches!(state, ChannelState::Leaving | ChannelState::Gone) {
            self.enter(Cause::AssociationMoved, cx);
        }
        let is_closed = self.lanes.all_closed();
        if !is_closed && state == ChannelState::Gone {
            // Requests failed before the lanes were closed: the epoch is followed once they are
            // closed.
            return;
        }
        self.epoch = epoch;
        if !is_closed {
            return;
        }
        match epoch.phase {
            _ if self.is_deserted() => self.enter(Cause::NamespacesRemoved, cx),
            Phase::Live => self.join(Cause::AssociationLive, cx),
            Phase::Gone => self.enter(Cause::AssociationGone, cx),
            Phase::Connecting | Phase::Recovering => self.enter(Cause::AssociationAbsent, cx),
        }
    }

    /// Fails requests once the association has been lost for the loss timeout, while the host still
    /// reconnects. The channel still follows the next association.
    pub(super) fn check_loss(&mut self, cx: &mut Context<'_>) {
        let waits = matches!(self.state(), ChannelState::Waiting | ChannelState::Leaving);
        // A live association is joined as soon as every lane is closed.
        if waits && self.epoch.phase != Phase::Live && self.association.is_overdue() {
            self.enter(Cause::LossTimeout, cx);
        }
    }

    /// Closes the lanes once every namespace was removed.
    pub(super) fn check_namespaces(&mut self, cx: &mut Context<'_>) {
        let state = self.state();
        if !state.is_over() && !state.is_leaving() && self.is_deserted() {
            self.enter(Cause::NamespacesRemoved, cx);
            self.follow(cx);
        }
    }

    /// Requests a queue again if that is due. Returns true if it did.
    pub(super) fn retry(&mut self, cx: &mut Context<'_>) -> bool {
        let is_live = self.epoch.phase == Phase::Live && self.association.epoch() == self.epoch;
        let retries = self.machine.take_retry(cx.now) && is_live && !self.is_deserted();
        if retries {
            self.join(Cause::RetryDue, cx);
        }
        retries
    }

    /// Opens the lanes on the live association, unless the channel gets no queue there.
    fn join(&mut self, cause: Cause, cx: &mut Context<'_>) {
        let granted_before = self.parameters.io_queues;
        self.parameters = self.association.parameters();
        let writes_at = if self.parameters.fenced {
            Time::ZERO
        } else {
            // The fence counts from the close of the connections; a core that did not run then
            // closed its own later.
            self.recovery.safe_at()
        };
        self.recovery.join(self.epoch.generation, writes_at);
        self.refit();
        // A replaceable channel leaves scarce queues to channels that cannot send another way.
        let yields = self.parameters.io_queues < granted_before && self.machine.is_replaceable();
        if yields || self.machine.is_refused() {
            self.lanes.release_queues(&self.association, 0);
            return self.enter(Cause::NoQueue, cx);
        }
        let after = self.machine.refused_queue;
        self.lanes.take_queues(&self.association, after);
        if self.lanes.has_queue() {
            return self.enter(cause, cx);
        }
        // Other channels have queues, and the association stays: requests here would wait forever.
        if mutation::active(Mutation::UngrantedForgotten) {
            self.requests.waiting.clear();
            while self.recovery.take().is_some() {}
        }
        if !self.machine.is_replaceable() {
            let error = ConnectionError::Unusable(NO_QUEUE_LEFT);
            self.association.set_error(Some(error));
        }
        self.enter(Cause::NoQueue, cx);
    }

    /// Opens a lane that has a queue. Returns false if the epoch has moved.
    fn open_lane(&mut self, index: usize, cx: &mut Context<'_>) -> bool {
        let lane = &mut self.lanes.all[index];
        // Read before the association is known to be still live: the next association may use
        // another address.
        let address = self.association.address();
        if !self.association.enter_open(self.epoch) {
            return false;
        }
        lane.open = true;
        lane.opening = true;
        let options = self.association.options();
        let data = ConnectData::new(
            options.host.id,
            self.parameters.cntlid,
            &options.subsystem,
            &options.host.nqn,
        );
        // [NVMe Base 2.0 §3.3.1.2]: one entry of the queue stays empty, so zero-based is right. The
        // controller may allow fewer than it did when the channel was made.
        let depth = u16::try_from(lane.qpair.table().depth()).expect("at most 4096");
        let depth = depth.min(self.parameters.depth.max(1));
        let join = Join {
            address,
            queue_id: lane.queue_id,
            sq_size: depth,
            keep_alive_ms: 0,
            data: Box::new(data),
            in_capsule_bytes: self.parameters.in_capsule_bytes,
            priority: if self.parameters.queue_classes {
                self.lanes.class.wire_priority()
            } else {
                0
            },
        };
        let patience = options.connect_timeout;
        lane.qpair.open(join, patience, cx);
        true
    }

    /// Runs the timers of a lane.
    pub(super) fn tick_lane(&mut self, index: usize, cx: &mut Context<'_>) {
        if self.lanes.all[index].qpair.tick(cx) {
            self.check_timeouts(index, cx);
        }
        if self.state() != ChannelState::Live || !self.lanes.all[index].qpair.is_live() {
            self.check_lane(index, cx);
        }
    }

    /// Takes the finished commands of a lane, and follows a change of its connection.
    pub(super) fn check_lane(&mut self, index: usize, cx: &mut Context<'_>) {
        self.collect(index, cx);
        let state = self.state();
        let lane = &mut self.lanes.all[index];
        // A lane without a queue was never open, so nothing is lost with it.
        let ended = lane.open && (lane.qpair.is_closed() || lane.qpair.is_ending());
        if lane.qpair.is_closed() && lane.open {
            lane.open = false;
            self.association.leave_open(1);
        }
        if lane.qpair.is_live() {
            lane.opening = false;
            return self.check_joined(cx);
        }
        if ended && (state == ChannelState::Live || state.is_opening()) {
            let is_later = state == ChannelState::Live || self.machine.is_failing();
            // No queue of this association can be opened, now or later.
            let is_unknown = lane.qpair.is_unknown();
            if lane.qpair.refusal().is_some() || lane.opening && is_later && !is_unknown {
                return self.lane_refused(index, cx);
            }
            let error = lane.qpair.take_error();
            if is_unknown {
                self.association
                    .report_lost(self.epoch.generation, error.clone());
            }
            if state.is_opening() && self.machine.has_no_lane(false, cx.now) {
                self.enter(Cause::NoLane, cx);
                self.association.set_error(error);
            } else {
                self.enter(Cause::LaneLost, cx);
                self.association.report_lost(self.epoch.generation, error);
            }
        }
        if self.state().is_leaving() {
            self.follow(cx);
        }
    }

    /// Lets requests flow once no lane is still being opened and at least one is live.
    fn check_joined(&mut self, cx: &mut Context<'_>) {
        let mut lanes = self.lanes.all.iter();
        if self.state().is_opening() && lanes.all(|lane| lane.qpair.is_live() || !lane.open) {
            self.enter(Cause::LanesLive, cx);
        }
    }

    /// Handles a refused lane: it is opened again after a delay, unless no lane is live and the
    /// channel no longer waits for one.
    fn lane_refused(&mut self, index: usize, cx: &mut Context<'_>) {
        let lane = &self.lanes.all[index];
        if !lane.qpair.is_closed() {
            return;
        }
        let refusal = lane.qpair.refusal();
        let refusal = refusal.filter(|status| !status.is(Status::COMMAND_SEQUENCE_ERROR));
        self.machine.refused_queue = lane.queue_id;
        self.machine.refusal = refusal.map(|status| (lane.queue_id, status));
        if self.lanes.any_live() {
            self.check_joined(cx);
        } else if self.machine.has_no_lane(refusal.is_some(), cx.now) {
            let error = self.lanes.all[index].qpair.error();
            self.association.set_error(error.cloned());
            self.enter(Cause::NoLane, cx);
            return self.follow(cx);
        }
        if !mutation::active(Mutation::LaneNotReopened) {
            self.machine.reopen_later(cx.now);
        }
    }

    /// Opens refused lanes again, with another identifier if one is free.
    pub(super) fn reopen(&mut self, cx: &mut Context<'_>) {
        let granted = self.parameters.io_queues;
        for index in 0..self.lanes.all.len() {
            let lane = &mut self.lanes.all[index];
            if lane.queue_id == 0 || !lane.qpair.is_closed() {
                continue;
            }
            if let Some(other) = self.association.take_queue(granted, lane.queue_id) {
                let refused = std::mem::replace(&mut lane.queue_id, other);
                self.association.release_queue(refused);
            }
            if !self.open_lane(index, cx) {
                break;
            }
        }
    }

    /// Time that an Abort may take: no longer than the time-out of the aborted command.
    pub(super) fn abort_time(&self) -> Nanos {
        ABORT_TIME.min(self.association.options().command_timeout)
    }

    /// Aborts commands that time out. An Abort that times out resets the association.
    fn check_timeouts(&mut self, index: usize, cx: &mut Context<'_>) {
        let abort_time = self.abort_time();
        self.detach_given_up(index, cx.now);
        let lane = &mut self.lanes.all[index];
        let table = lane.qpair.table();
        let mut start = 0;
        let (mut reset, mut given_up) = (false, true);
        while let Some(slot) = table.overdue(start, cx.now) {
            let cid = table.cid(slot);
            let entry = table.slot(slot);
            if entry.is_aborting() {
                reset = true;
                let exchange = entry.exchange.as_ref();
                given_up &= exchange.is_some_and(|exchange| exchange.given_up.is_some());
            } else if let Some(exchange) = &mut entry.exchange {
                // Counted once for each time that the command is sent.
                exchange.timeouts = exchange.timeouts.saturating_add(1);
            }
            entry.abort();
            entry.deadline = cx.now + abort_time;
            self.association.request_abort(AbortRequest {
                generation: self.epoch.generation,
                queue_id: lane.queue_id,
                cid,
            });
            start = slot + 1;
            if usize::from(start) >= table.depth() {
                break;
            }
        }
        if reset {
            let options = self.association.options();
            let address = self.association.address();
            let error = if given_up {
                ConnectionError::GivenUp { address }
            } else {
                ConnectionError::TimedOut {
                    address,
                    what: "a command and its Abort",
                    seconds: options.command_timeout.0 / 1_000_000_000,
                }
            };
            self.association
                .report_lost(self.epoch.generation, Some(error));
        }
    }

    /// Lets the channel rest if no command is in flight or waiting: its thread may sleep, and a
    /// controller that reconnects does not wait for its connections
    /// ([`Rest`](crate::recovery::rest::Rest)).
    pub(super) fn rest(&mut self) {
        let open = |&index: &usize| self.lanes.all[index].open;
        let has_work = self.at_rest
            || self.state() != ChannelState::Live
            || self.lanes.busy.iter().any(open)
            || !self.requests.waiting.is_empty()
            || !self.recovery.is_empty();
        let mut lanes = self.lanes.all.iter();
        if has_work || lanes.any(|lane| lane.open && !lane.qpair.is_idle()) {
            return;
        }
        self.at_rest = true;
        self.rest.begin(self.lanes.open());
        if self.association.epoch() != self.epoch {
            self.association.leave_open(self.rest.retire());
        }
    }

    /// Ends a rest. Returns true if the lanes may be used.
    pub(super) fn is_awake(&mut self) -> bool {
        if self.at_rest && self.association.epoch() == self.epoch {
            self.at_rest = !self.rest.end();
        }
        !self.at_rest
    }

    /// Returns true if commands may be sent.
    pub(super) fn may_send(&mut self) -> bool {
        self.state() == ChannelState::Live && self.is_awake()
    }

    /// Ends the rest of a channel that closes its lanes.
    pub(super) fn end_rest(&mut self) {
        if std::mem::take(&mut self.at_rest) && !self.rest.end() {
            for lane in &mut self.lanes.all {
                lane.open = false;
            }
        }
    }
}
