//! Lanes of which the controller has the queue still: it has not seen that the connection which had the
//! identifier before is closed. The association is not lost with them, others have queues and go on.

use super::{ChannelState, RemoteChannel};
use crate::limits::ASK_AGAIN;
use crate::options::ConnectOptions;
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use reactor::Context;

/// The lanes of which the controller has the queue still.
#[derive(Debug)]
pub(super) struct Reopening {
    /// Time at which they are opened again.
    pub(super) at: Time,
    /// Wait after which that is tried the next time.
    delay: Nanos,
    /// The identifier of the last such queue, or 0: others are tried before it.
    pub(super) queue_id: u16,
}

impl Reopening {
    /// None are.
    pub(super) const fn new(options: &ConnectOptions) -> Self {
        Self {
            at: Time::NEVER,
            delay: options.reconnect_delay_min,
            queue_id: 0,
        }
    }

    /// The channel is live. Single lanes may be opened later.
    pub(super) const fn joined(&mut self, options: &ConnectOptions) {
        let at = self.at;
        *self = Self::new(options);
        self.at = at;
    }
}

impl RemoteChannel {
    /// A lane is refused because its queue is in use. It is opened again after a while; a channel of
    /// which no lane is live waits for that no longer than a loss may last.
    pub(super) fn lane_refused(&mut self, index: usize, cx: &mut Context<'_>) {
        if !self.lanes.all[index].qpair.is_closed() {
            return;
        }
        self.lanes.reopening.queue_id = self.lanes.all[index].queue_id;
        let any_is_live = self.lanes.all.iter().any(|lane| lane.qpair.is_live());
        if any_is_live && self.state() == ChannelState::Joining {
            self.joined(cx);
        }
        if !any_is_live {
            let (first, _) = self.lanes.unopened.unwrap_or((cx.now, cx.now));
            self.lanes.unopened = Some((first, cx.now));
            if self.is_refused() {
                let error = self.lanes.all[index].qpair.queue_in_use();
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

    /// Opens lanes again of which the controller had the queue still, with another identifier where one
    /// is free.
    pub(super) fn reopen(&mut self, cx: &mut Context<'_>) {
        self.lanes.reopening.at = Time::NEVER;
        let granted = self.parameters.io_queues;
        for index in 0..self.lanes.all.len() {
            let lane = &mut self.lanes.all[index];
            let has_queue = lane.queue_id > 0;
            if !has_queue || !lane.qpair.is_closed() || lane.qpair.queue_in_use().is_none() {
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
