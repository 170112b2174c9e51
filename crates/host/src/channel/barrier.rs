//! Barriers: the channel's own order, of which the target's is a part
//! (docs/decisions/0015-barrier.md).
//!
//! A barrier is sent when every request that was submitted before it is done, and what is submitted
//! after it is sent when it is done. So whatever is sent again, on whichever lane, belongs to one
//! side of it: a barrier that is lost is sent again as it is. A write that was given up is done when
//! it is answered, or when the association that it was lost with has ended.

use super::{ChannelState, RemoteChannel};
use crate::command::exchange::Exchange;
use crate::recovery::fences::ReplayPermission;
use base::Time;
use block::{BlockError, Completion, Operation};
use reactor::Context;

/// The channel has as many requests as it takes; submit again when some are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full; take completions first")]
pub struct QueueFull;

impl RemoteChannel {
    /// Submits a barrier, which completes under `tag` when every request that was submitted to this
    /// channel before is done, and everything that the target had received of the same tenant on
    /// other queues, whichever host's. What is submitted after it takes effect after it.
    ///
    /// It completes with [`BlockError::Unsupported`] where the target does not announce barriers:
    /// then wait for what has to be first; and with another error where the order was not kept
    /// ([`BlockError::TimedOut`] where the target had no patience, or where it does not confirm that a
    /// write that was reported as lost cannot be done any more).
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn barrier(&mut self, tag: u64, cx: &mut Context<'_>) -> Result<(), QueueFull> {
        self.barrier_until(tag, Time::NEVER, cx)
    }

    /// Submits a barrier that is given up at `limit`, with [`BlockError::TimedOut`]. The channel keeps
    /// its own order all the same: what follows waits for what was submitted before, but no more for
    /// what the target has of other queues.
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn barrier_until(
        &mut self,
        tag: u64,
        limit: Time,
        cx: &mut Context<'_>,
    ) -> Result<(), QueueFull> {
        if self.requests.outstanding >= self.requests.capacity {
            return Err(QueueFull);
        }
        self.requests.outstanding += 1;
        let nsid = self.namespaces.first().map(|entry| entry.state.nsid);
        let known = if self.state() == ChannelState::Live {
            self.parameters.barrier
        } else {
            self.association.parameters().barrier
        };
        let refused = match nsid {
            _ if self.closing => Some(BlockError::Aborted),
            _ if self.state() == ChannelState::Gone => Some(BlockError::Gone),
            _ if limit <= cx.now => Some(BlockError::TimedOut),
            Some(_) if known => None,
            _ => Some(BlockError::Unsupported),
        };
        if let Some(error) = refused {
            let result = Err(error);
            self.requests.done.push_back(Completion {
                tag,
                result,
                data: None,
            });
        } else if let Some(nsid) = nsid {
            self.requests.barriers += 1;
            self.requests.next_limit = self.requests.next_limit.min(limit);
            let mut exchange = Exchange::barrier(tag, nsid);
            exchange.limit = limit;
            self.requests.waiting.push_back(exchange);
            self.drain_waiting(cx.now);
        }
        Ok(())
    }

    /// A barrier is over for its submitter: what follows it goes on, unless another one is before it.
    pub(super) fn end_barrier(&mut self) {
        assert!(self.requests.barriers > 0, "a barrier ends once");
        self.requests.barriers -= 1;
        let waiting = self.requests.waiting.iter();
        let waiting = waiting.filter(|exchange| exchange.is_barrier()).count();
        assert!(
            waiting <= self.requests.barriers,
            "those that wait are counted"
        );
        self.requests.barrier_sent = self.requests.barriers > waiting;
    }

    /// Ends the barriers before all requests that wait, as far as they are not to be sent. Returns
    /// false while such a barrier may neither be sent nor end.
    pub(super) fn pass_barriers(&mut self) -> bool {
        while let Some(front) = self.requests.waiting.front()
            && front.is_barrier()
        {
            let is_over = front.detached;
            match self.barrier_permission() {
                ReplayPermission::Fenced => return false,
                ReplayPermission::Allowed if !is_over => return true,
                ReplayPermission::Allowed | ReplayPermission::Overdue => {}
            }
            let exchange = self.requests.waiting.pop_front();
            if is_over {
                self.end_barrier();
            } else if let Some(exchange) = exchange {
                self.finish(exchange, Err(BlockError::TimedOut));
            }
        }
        true
    }

    /// Returns the permission of the oldest request that waits, a barrier. It waits for the
    /// requests before it, also for writes of which the submitters know that they gave them up, and
    /// for the fences of such writes that were lost. It fails where those will not fall.
    fn barrier_permission(&mut self) -> ReplayPermission {
        let requests = &self.requests;
        let done = requests.done.len() + requests.done_extents.len();
        let waiting = requests.waiting.iter();
        let waiting = waiting.filter(|exchange| !exchange.detached).count();
        let under_way = requests.outstanding + requests.apart.further;
        if under_way != done + waiting || self.has_detached_write() {
            return ReplayPermission::Fenced;
        }
        self.recovery.order_permission()
    }

    /// Tells the submitter of a barrier that waits that it is given up. It keeps its place, for the
    /// order of what is before and behind it.
    pub(super) fn detach_barrier(&mut self, place: usize, error: BlockError) {
        let exchange = &mut self.requests.waiting[place];
        exchange.given_up = Some(error);
        exchange.detached = true;
        self.requests.done.push_back(Completion {
            tag: exchange.tag,
            result: Err(error),
            data: None,
        });
    }

    /// Removes barriers of which the submitters know that stand beside another one, and add nothing
    /// to the order. So there are never more of them than requests.
    pub(super) fn merge_barriers(&mut self) {
        let mut place = 1;
        while let Some(exchange) = self.requests.waiting.get(place) {
            let before = &self.requests.waiting[place - 1];
            if !exchange.is_barrier() || !before.is_barrier() {
                place += 1;
            } else if exchange.detached {
                self.requests.waiting.remove(place);
                self.end_barrier();
            } else if before.detached {
                self.requests.waiting.remove(place - 1);
                self.end_barrier();
            } else {
                place += 1;
            }
        }
    }

    /// Returns true if a write that was given up is not answered.
    fn has_detached_write(&mut self) -> bool {
        let is_one = |exchange: &Exchange| {
            exchange.detached && exchange.operation().is_some_and(Operation::is_write)
        };
        let mut lanes = self.lanes.all.iter_mut();
        lanes.any(|lane| lane.qpair.table().unanswered(0, is_one).is_some())
    }
}
