//! Requests that lost their connection or wait for a lane. They are sent again once that is safe,
//! reported if it will not be, or displaced if the channel has no queue
//! (docs/design/decisions/0004-replay.md).

use super::{ChannelNamespace, RemoteChannel, Requests};
use crate::command::BlockRequest;
use crate::command::exchange::Exchange;
use crate::info::Parameters;
use crate::limits::TIMEOUTS_PER_REQUEST_MAX;
use crate::recovery::machine::ChannelState;
use crate::recovery::replay::{Replay, ReplayStep};
use base::Time;
use base::mutation::{self, Mutation};
use block::{BlockError, Operation, Request};
use reactor::{Context, IoSlice};

impl RemoteChannel {
    /// Returns true if a new request has to wait.
    pub(super) fn must_wait(&mut self, exchange: &Exchange) -> bool {
        if !self.may_send() {
            return true;
        }
        if !self.recovery.has_rules() {
            return !self.requests.waiting.is_empty();
        }
        self.recovery.holds_back(exchange)
    }

    /// Sends the waiting requests that can be sent.
    pub(super) fn send_waiting(&mut self, cx: &mut Context<'_>) {
        if !self.requests.waiting.is_empty() || !self.recovery.is_empty() {
            self.drain_waiting(cx.now);
            self.follow_up(cx);
        }
    }

    /// Sends lost requests first, then new ones, except new writes to locked blocks.
    fn drain_waiting(&mut self, now: Time) {
        if !self.may_send() {
            return;
        }
        self.recovery.refresh(&self.association);
        for _ in 0..self.recovery.len() {
            match self.next_lost(now) {
                ReplayStep::Nothing => break,
                ReplayStep::Wait => {}
                ReplayStep::Report(replay, error) => self.report_lost_write(replay, error),
                ReplayStep::Send(exchange) if exchange.given_up.is_some() => {
                    self.tell_given_up(exchange)
                }
                ReplayStep::Send(exchange) => {
                    let Some(lane) = self.lanes.free() else {
                        self.recovery.push_front(exchange);
                        return;
                    };
                    self.lanes.start(lane, exchange, now);
                }
            }
        }
        for _ in 0..self.requests.waiting.len() {
            let Some(mut exchange) = self.requests.waiting.pop_front() else {
                break;
            };
            if is_volume_gone(&self.namespaces, &exchange) {
                self.finish(exchange, Err(BlockError::Gone));
                continue;
            }
            if self.recovery.is_fenced(&exchange) {
                self.finish(exchange, Err(BlockError::TimedOut));
                continue;
            }
            if self.recovery.holds_back(&exchange) {
                self.limit_held(&mut exchange, now);
                // Each request is taken once and put back at the end, so the order is kept.
                self.requests.waiting.push_back(exchange);
                continue;
            }
            exchange.release();
            let Some(lane) = self.lanes.free() else {
                self.requests.waiting.push_front(exchange);
                // The remaining requests stay behind those that were put back.
                return;
            };
            self.lanes.start(lane, exchange, now);
        }
    }

    /// Returns the decision about the oldest lost request.
    fn next_lost(&mut self, now: Time) -> ReplayStep {
        let namespaces = &self.namespaces;
        self.recovery
            .next(now, |exchange| is_volume_gone(namespaces, exchange))
    }

    /// Bounds the time for which a write waits for an older, given-up write to its blocks: the
    /// channel of the older write may never run again to receive the answer.
    pub(super) fn limit_held(&mut self, exchange: &mut Exchange, now: Time) {
        if self.recovery.is_held(exchange) {
            exchange.hold_until(now + self.association.options().command_timeout);
            self.requests.next_limit = self.requests.next_limit.min(exchange.limit);
        }
    }

    /// Takes a command that was lost with its connection.
    pub(super) fn lost(&mut self, exchange: Exchange) {
        let is_write = exchange.operation().is_some_and(Operation::is_write);
        let is_closed = self.state() == ChannelState::Closed;
        if !is_write {
            if exchange.given_up.is_some() {
                return self.tell_given_up(exchange);
            }
            if exchange.timeouts > TIMEOUTS_PER_REQUEST_MAX && !is_closed {
                return self.finish(exchange, Err(BlockError::TimedOut));
            }
            if mutation::active(Mutation::LostReadForgotten) {
                return;
            }
        }
        let replay = self.recovery.lost(exchange);
        let closed = is_closed.then_some(BlockError::Aborted);
        if let Some(error) = replay.exchange.given_up.or(closed) {
            return self.report_lost_write(replay, error);
        }
        self.recovery.keep(replay);
    }

