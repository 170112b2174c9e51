//! Barriers: the channel's own order, of which the target's is a part
//! (docs/decisions/0015-barrier.md).
//!
//! A barrier is sent when every request that was submitted before it is done, and what is submitted
//! after it is sent when it is done. So whatever is sent again, on whichever lane, belongs to one
//! side of it: a barrier that is lost is sent again as it is.

use super::{ChannelState, RemoteChannel};
use crate::command::exchange::Exchange;
use block::{BlockError, Completion};
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
    /// ([`BlockError::TimedOut`] where the target had no patience).
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

    /// Returns true if nothing is under way but the request at hand and those that wait behind it.
    pub(super) fn is_all_through(&self) -> bool {
        let done = self.requests.done.len() + self.requests.done_extents.len();
        self.requests.outstanding == done + self.requests.waiting.len() + 1
    }
}
