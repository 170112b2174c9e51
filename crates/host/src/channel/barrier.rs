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
            self.requests
                .waiting
                .push_back(Exchange::barrier(tag, nsid));
            self.drain_waiting(cx.now);
        }
        Ok(())
    }

    /// Returns the permission of the barrier at hand, the oldest request that waits. It waits for the
    /// requests before it, also for writes of which the submitters know that they gave them up, and
    /// for the fences of such writes that were lost. It fails where those will not fall.
    pub(super) fn barrier_permission(&mut self) -> ReplayPermission {
        let done = self.requests.done.len() + self.requests.done_extents.len();
        let is_last = self.requests.outstanding == done + self.requests.waiting.len() + 1;
        if !is_last || self.has_detached_write() {
            return ReplayPermission::Fenced;
        }
        self.recovery.order_permission()
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
