//! Lanes that the controller refuses at Connect: it has fewer queues than it grants, or has the queue
//! still, because it has not seen that the connection which had the identifier before is closed. The
//! association is not lost with them: other lanes and channels have queues, and go on. A connection
//! that ends before Connect is answered, again on the next association, counts as refused.

use super::reopening::Reopening;
use super::{ChannelState, RemoteChannel};
use crate::limits::ASK_AGAIN;
use crate::qpair::was_away;
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use reactor::Context;
use wire::nvme::Status;

impl RemoteChannel {
    /// A lane is refused. It is opened again after a while; a channel of which no lane is live waits for
    /// that no longer than a loss may last.
    pub(super) fn lane_refused(&mut self, index: usize, cx: &mut Context<'_>) {
        if !self.lanes.all[index].qpair.is_closed() {
            return;
        }
        let lane = &self.lanes.all[index];
        let refusal = lane.qpair.refusal();
        let refusal = refusal.filter(|status| !status.is(Status::COMMAND_SEQUENCE_ERROR));
        self.lanes.reopening.queue_id = lane.queue_id;
        self.lanes.reopening.refusal = refusal.map(|status| (lane.queue_id, status));
        let any_is_live = self.lanes.all.iter().any(|lane| lane.qpair.is_live());
        if any_is_live && self.state() == ChannelState::Joining {
            self.joined(cx);
        }
        if !any_is_live {
            let (first, _) = self.lanes.unopened.unwrap_or((cx.now, cx.now));
            self.lanes.unopened = Some((first, cx.now));
            // Its requests go another way meanwhile.
            self.lanes.asks_again |= refusal.is_some() && self.is_dispensable();
            if self.is_refused() {
                let error = self.lanes.all[index].qpair.error();
                self.association.set_error(error.cloned());
                self.leave(cx);
                return self.follow(cx);
            }
        }
        if mutation::active(Mutation::LaneNotReopened) {
            return;
        }
        let Reopening { at, delay, .. } = &mut self.lanes.reopening;
        *at = (*at).min(cx.now + *delay);
        *delay = Nanos(delay.0.saturating_mul(2)).min(ASK_AGAIN.max(*delay));
    }

    /// Time in which the host stood still, or the thread did not run the channel, does not count for the
    /// time that it waits for a lane: no attempt was made in it. One is made now, and has time for a step.
    pub(super) fn make_up_for_absence(&mut self, now: Time) {
        let due = std::mem::replace(&mut self.lanes.reopening.due, Time::NEVER);
        let Some((first, _)) = self.lanes.unopened.as_mut().filter(|_| !self.closing) else {
            return;
        };
        if was_away(due, now) {
            let options = self.association.options();
            let limit = options.loss_timeout.unwrap_or_default();
            let least = now + options.connect_timeout - limit;
            *first = (*first + now.since(due)).max(least);
        }
        self.lanes.reopening.due = now + ASK_AGAIN;
    }

    /// Returns the result of opening the channel: the queue and the status of the refusal if it has no
    /// queue because of that; `None` while it is being opened.
    pub(super) fn connected(&self) -> Option<Result<(), (u16, Status)>> {
        match (self.state(), self.lanes.reopening.refusal) {
            (ChannelState::Joining, Some(refusal)) => {
                let opening = |lane: &super::Lane| lane.open;
                let waits = self.lanes.all.iter().any(opening);
                (!waits).then_some(Err(refusal))
            }
            (ChannelState::Joining, None) => None,
            _ => Some(Ok(())),
        }
    }

    /// Opens lanes again that the controller has refused, with another identifier where one is free.
    pub(super) fn reopen(&mut self, cx: &mut Context<'_>) {
        if !self.is_awake() {
            return;
        }
        self.lanes.reopening.at = Time::NEVER;
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
            if !self.join_lane(index, cx) {
                break;
            }
        }
    }
}
