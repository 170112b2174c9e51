//! The end of requests: answered by the controller, or given up by their submitters.
//!
//! A request is given up when its limit passes or it is cancelled. If it was not sent, it is
//! removed. If the controller has it, it is aborted. Its memory returns to the submitter at once if
//! neither a driver operation nor the controller still needs it; otherwise with the answer, or with
//! the end of the connection. Until the command is answered it keeps its slot in the table, data
//! that arrives for it is dropped, and newer writes to its blocks wait on every channel of the
//! association, because it could overwrite them (docs/design/decisions/0004-replay.md).

use super::{RemoteChannel, Requests};
use crate::ConnectionError;
use crate::association::AbortRequest;
use crate::command::BlockRequest;
use crate::command::exchange::{Exchange, Work};
use crate::command::extents::ExtentsRequest;
use crate::command::table::{Finished, Outcome};
use crate::limits::RETRIES_PER_REQUEST_MAX;
use crate::recovery::machine::ChannelState;
use crate::recovery::span::Span;
use crate::recovery::status::{Verdict, judge};
use base::Time;
use base::mutation::{self, Mutation};
use base::units::Lba;
use block::{BlockError, Completion, Extents, Operation};
use reactor::{Context, IoSlice};
use std::num::NonZeroU16;

impl RemoteChannel {
    /// Records that a write without FUA was acknowledged.
    #[inline]
    fn wrote(&self, namespace: u16) {
        if !self.parameters.features.volatile_cache {
            return;
        }
        let unflushed = &self.namespaces[usize::from(namespace)].state.unflushed;
        unflushed.wrote();
        if self.association.caches_lost() >= self.recovery.joined {
            // The answer is older than the cache loss but is processed after it.
            unflushed.lose_answered();
        }
    }

    /// Returns the result of a successful Flush: an error if it covers writes that a cache loss
    /// dropped.
    fn flushed(&mut self, request: &BlockRequest) -> Result<(), BlockError> {
        let (mark, reported) = request.promise();
        let entry = &mut self.namespaces[usize::from(request.namespace)];
        let unflushed = &entry.state.unflushed;
        unflushed.flushed(if mutation::active(Mutation::FlushCountsLater) {
            unflushed.begin_flush()
        } else {
            mark
        });
        let losses = unflushed.losses();
        let requests = &mut self.requests;
        let place = requests.reaped + requests.done.len() as u64 + 1;
        requests.flushes.push_back((place, losses));
        if losses == reported || mutation::active(Mutation::CacheLossHidden) {
            return Ok(());
        }
        entry.reported = losses;
        unflushed.report(losses);
        Err(BlockError::CacheLost)
    }

    /// Completes a request with this result.
    pub(super) fn finish(&mut self, mut exchange: Exchange, mut result: Result<(), BlockError>) {
        if exchange.replayed && !self.stays_locked(&exchange) {
            for span in exchange.written() {
                self.recovery.locks.unlock(span);
            }
        }
        if let Work::Extents(request) = exchange.work {
            let write = Operation::Write { durable: false };
            let some = result.is_ok() || request.done != 0;
            if some && request.command.operation == write {
                self.wrote(request.namespace);
            }
            return self.finish_extents(request, result);
        }
        if let Some(&request) = exchange.request().filter(|_| result.is_ok()) {
            if request.is_cached() {
                self.wrote(request.namespace);
            } else if request.operation == Operation::Flush {
                result = self.flushed(&request);
            }
        }
        if let Some(extent) = exchange.extent() {
            let data = exchange.take_data();
            return self.end_extent(extent, result, data);
        }
        if mutation::active(Mutation::CompletedTwice) {
            let (tag, data) = (exchange.tag, None);
            self.requests
                .done
                .push_back(Completion { tag, result, data });
        }
        self.requests.done.push_back(Completion {
            tag: exchange.tag,
            result,
            data: exchange.take_data(),
        });
    }

    /// Takes the finished commands of a lane.
    pub(super) fn collect(&mut self, lane: usize, cx: &mut Context<'_>) {
        loop {
            let table = self.lanes.all[lane].qpair.table();
            if let Some((tag, data, cached)) = table.take_done() {
                let result = Ok(());
                if let Some(namespace) = cached {
                    self.wrote(namespace);
                }
                self.requests
                    .done
                    .push_back(Completion { tag, result, data });
            } else if let Some(finished) = table.take_finished() {
                self.finished(finished, cx);
            } else {
                return;
            }
        }
    }

