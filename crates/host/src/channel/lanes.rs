//! The lanes follow the association: opened when one is live, closed when it is lost, looked over
//! for commands that take too long.

use super::{ChannelState, RemoteChannel};
use crate::ConnectionError;
use crate::association::AbortRequest;
use crate::limits::ABORT_TIME;
use crate::qpair::Join;
use crate::recovery::epoch::Phase;
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use block::BlockError;
use reactor::Context;
use wire::fabrics::ConnectData;

/// Reason for which a channel cannot be opened, or is gone although others go on.
const NO_QUEUE_LEFT: &str = "it grants no further I/O queue; use fewer queues or raise its limit";

impl RemoteChannel {
    /// The lane that has room and comes next.
    #[inline]
    pub(super) fn free_lane(&mut self) -> Option<usize> {
        for _ in 0..self.lanes.all.len() {
            let lane = self.lanes.next;
            self.lanes.next = if lane + 1 == self.lanes.all.len() {
                0
            } else {
                lane + 1
            };
            if self.lanes.all[lane].qpair.has_room() {
                return Some(lane);
            }
        }
        None
    }

    /// Moves on to another state.
    pub(super) fn enter(&mut self, state: ChannelState) {
        self.state.enter(state);
        tracing::trace!(
            generation = self.epoch.generation,
            state = state.name(),
            "channel"
        );
    }

    /// Follows the association.
    pub(super) fn follow(&mut self, cx: &mut Context<'_>) {
        let epoch = self.association.epoch();
        if epoch == self.epoch && self.state() != ChannelState::Leaving {
            return;
        }
        if epoch != self.epoch {
            // Another association was not asked yet.
            self.lanes.asks_again = false;
        }
        if self.state() != ChannelState::Leaving && self.state() != ChannelState::Gone {
            self.leave(cx);
        }
        let is_open = self.lanes.all.iter().any(|lane| !lane.qpair.is_closed());
        if is_open && self.state() == ChannelState::Gone {
            // Requests failed before the lanes were closed: the epoch is followed when they are.
            return;
        }
        self.epoch = epoch;
        if is_open {
            return;
        }
        match epoch.phase {
            Phase::Live if !self.closing && !self.is_deserted() => self.join(cx),
            Phase::Gone => self.gone(BlockError::Gone),
            _ => {
                self.enter(ChannelState::Waiting);
            }
        }
    }

    /// Closes every lane.
    pub(super) fn leave(&mut self, cx: &mut Context<'_>) {
        self.end_rest();
        if self.state() == ChannelState::Joining {
            let first = self.lanes.unopened.map_or(cx.now, |(first, _)| first);
            self.lanes.unopened = Some((first, cx.now));
        }
        self.lanes.reopening.at = Time::NEVER;
        if self.state() == ChannelState::Live {
            // Nothing was sent on lanes that were not.
            self.recovery.leave(cx.now + self.parameters.quiet);
        }
        self.enter(ChannelState::Leaving);
        for lane in &mut self.lanes.all {
            lane.qpair.close(cx);
        }
    }

    /// Opens every lane on the association that is live.
    pub(super) fn join(&mut self, cx: &mut Context<'_>) {
        let granted_before = self.parameters.io_queues;
        self.parameters = self.association.parameters();
        let writes_at = self.safe_replay_time();
        self.recovery.join(self.epoch.generation, writes_at);
        self.refit();
        if self.is_refused() {
            // Its requests wait no longer than for a controller, and others have queues and go on.
            self.release_queues();
            return self.begin_to_displace(cx);
        }
        if self.parameters.io_queues < granted_before && self.is_dispensable() {
            // Others come first: they have no other way.
            self.release_queues();
            return self.begin_to_displace(cx);
        }
        self.number_lanes();
        if !self.has_queue() {
            // Others have queues and go on; requests that wait here would wait for ever.
            if mutation::active(Mutation::UngrantedForgotten) {
                self.requests.waiting.clear();
                while self.recovery.take().is_some() {}
            }
            if !self.is_dispensable() {
                let error = ConnectionError::Unusable(NO_QUEUE_LEFT);
                self.association.set_error(Some(error));
            }
            return self.begin_to_displace(cx);
        }
        self.lanes.reopening.refusal = None;
        self.enter(ChannelState::Joining);
        for index in 0..self.lanes.all.len() {
            if self.lanes.all[index].queue_id > 0 && !self.join_lane(index, cx) {
                break;
            }
        }
    }

    /// Returns true if requests fail although the association is still made again.
    pub(super) fn is_lost_for_long(&self) -> bool {
        let waits = matches!(self.state(), ChannelState::Waiting | ChannelState::Leaving);
        // Where one is live, it is joined as soon as every lane is closed.
        waits && self.epoch.phase != Phase::Live && self.association.is_overdue()
    }

