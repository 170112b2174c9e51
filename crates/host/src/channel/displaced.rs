//! A channel that got no queue when its association was made anew.
//!
//! The controller granted fewer than before, and others have them. What the channel has is reported
//! as [`Gone`](BlockError::Gone), unless there is another way for it. Then a lost write leaves the
//! channel only when no old command of it can take effect any more, so that any channel may send it
//! (docs/design/decisions/0004-replay.md).

use super::{ChannelState, RemoteChannel};
use crate::command::BlockRequest;
use crate::command::exchange::Exchange;
use crate::limits::ASK_AGAIN;
use crate::recovery::epoch::Phase;
use crate::recovery::replay::Next;
use base::Time;
use base::mutation::{self, Mutation};
use block::{BlockError, Request};
use reactor::Context;

/// The way of requests that find no queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherWay {
    /// There is none: they fail at once.
    None,
    /// The submitter repeats what failed with [`Gone`](BlockError::Gone).
    Repeated,
    /// The owner of the channel takes them, and the channel asks for a queue from time to time.
    Taken,
}

impl RemoteChannel {
    /// Says what becomes of requests that find no queue.
    pub(crate) fn set_other_way(&mut self, other_way: OtherWay) {
        self.lanes.other_way = other_way;
    }

    /// Takes the oldest request that is to go another way, with the time at which it is given up. It
    /// counts as outstanding no more.
    pub(crate) fn take_displaced(&mut self) -> Option<(Request, Time)> {
        let displaced = self.requests.displaced.pop_front()?;
        self.requests.outstanding -= 1;
        Some(displaced)
    }

    /// Returns true if everything goes on without the channel.
    pub(super) fn is_dispensable(&self) -> bool {
        self.lanes.other_way == OtherWay::Taken
    }

    /// The channel got no queue.
    pub(super) fn begin_to_displace(&mut self, cx: &mut Context<'_>) {
        self.lanes.asks_again = false;
        self.lanes.unopened = None;
        let asks = self.is_dispensable() || self.association.options().keep_reconnecting;
        if asks && !mutation::active(Mutation::QueueNotAskedFor) {
            self.lanes.ask_again_at = cx.now + ASK_AGAIN;
        }
        if self.lanes.other_way == OtherWay::None {
            return self.gone(BlockError::Gone);
        }
        self.enter(ChannelState::Gone);
        self.displace(cx);
    }

    /// Lets go of what a channel without a queue has, as far as that is safe, and asks for a queue
    /// where that is due.
    pub(super) fn displace(&mut self, cx: &mut Context<'_>) {
        if self.lanes.ask_again_at <= cx.now {
            self.lanes.ask_again_at = Time::NEVER;
            let is_live = self.epoch.phase == Phase::Live && self.association.epoch() == self.epoch;
            if is_live && !self.closing {
                self.lanes.asks_again = true;
                return self.join(cx);
            }
        }
        while let Some(exchange) = self.requests.waiting.pop_front() {
            self.send_elsewhere(exchange);
        }
        self.recovery.refresh(&self.association);
        for _ in 0..self.recovery.len() {
            match self.next_lost(cx.now) {
                Next::Nothing => break,
                Next::Wait => {}
                Next::Report(replay, error) => self.report_lost_write(replay, error),
                Next::Send(exchange) => self.send_elsewhere(exchange),
            }
        }
    }

    /// Keeps what is left of a request for its other way, or reports it.
    fn send_elsewhere(&mut self, mut exchange: Exchange) {
        if exchange.given_up.is_some() {
            return self.tell_given_up(exchange);
        }
        exchange.change_part(BlockRequest::restart);
        let request = exchange.request().copied();
        let request = request.filter(|request| {
            let is_own = !request.private_data && request.extent_of.is_none();
            self.is_dispensable() && is_own && !self.is_gone(&exchange)
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
}