    fn finished(&mut self, finished: Finished, cx: &mut Context<'_>) {
        let Finished {
            mut exchange,
            outcome,
        } = finished;
        if exchange.detached {
            self.let_go(&exchange, matches!(outcome, Outcome::Lost));
            if let Work::Extents(request) = exchange.work {
                self.requests.extents -= 1;
                self.requests.spare.push(request);
            }
            return;
        }
        let completion = match outcome {
            Outcome::Answered(completion) => completion,
            Outcome::TimedOut if exchange.given_up.is_some() => {
                return self.tell_given_up(exchange);
            }
            Outcome::TimedOut => return self.finish(exchange, Err(BlockError::TimedOut)),
            Outcome::Lost if mutation::active(Mutation::LostWriteDone) => {
                return self.finish(exchange, Ok(()));
            }
            Outcome::Lost => return self.lost(exchange),
        };
        match judge(completion.status) {
            Verdict::Done => self.part_done(exchange, cx.now),
            Verdict::Retry(_) if exchange.given_up.is_some() => self.tell_given_up(exchange),
            Verdict::Retry(error) if exchange.retries >= RETRIES_PER_REQUEST_MAX => {
                self.finish(exchange, Err(error));
            }
            // The caller sends it again after all finished commands are taken.
            Verdict::Retry(_) => {
                if let Work::Extents(request) = &mut exchange.work {
                    // Every extent is repeated.
                    request.done = 0;
                }
                self.recovery.retry(exchange, cx.now);
            }
            Verdict::Failed(error) => self.finish(exchange, Err(error)),
        }
    }

    /// Completes the request of a successful command, or sends the command for the next part of its
    /// range.
    #[inline]
    fn part_done(&mut self, mut exchange: Exchange, now: Time) {
        let Some(&request) = exchange.request() else {
            return self.finish(exchange, Ok(()));
        };
        if request.blocks_left == 0 || mutation::active(Mutation::SplitDoneEarly) {
            self.finish(exchange, Ok(()));
            return;
        }
        if exchange.given_up.is_some() {
            return self.tell_given_up(exchange);
        }
        let state = &self.namespaces[usize::from(request.namespace)].state;
        if state.is_gone() {
            self.finish(exchange, Err(BlockError::Gone));
            return;
        }
        let (geometry, parameters) = (state.geometry(), &self.parameters);
        exchange.change_part(|request| request.advance(geometry, parameters));
        exchange.retries = 0;
        match self.lanes.free() {
            Some(lane) => self.lanes.start(lane, exchange, now),
            None => self.recovery.push_front(exchange),
        }
    }

    /// Completes a command over extents.
    fn finish_extents(&mut self, request: Box<ExtentsRequest>, result: Result<(), BlockError>) {
        let command = self.end_extents(request, result);
        self.requests.done_extents.push_back(command);
    }

    /// Returns a command over extents with this result. Extents that were done although the command
    /// failed have a result of their own.
    pub(super) fn end_extents(
        &mut self,
        mut request: Box<ExtentsRequest>,
        result: Result<(), BlockError>,
    ) -> Extents {
        let mut extents = std::mem::take(&mut request.command.extents);
        for (index, extent) in extents.iter_mut().enumerate() {
            extent.result = request.result_of(index, result);
        }
        request.command.extents = extents;
        self.requests.release(request)
    }

    /// Takes the next finished command over extents.
    pub(super) fn take_extents(&mut self) -> Option<Extents> {
        let done = self.requests.done_extents.pop_front()?;
        assert!(
            self.requests.extents > 0,
            "a command over extents ends once"
        );
        self.requests.outstanding -= 1;
        self.requests.extents -= 1;
        Some(done)
    }

    /// Ends an extent that was sent as a command of its own. The last extent ends the whole
    /// command.
    fn end_extent(
        &mut self,
        (number, lba): (NonZeroU16, Lba),
        result: Result<(), BlockError>,
        data: Option<IoSlice>,
    ) {
        let Some(command) = self.requests.apart.end(number, lba, result, data) else {
            return;
        };
        for span in command.locked {
            self.recovery.locks.unlock(span);
        }
        let command = self.requests.release(command.request);
        self.requests.done_extents.push_back(command);
    }