    /// Returns true if the lanes could not be opened for as long as a loss may last, although the
    /// association was live, or when they were asked for again.
    pub(super) fn is_refused(&self) -> bool {
        let Some((first, last)) = self.lanes.unopened else {
            return false;
        };
        let limit = self.association.options().loss_timeout;
        self.lanes.asks_again || limit.is_some_and(|limit| last.since(first) >= limit)
    }

    /// Gives lanes that have no queue one, as far as the controller grants them. It may grant fewer
    /// than it did before the association was lost.
    pub(super) fn number_lanes(&mut self) {
        let granted = self.association.parameters().io_queues;
        for lane in &mut self.lanes.all {
            if lane.queue_id > granted {
                self.association.release_queue(lane.queue_id);
                lane.queue_id = 0;
            }
        }
        for lane in &mut self.lanes.all {
            if lane.queue_id == 0 {
                let queue = self
                    .association
                    .take_queue(granted, self.lanes.reopening.queue_id);
                lane.queue_id = queue.unwrap_or(0);
            }
        }
    }

    /// Gives the queues of all lanes back.
    pub(super) fn release_queues(&mut self) {
        for lane in &mut self.lanes.all {
            if lane.queue_id > 0 {
                self.association.release_queue(lane.queue_id);
                lane.queue_id = 0;
            }
        }
    }

    /// Returns true if any lane has a queue: the others leave their requests to it.
    pub(crate) fn has_queue(&self) -> bool {
        self.lanes.all.iter().any(|lane| lane.queue_id > 0)
    }

    /// Returns true if the channel works, and has no connection for one of the queues that it has: that
    /// lane is opened again after a while.
    #[must_use]
    pub fn lacks_lane(&self) -> bool {
        let lacks = |lane: &super::Lane| lane.queue_id > 0 && !lane.qpair.is_live();
        self.state() == ChannelState::Live && self.lanes.all.iter().any(lacks)
    }

    /// Returns the time from which lost writes may be sent again (docs/design/decisions/0004-replay.md).
    fn safe_replay_time(&self) -> Time {
        if self.parameters.fenced {
            return Time::ZERO;
        }
        // The fence counts from when the connections were closed; where a core did not run then,
        // its own were later.
        self.recovery.safe_at()
    }

    /// Opens a lane that has a queue; false when the epoch has moved.
    pub(super) fn join_lane(&mut self, index: usize, cx: &mut Context<'_>) -> bool {
        let lane = &mut self.lanes.all[index];
        // Asked before it is known that this association is still live: another one may have another.
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

    /// Looks at the lanes after something happened to one of them.
    pub(super) fn check_lane(&mut self, index: usize, cx: &mut Context<'_>) {
        self.collect(index, cx);
        let state = self.state();
        let lane = &mut self.lanes.all[index];
        // One that has no queue was never open, and nothing is lost with it.
        let ended = lane.open && (lane.qpair.is_closed() || lane.qpair.is_ending());
        if lane.qpair.is_closed() && lane.open {
            lane.open = false;
            self.association.leave_open(1);
        }
        if lane.qpair.is_live() {
            lane.opening = false;
            if self.state() == ChannelState::Joining {
                self.joined(cx);
            }
            return;
        }
        if ended && matches!(state, ChannelState::Live | ChannelState::Joining) {
            // One that is opened again later, or failed on the association before, too.
            let is_later = state == ChannelState::Live || self.lanes.unopened.is_some();
            let fails_again = lane.opening && is_later;
            if lane.qpair.refusal().is_some() || fails_again {
                return self.lane_refused(index, cx);
            }
            let error = lane.qpair.take_error();
            self.leave(cx);
            if self.is_refused() {
                self.association.set_error(error);
            } else {
                self.association.report_lost(self.epoch.generation, error);
            }
        }
        if self.state() == ChannelState::Leaving {
            self.follow(cx);
        }
    }

    pub(super) fn joined(&mut self, cx: &mut Context<'_>) {
        let all = self
            .lanes
            .all
            .iter()
            .all(|lane| lane.qpair.is_live() || !lane.open);
        if all {
            self.enter(ChannelState::Live);
            self.lanes.unopened = None;
            self.lanes.asks_again = false;
            self.lanes.reopening.joined(self.association.options());
            self.drain_waiting(cx.now);
            self.follow_up(cx);
        }
    }

    /// Time that an Abort may take.
    pub(super) fn abort_time(&self) -> Nanos {
        ABORT_TIME.min(self.association.options().command_timeout)
    }

    /// Commands that take too long are aborted; if that does not help, the association is reset.
    pub(super) fn look_for_timeouts(&mut self, index: usize, cx: &mut Context<'_>) {
        // An Abort may take no longer than the command it is for.
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
                // Once for each time that it is sent.
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
                    what: "a command, nor to its Abort",
                    seconds: options.command_timeout.0 / 1_000_000_000,
                }
            };
            self.association
                .report_lost(self.epoch.generation, Some(error));
        }
    }
}
