//! Requests that were lost or wait: sent again when that is safe, reported when it will not be
//! (docs/design/decisions/0004-replay.md).

use super::{ChannelState, RemoteChannel};
use crate::command::exchange::Exchange;
use crate::limits::TIMEOUTS_PER_REQUEST_MAX;
use crate::recovery::replay::{Next, Replay};
use base::Time;
use base::mutation::{self, Mutation};
use block::{BlockError, Operation};

impl RemoteChannel {
    /// Sends what waited: first what was lost, then what is new, but no write past a locked range.
    pub(super) fn drain_waiting(&mut self, now: Time) {
        if !self.may_send() {
            return;
        }
        self.recovery.refresh(&self.association);
        for _ in 0..self.recovery.len() {
            match self.next_lost(now) {
                Next::Nothing => break,
                Next::Wait => {}
                Next::Report(replay, error) => self.report_lost_write(replay, error),
                Next::Send(exchange) if exchange.given_up.is_some() => self.tell_given_up(exchange),
                Next::Send(exchange) => {
                    let Some(lane) = self.free_lane() else {
                        self.recovery.push_front(exchange);
                        return;
                    };
                    self.start(lane, exchange, now);
                }
            }
        }
        for _ in 0..self.requests.waiting.len() {
            let Some(mut exchange) = self.requests.waiting.pop_front() else {
                break;
            };
            if self.is_gone(&exchange) {
                self.finish(exchange, Err(BlockError::Gone));
                continue;
            }
            if self.recovery.is_fenced(&exchange) {
                self.finish(exchange, Err(BlockError::TimedOut));
                continue;
            }
            if self.recovery.holds_back(&exchange) {
                self.limit_held(&mut exchange, now);
                // A full turn around the queue keeps its order.
                self.requests.waiting.push_back(exchange);
                continue;
            }
            exchange.release();
            let Some(lane) = self.free_lane() else {
                self.requests.waiting.push_front(exchange);
                // The rest keeps its place behind those that turned around before.
                return;
            };
            self.start(lane, exchange, now);
        }
    }

    /// Returns the next step with a request that was lost.
    pub(super) fn next_lost(&mut self, now: Time) -> Next {
        let namespaces = &self.namespaces;
        self.recovery.next(now, |exchange| {
            let number = exchange.namespace();
            number.is_some_and(|number| namespaces[usize::from(number)].state.is_gone())
        })
    }

    /// Bounds the time for which a write waits because an older one to its blocks was given up: the
    /// channel that gave it up learns of the answer when its thread runs, which may be never.
    pub(super) fn limit_held(&mut self, exchange: &mut Exchange, now: Time) {
        if self.recovery.is_held(exchange) {
            exchange.hold_until(now + self.association.options().command_timeout);
            self.requests.next_limit = self.requests.next_limit.min(exchange.limit);
        }
    }

    /// Takes a command that was lost with its connection.
    pub(super) fn lost(&mut self, exchange: Exchange) {
        let is_write = exchange.operation().is_some_and(Operation::is_write);
        if !is_write {
            if exchange.given_up.is_some() {
                return self.tell_given_up(exchange);
            }
            if exchange.timeouts > TIMEOUTS_PER_REQUEST_MAX && !self.closing {
                return self.finish(exchange, Err(BlockError::TimedOut));
            }
            if mutation::active(Mutation::LostReadForgotten) {
                return;
            }
        }
        let replay = self.recovery.lost(exchange);
        let closing = self.closing.then_some(BlockError::Aborted);
        if let Some(error) = replay.exchange.given_up.or(closing) {
            return self.report_lost_write(replay, error);
        }
        self.recovery.keep(replay);
    }

    /// Makes the commands of requests that are kept, or wait, no longer than this controller takes. One
    /// that may have lost its first parts with a cache starts again, also where no connection was lost
    /// with it: it is not acknowledged, so no Flush speaks of them.
    pub(super) fn refit(&mut self) {
        self.take_apart();
        let kept = self.recovery.lost_ones_mut();
        for exchange in kept.chain(&mut self.requests.waiting) {
            let Some(number) = exchange.namespace() else {
                continue;
            };
            let geometry = self.namespaces[usize::from(number)].state.geometry();
            exchange.change_part(|request| {
                if request.is_cached() && !mutation::active(Mutation::LostPartsKept) {
                    request.restart();
                }
                request.shorten(geometry, &self.parameters);
            });
        }
    }

    /// Reports a write of unknown effect. As long as it may still take effect, its blocks are not
    /// written anew.
    pub(super) fn report_lost_write(&mut self, replay: Replay, error: BlockError) {
        let Replay {
            exchange,
            lost_with,
            ..
        } = replay;
        if lost_with > 0 {
            for span in exchange.written() {
                self.association.fence_blocks(lost_with, span);
            }
            self.recovery.refresh(&self.association);
        }
        self.finish(exchange, Err(error));
    }

    /// Everything that waits fails.
    pub(super) fn gone(&mut self, error: BlockError) {
        self.enter(ChannelState::Gone);
        // Lanes that are opened now would stay open.
        self.lanes.reopening.at = Time::NEVER;
        while let Some(replay) = self.recovery.take() {
            self.report_lost_write(replay, error);
        }
        while let Some(exchange) = self.requests.waiting.pop_front() {
            self.finish(exchange, Err(error));
        }
    }
}
