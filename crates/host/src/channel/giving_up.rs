//! Requests that their submitters give up: by a limit that passes, or by a cancellation.
//!
//! What was not sent is removed. What is with the controller is aborted, and its memory goes back to
//! the submitter at once if neither an operation of the driver nor the controller needs it any more;
//! otherwise with the answer, or with the end of the connection. Until then the command keeps its
//! place in the table, what is read for it is dropped, and newer writes to the blocks that it writes
//! wait, on every channel of the association: it must not undo one of them
//! (docs/design/decisions/0004-replay.md).

use super::RemoteChannel;
use crate::ConnectionError;
use crate::association::AbortRequest;
use crate::command::exchange::{Exchange, Work};
use crate::recovery::span::Span;
use base::Time;
use block::{BlockError, Completion, Request, Submit};
use reactor::Context;

impl RemoteChannel {
    /// Submits a request that is given up at `limit`, with [`BlockError::TimedOut`]. Whether a write
    /// was done is not known then.
    pub fn submit_until(&mut self, request: Request, limit: Time, cx: &mut Context<'_>) -> Submit {
        self.submit_limited(0, request, limit, cx)
    }

    /// Gives up every request and every command over extents with this tag, with
    /// [`BlockError::Aborted`]; one that is answered meanwhile ends with its answer. Returns false if
    /// there is none. Whether a write was done is not known afterwards.
    pub fn cancel(&mut self, tag: u64, cx: &mut Context<'_>) -> bool {
        let which = |exchange: &Exchange| exchange.tag == tag;
        let found = self.give_up(which, BlockError::Aborted, cx) > 0;
        self.follow_up(cx);
        found
    }

    /// Gives up the requests of which the limit has passed.
    pub(super) fn give_up_late(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        self.recovery.refresh(&self.association);
        for exchange in &mut self.requests.waiting {
            // Its wait may be over although it cannot be sent yet.
            if exchange.held && !self.recovery.is_held(exchange) {
                exchange.release();
            }
        }
        self.give_up(|exchange| exchange.limit <= now, BlockError::TimedOut, cx);
        let lanes = self.lanes.all.iter_mut().flat_map(|lane| {
            let table = &*lane.qpair.table();
            let mut start = 0;
            std::iter::from_fn(move || {
                let (slot, exchange) = table.unanswered(start, is_wanted)?;
                start = slot + 1;
                Some(exchange.limit)
            })
        });
        let kept = self
            .requests
            .waiting
            .iter()
            .chain(self.recovery.lost_ones());
        let kept = kept.filter(|exchange| is_wanted(exchange));
        let limits = lanes.chain(kept.map(|exchange| exchange.limit));
        self.requests.next_limit = limits.min().unwrap_or(Time::NEVER);
    }

    /// Gives up the requests that `which` chooses. Returns their number.
    fn give_up(
        &mut self,
        which: impl Fn(&Exchange) -> bool,
        error: BlockError,
        cx: &mut Context<'_>,
    ) -> usize {
        let which = |exchange: &Exchange| is_wanted(exchange) && which(exchange);
        let mut count = 0;
        while let Some(place) = self.requests.waiting.iter().position(which) {
            count += 1;
            let exchange = self.requests.waiting.remove(place);
            self.finish(exchange.expect("it was found there"), Err(error));
        }
        while let Some(replay) = self.recovery.give_up(cx.now, which, error) {
            if let Some(replay) = replay {
                self.report_lost_write(replay, error);
            }
            count += 1;
        }
        for lane in 0..self.lanes.all.len() {
            let mut start = 0;
            while let Some((slot, _)) = self.lanes.all[lane].qpair.table().unanswered(start, which)
            {
                self.give_up_in_lane(lane, slot, error, cx);
                start = slot + 1;
                count += 1;
            }
        }
        count
    }

    fn give_up_in_lane(
        &mut self,
        index: usize,
        slot: u16,
        error: BlockError,
        cx: &mut Context<'_>,
    ) {
        let abort_time = self.abort_time();
        let lane = &mut self.lanes.all[index];
        if let Some(exchange) = lane.qpair.withdraw(slot) {
            return self.finish(exchange, Err(error));
        }
        let table = lane.qpair.table();
        let cid = table.cid(slot);
        let entry = table.slot(slot);
        let exchange = entry.exchange.as_mut().expect("it was found there");
        exchange.given_up = Some(error);
        if !entry.is_aborting() {
            entry.abort();
            entry.deadline = entry.deadline.min(cx.now + abort_time);
        }
        self.association.request_abort(AbortRequest {
            generation: self.epoch.generation,
            queue_id: lane.queue_id,
            cid,
        });
        self.detach(index, slot, cx.now);
    }

