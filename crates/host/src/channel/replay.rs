//! What was lost, or waits: sent again when that is safe, reported when it will not be
//! (docs/decisions/0004-replay.md).

use super::{ChannelState, RemoteChannel};
use crate::command::BlockRequest;
use crate::command::exchange::Exchange;
use crate::limits::TIMEOUTS_PER_REQUEST_MAX;
use crate::recovery::fences::ReplayPermission;
use base::Time;
use base::mutation::{self, Mutation};
use block::BlockError;

/// A request that is to be sent again.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) exchange: Exchange,
    /// The association that a write was lost with; 0 where nothing of it can still take effect.
    pub(super) lost_with: u64,
}

impl From<Exchange> for Replay {
    fn from(exchange: Exchange) -> Self {
        Self {
            exchange,
            lost_with: 0,
        }
    }
}

impl RemoteChannel {
    /// Sends what waited: first what was lost, then what is new, but no write past a locked range.
    pub(super) fn drain_waiting(&mut self, now: Time) {
        if self.state != ChannelState::Live {
            return;
        }
        self.refresh_fences();
        for _ in 0..self.replay.len() {
            let Some(replay) = self.replay.pop_front() else {
                break;
            };
            if self.is_gone(&replay.exchange) {
                self.report_lost_write(replay, BlockError::Gone);
                continue;
            }
            let replay_permission = self.fence_snapshot.replay_permission(replay.lost_with);
            let early = replay.exchange.replayed && self.replay_writes_at > now;
            if early || replay_permission == ReplayPermission::Fenced {
                self.replay.push_back(replay);
                continue;
            }
            if replay_permission == ReplayPermission::Overdue {
                self.report_lost_write(replay, BlockError::TimedOut);
                continue;
            }
            let exchange = replay.exchange;
            if exchange.timeouts > TIMEOUTS_PER_REQUEST_MAX {
                self.finish(exchange, Err(BlockError::TimedOut));
                continue;
            }
            let Some(lane) = self.free_lane() else {
                self.replay.push_front(exchange.into());
                return;
            };
            self.start(lane, exchange, now);
        }
        for _ in 0..self.waiting.len() {
            if self.barrier_sent {
                return;
            }
            let Some(exchange) = self.waiting.pop_front() else {
                break;
            };
            if exchange.is_barrier() && !self.is_all_through() {
                self.waiting.push_front(exchange);
                return;
            }
            if self.is_gone(&exchange) {
                self.finish(exchange, Err(BlockError::Gone));
                continue;
            }
            let request = exchange.request();
            if request.is_some_and(|request| self.is_fenced(request)) {
                self.finish(exchange, Err(BlockError::TimedOut));
                continue;
            }
            if request.is_some_and(|request| self.locks.blocks(request)) {
                if self.barriers > 0 {
                    self.waiting.push_front(exchange);
                    return;
                }
                // A full turn around the queue keeps its order.
                self.waiting.push_back(exchange);
                continue;
            }
            let Some(lane) = self.free_lane() else {
                self.waiting.push_front(exchange);
                // The rest keeps its place behind those that turned around before.
                return;
            };
            self.barrier_sent |= exchange.is_barrier();
            self.start(lane, exchange, now);
        }
    }

    /// A command was lost with its connection.
    pub(super) fn lost(&mut self, mut exchange: Exchange) {
        self.rewind(&mut exchange);
        let mut lost_with = 0;
        if let Some(request) = exchange.request()
            && request.operation.is_write()
        {
            if !exchange.replayed {
                if !mutation::active(Mutation::ReplayNotLocked) {
                    self.locks.lock(request);
                }
                exchange.replayed = true;
            }
            lost_with = self.joined;
        } else if exchange.timeouts > TIMEOUTS_PER_REQUEST_MAX && !self.closing {
            return self.finish(exchange, Err(BlockError::TimedOut));
        } else if mutation::active(Mutation::LostReadForgotten) {
            return;
        }
        let replay = Replay {
            exchange,
            lost_with,
        };
        if self.closing {
            return self.report_lost_write(replay, BlockError::Aborted);
        }
        // A write that is not sent again waits all the same: once it is reported, nothing of it
        // may take effect any more.
        self.replay.push_back(replay);
    }

    /// A request that may have lost its first parts with a cache starts again: it is not
    /// acknowledged, so no Flush speaks of them.
    fn rewind(&mut self, exchange: &mut Exchange) {
        let Some(request) = exchange.request_mut() else {
            return;
        };
        if request.blocks_done == 0 || !request.is_cached() {
            return;
        }
        let before = *request;
        let state = &self.namespaces[usize::from(request.namespace)].state;
        request.rewind(state.geometry(), &self.parameters);
        let now = *request;
        if let (true, Some(list)) = (now.private_data, &mut exchange.data) {
            list.copy_in(0, &now.range().to_bytes());
        }
        if exchange.replayed {
            self.locks.unlock(&before);
            self.locks.lock(&now);
        }
    }

    /// Reports what nobody knows whether it was done, or will be: as long as it may be, its blocks
    /// are not written anew.
    fn report_lost_write(&mut self, replay: Replay, error: BlockError) {
        let Replay {
            exchange,
            lost_with,
        } = replay;
        if let Some(request) = exchange.request().filter(|_| lost_with > 0) {
            self.association.fence_blocks(lost_with, request.span());
            self.refresh_fences();
        }
        self.finish(exchange, Err(error));
    }

    /// Follows what may still come of lost associations.
    #[inline]
    pub(super) fn refresh_fences(&mut self) {
        if self.association.fence_version() != self.fence_version {
            (self.fence_version, self.fence_snapshot) = self.association.fence_snapshot();
        }
    }

    /// Whether a new request would write blocks that an old write may still change.
    pub(super) fn is_fenced(&self, request: &BlockRequest) -> bool {
        !self.fence_snapshot.is_open()
            && request.operation.is_write()
            && self.fence_snapshot.closes(request.span())
    }

    /// Everything that waits fails.
    pub(super) fn gone(&mut self, error: BlockError) {
        self.state = ChannelState::Gone;
        while let Some(replay) = self.replay.pop_front() {
            self.report_lost_write(replay, error);
        }
        while let Some(exchange) = self.waiting.pop_front() {
            self.finish(exchange, Err(error));
        }
    }
}