    /// Keeps the blocks of a resent extent locked until its whole command ends. Returns false if
    /// they are to be unlocked now: it is the last extent, or another extent waits and could be
    /// waiting for a command that waits for this lock.
    fn stays_locked(&mut self, exchange: &Exchange) -> bool {
        let Some((number, _)) = exchange.extent() else {
            return false;
        };
        let is_one = |other: &Exchange| other.extent().is_some_and(|(other, _)| other == number);
        let waits = self.requests.waiting.iter().any(is_one);
        !waits && self.requests.apart.keep_locked(number, exchange.written())
    }

    /// Cancels every request and every command over extents with this tag. Each ends with
    /// [`BlockError::Aborted`], or with its answer if that arrives first. Returns false if there is
    /// none. A cancelled write may or may not have been done.
    pub fn cancel(&mut self, tag: u64, cx: &mut Context<'_>) -> bool {
        let which = |exchange: &Exchange| exchange.tag == tag;
        let found = self.give_up(which, BlockError::Aborted, cx) > 0;
        self.follow_up(cx);
        found
    }

    /// Gives up the requests whose limit has passed.
    pub(super) fn give_up_late(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        self.recovery.refresh(&self.association);
        for exchange in &mut self.requests.waiting {
            // The older write may be over even if this one cannot be sent yet.
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

    /// Gives up the requests for which `which` returns true. Returns their number.
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

    /// Completes the given-up requests of a lane whose memory is no longer in use.
    pub(super) fn detach_given_up(&mut self, index: usize, now: Time) {
        let waits = |exchange: &Exchange| exchange.given_up.is_some() && !exchange.detached;
        let mut start = 0;
        while let Some((slot, _)) = self.lanes.all[index].qpair.table().unanswered(start, waits) {
            self.detach(index, slot, now);
            start = slot + 1;
        }
    }

    /// Completes a given-up request if its memory is no longer in use. Its command stays in the
    /// table until the controller answers it.
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

    /// Completes a given-up request that has no command left.
    pub(super) fn tell_given_up(&mut self, exchange: Exchange) {
        let error = exchange.given_up.unwrap_or(BlockError::Aborted);
        self.finish(exchange, Err(error));
    }

    /// Ends a command whose request was completed before: it was answered, or lost with its
    /// connection. Newer writes to its blocks continue, unless the command may still take effect.
    fn let_go(&self, exchange: &Exchange, is_lost: bool) {
        let generation = self.recovery.joined;
        for span in exchange.written() {
            if is_lost {
                // The controller may still execute it until the association has ended; the blocks
                // are fenced until then.
                let address = self.association.address();
                let error = ConnectionError::GivenUp { address };
                self.association.report_lost(generation, Some(error));
                self.association.fence_blocks(generation, span);
            }
            self.association.let_go_blocks(generation, span);
        }
    }

    /// Fences the blocks of the writes that a dropped channel leaves behind, while one of their
    /// commands may take effect. If the channel was not closed, that lasts until the association
    /// has ended.
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
        let is_closed = self.state() == ChannelState::Closed;
        for lane in &mut self.lanes.all {
            let is_left = |exchange: &Exchange| !exchange.detached;
            let mut start = 0;
            while let Some((slot, exchange)) = lane.qpair.table().unanswered(start, is_left) {
                for span in exchange.written() {
                    if !is_closed {
                        let error = ConnectionError::GivenUp { address };
                        self.association.report_lost(generation, Some(error));
                    }
                    self.association.fence_blocks(generation, span);
                }
                start = slot + 1;
            }
        }
    }

    /// Treats the commands of completed requests as lost, because the channel is dropped.
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

/// Returns true if the submitter still waits for this request or command over extents.
fn is_wanted(exchange: &Exchange) -> bool {
    !matches!(exchange.work, Work::Admin(_)) && exchange.given_up.is_none()
}

impl Requests {
    /// Returns the command of a finished request, and keeps the request's memory for reuse.
    pub(super) fn release(&mut self, mut request: Box<ExtentsRequest>) -> Extents {
        let empty = Extents {
            tag: 0,
            operation: Operation::Read,
            extents: Vec::new(),
        };
        let command = std::mem::replace(&mut request.command, empty);
        self.spare.push(request);
        command
    }
}