    /// Tells the submitters of given-up requests of a lane so, where their memory is free by now.
    pub(super) fn detach_given_up(&mut self, index: usize, now: Time) {
        let waits = |exchange: &Exchange| exchange.given_up.is_some() && !exchange.detached;
        let mut start = 0;
        while let Some((slot, _)) = self.lanes.all[index].qpair.table().unanswered(start, waits) {
            self.detach(index, slot, now);
            start = slot + 1;
        }
    }

    /// Tells the submitter of a given-up request so, if its memory is free.
    fn detach(&mut self, index: usize, slot: u16, now: Time) {
        let qpair = &mut self.lanes.all[index].qpair;
        let Some(data) = qpair.detach(slot, now) else {
            return;
        };
        let exchange = qpair.table().slot(slot).exchange.as_mut();
        let exchange = exchange.expect("it was found there");
        let (tag, error) = (exchange.tag, exchange.given_up);
        let extent = exchange.extent();
        let extents = match &mut exchange.work {
            Work::Extents(request) => Some(request.detach()),
            _ => None,
        };
        let was_locked = std::mem::take(&mut exchange.replayed);
        let spans: Vec<Span> = exchange.written().collect();
        for span in spans {
            self.association.hold_blocks(self.recovery.joined, span);
            if was_locked {
                self.recovery.locks.unlock(span);
            }
        }
        self.recovery.refresh(&self.association);
        let result = Err(error.unwrap_or(BlockError::Aborted));
        if let Some(extent) = extent {
            self.end_extent(extent, result, data);
        } else if let Some(command) = extents {
            self.requests.extents += 1;
            self.requests.done_extents.push_back(command.ended(result));
        } else {
            self.requests
                .done
                .push_back(Completion { tag, result, data });
        }
    }

    /// Tells the submitter of a request that it gave it up, and that nothing of it is left.
    pub(super) fn tell_given_up(&mut self, exchange: Exchange) {
        let error = exchange.given_up.unwrap_or(BlockError::Aborted);
        self.finish(exchange, Err(error));
    }

    /// A command of which the submitter knows was answered, or lost with its connection. Newer
    /// writes to its blocks go on, unless it may still be done.
    pub(super) fn let_go(&self, exchange: &Exchange, is_lost: bool) {
        let generation = self.recovery.joined;
        for span in exchange.written() {
            if is_lost {
                // The controller may still do it: nothing but the association's end says when it
                // cannot, and until then the blocks are fenced.
                let address = self.association.address();
                let error = ConnectionError::GivenUp { address };
                self.association.report_lost(generation, Some(error));
                self.association.fence_blocks(generation, span);
            }
            self.association.let_go_blocks(generation, span);
        }
    }

    /// Closes the blocks of the writes that the channel leaves behind, as long as a command of them
    /// may take effect. Without a [close](Channel::close) only the end of the association says when
    /// none can any more.
    pub(super) fn close_blocks(&mut self) {
        while let Some(replay) = self.recovery.take() {
            if replay.lost_with > 0 {
                for span in replay.exchange.written() {
                    self.association.fence_blocks(replay.lost_with, span);
                }
            }
        }
        let generation = self.recovery.joined;
        let address = self.association.address();
        for lane in &mut self.lanes.all {
            let is_left = |exchange: &Exchange| !exchange.detached;
            let mut start = 0;
            while let Some((slot, exchange)) = lane.qpair.table().unanswered(start, is_left) {
                for span in exchange.written() {
                    if !self.closing {
                        let error = ConnectionError::GivenUp { address };
                        self.association.report_lost(generation, Some(error));
                    }
                    self.association.fence_blocks(generation, span);
                }
                start = slot + 1;
            }
        }
    }

    /// The commands of which submitters know are lost with the channel.
    pub(super) fn let_go_all(&mut self) {
        for index in 0..self.lanes.all.len() {
            let is_detached = |exchange: &Exchange| exchange.detached;
            let mut start = 0;
            loop {
                let table = self.lanes.all[index].qpair.table();
                let Some((slot, _)) = table.unanswered(start, is_detached) else {
                    break;
                };
                if let Some(exchange) = table.slot(slot).exchange.take() {
                    self.let_go(&exchange, true);
                }
                start = slot + 1;
            }
        }
    }
}

/// Returns true if the submitter of a request or a command over extents waits for its end.
fn is_wanted(exchange: &Exchange) -> bool {
    !matches!(exchange.work, Work::Admin(_)) && exchange.given_up.is_none()
}