    /// Shortens the commands of lost and waiting requests to the limits of this controller. A
    /// cached write that is sent in parts starts again from its first part, even if it had no
    /// command outstanding: earlier parts may have been lost with a cache, and no Flush reports
    /// them because the write was not acknowledged.
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

    /// Reports a write of unknown effect, and fences its blocks while it may still take effect.
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

    /// Fails all lost and waiting requests.
    pub(super) fn fail_waiting(&mut self, error: BlockError) {
        while let Some(replay) = self.recovery.take() {
            self.report_lost_write(replay, error);
        }
        while let Some(exchange) = self.requests.waiting.pop_front() {
            self.finish(exchange, Err(error));
        }
    }

    /// Takes the oldest displaced request, with its limit. It no longer counts as outstanding.
    pub(crate) fn take_displaced(&mut self) -> Option<(Request, Time)> {
        let displaced = self.requests.displaced.pop_front()?;
        self.requests.outstanding -= 1;
        Some(displaced)
    }

    /// Displaces the requests of a channel without a queue. A lost write is displaced only once no
    /// old command of it can take effect, so any channel may send it.
    pub(super) fn displace(&mut self, now: Time) {
        while let Some(exchange) = self.requests.waiting.pop_front() {
            self.displace_one(exchange);
        }
        self.recovery.refresh(&self.association);
        for _ in 0..self.recovery.len() {
            match self.next_lost(now) {
                ReplayStep::Nothing => break,
                ReplayStep::Wait => {}
                ReplayStep::Report(replay, error) => self.report_lost_write(replay, error),
                ReplayStep::Send(exchange) => self.displace_one(exchange),
            }
        }
    }

    /// Hands a request to the channel's owner, or fails it if the owner does not take it.
    fn displace_one(&mut self, mut exchange: Exchange) {
        if exchange.given_up.is_some() {
            return self.tell_given_up(exchange);
        }
        exchange.change_part(BlockRequest::restart);
        let request = exchange.request().copied();
        let request = request.filter(|request| {
            let is_own = !request.private_data && request.extent_of.is_none();
            self.machine.is_replaceable() && is_own && !is_volume_gone(&self.namespaces, &exchange)
        });
        let Some(request) = request else {
            return self.finish(exchange, Err(BlockError::Gone));
        };
        if exchange.replayed {
            self.recovery.locks.unlock(request.span());
        }
        exchange.release();
        let request = Request {
            tag: exchange.tag,
            operation: request.operation,
            lba: request.lba,
            blocks: request.blocks,
            data: exchange.data.take(),
        };
        let displaced = (request, exchange.limit);
        self.requests.displaced.push_back(displaced);
    }

    /// Splits the kept commands over extents that the controller does not support, or not with this
    /// number of extents, into one request per extent.
    fn take_apart(&mut self) {
        if self.requests.extents == 0 {
            return;
        }
        let Self {
            recovery,
            requests,
            parameters,
            ..
        } = self;
        let Requests { waiting, apart, .. } = requests;
        let in_flight = parameters.extents.map_or(0, |terms| terms.in_flight);
        let mut places = usize::from(in_flight);
        let mut take_apart = |exchange: Exchange| {
            if exchange.extents().is_none() {
                return vec![exchange];
            }
            if places == 0 || !is_taken(&exchange, parameters) {
                return apart.take(exchange);
            }
            places -= 1;
            vec![exchange]
        };
        recovery.replace_lost(&mut take_apart);
        for _ in 0..waiting.len() {
            let exchange = waiting.pop_front().expect("there are as many");
            waiting.extend(take_apart(exchange));
        }
    }
}

/// Returns true if the volume of a request was removed: its NSID may name another volume now, so
/// nothing more of the request may be sent.
fn is_volume_gone(namespaces: &[ChannelNamespace], exchange: &Exchange) -> bool {
    let number = exchange.namespace();
    number.is_some_and(|number| namespaces[usize::from(number)].state.is_gone())
}

/// Returns true if the controller supports this command over extents.
fn is_taken(exchange: &Exchange, parameters: &Parameters) -> bool {
    let capsule = exchange.data.as_ref().map_or(0, IoSlice::len);
    let request = exchange.extents();
    request.is_some_and(|request| request.is_taken_by(parameters, capsule))
}
