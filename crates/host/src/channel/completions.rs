//! Commands that the lanes finished: their requests are completed, continued, or sent again.

use super::RemoteChannel;
use crate::command::BlockRequest;
use crate::command::exchange::{Exchange, Work};
use crate::command::table::{Finished, Outcome};
use crate::limits::RETRIES_PER_REQUEST_MAX;
use crate::recovery::status::{Verdict, judge};
use base::Time;
use base::mutation::{self, Mutation};
use block::{BlockError, Completion, Operation};
use reactor::Context;

impl RemoteChannel {
    /// A write without FUA was acknowledged.
    #[inline]
    fn wrote(&self, namespace: u16) {
        if !self.parameters.features.volatile_cache {
            return;
        }
        let unflushed = &self.namespaces[usize::from(namespace)].state.unflushed;
        unflushed.wrote();
        if self.association.caches_lost() >= self.recovery.joined {
            // The answer is older than the loss, and was not known when that was noticed.
            unflushed.lose_answered();
        }
    }

    /// A Flush was done: it fails all the same where it promised what was lost before.
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

    /// Ends a request.
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

    /// Takes what the lanes finished.
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
            // The caller sends what waits once it has taken all that the lanes finished.
            Verdict::Retry(_) => {
                if let Work::Extents(request) = &mut exchange.work {
                    // All of it is done again.
                    request.done = 0;
                }
                self.recovery.retry(exchange, cx.now);
            }
            Verdict::Failed(error) => self.finish(exchange, Err(error)),
        }
    }

    /// A command succeeded; its request may need another one for the rest of its range.
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
        match self.free_lane() {
            Some(lane) => self.start(lane, exchange, now),
            None => self.recovery.push_front(exchange),
        }
    }
}
