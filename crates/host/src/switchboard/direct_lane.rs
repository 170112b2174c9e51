//! A direct lane: the submitter's own thread sends its requests and receives the answers.
//!
//! A request through a dataplane thread costs two thread switches. If a submitter is alone on its
//! core, there is nothing to prioritise, so the submitter runs the egress itself, as in SyncPath
//! (docs/design/decisions/0023-direct-lanes.md). While `Throughput` work is outstanding on the
//! core, or other submitters have `Latency` work there, requests go through the ingress. A request
//! does not change its way, unless the controller no longer grants the lane a queue: then the
//! lane's requests go through the ingress until it has a queue again.

use crate::channel::RemoteChannel;
use crate::recovery::machine::ChannelState;
use crate::switchboard::request_steering::LoadTable;
use base::Time;
use block::{Channel, Completion, Operation, Request, Submit};
use reactor::{Context, IoSlice};

/// The lane and its outstanding requests.
#[derive(Debug)]
pub(super) struct DirectLane {
    channel: RemoteChannel,
    outstanding: usize,
    /// Bytes of the outstanding requests.
    bytes: u64,
    /// True if its close was requested.
    closing: bool,
    /// The core whose account has the outstanding requests.
    core: usize,
}

impl DirectLane {
    /// Creates a lane that is about to be opened.
    pub(super) const fn new(channel: RemoteChannel) -> Self {
        Self {
            channel,
            outstanding: 0,
            bytes: 0,
            closing: false,
            core: 0,
        }
    }

    /// Returns true if a request of a thread on `core` is to take this lane.
    ///
    /// A Flush always goes through the ingress, which tracks the losses it reported. A Deallocate
    /// does too, because the submitter's driver may have no buffers for it.
    #[inline]
    pub(super) fn is_better(&self, operation: Operation, core: usize, loads: &LoadTable) -> bool {
        let excluded = matches!(operation, Operation::Flush | Operation::Deallocate);
        !excluded && loads.is_alone(core) && self.channel.state() == ChannelState::Live
    }

    /// Submits a request of a thread on `core`, which is given up at `limit`.
    pub(super) fn submit(
        &mut self,
        request: Request,
        limit: Time,
        core: usize,
        loads: &LoadTable,
        cx: &mut Context<'_>,
    ) -> Submit {
        let bytes = bytes_of(request.data.as_ref());
        let submit = self.channel.submit_until(request, limit, cx);
        if matches!(submit, Submit::Queued) {
            if self.outstanding == 0 {
                self.core = core;
            }
            self.outstanding += 1;
            self.bytes += bytes;
            loads.direct(self.core).begin(bytes, cx.now);
        }
        submit
    }

    /// Returns a completion.
    #[inline]
    pub(super) fn reap(&mut self, loads: &LoadTable) -> Option<Completion> {
        if self.outstanding == 0 {
            return None;
        }
        let done = self.channel.reap()?;
        self.ended(bytes_of(done.data.as_ref()), loads);
        Some(done)
    }

    /// Takes a request that has no queue here any more, with its limit, to send it through the
    /// ingress.
    pub(super) fn take_displaced(&mut self, loads: &LoadTable) -> Option<(Request, Time)> {
        let displaced = self.channel.take_displaced()?;
        self.ended(bytes_of(displaced.0.data.as_ref()), loads);
        Some(displaced)
    }

    /// Subtracts a request of `bytes` bytes that left the lane.
    #[inline]
    fn ended(&mut self, bytes: u64, loads: &LoadTable) {
        self.outstanding -= 1;
        self.bytes -= bytes;
        loads.direct(self.core).end(bytes);
    }

    /// Closes the lane once nothing is outstanding.
    pub(super) fn close_if_quiet(&mut self, cx: &mut Context<'_>) {
        if self.outstanding == 0 && !self.closing {
            self.closing = true;
            self.channel.close(cx);
        }
    }

    /// Returns the time at which the lane must run: at once if it is to be closed and can be.
    pub(super) fn deadline(&self, closing: bool) -> Time {
        if closing && self.outstanding == 0 && !self.closing {
            return Time::ZERO;
        }
        self.channel.deadline()
    }

    /// Subtracts the outstanding requests from the account, because the submitter is dropped.
    pub(super) fn abandon(&mut self, loads: &LoadTable) {
        loads.direct(self.core).end(std::mem::take(&mut self.bytes));
    }

    /// Returns the bytes of the outstanding requests.
    #[inline]
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if requests are outstanding.
    #[inline]
    pub(super) const fn is_busy(&self) -> bool {
        self.outstanding > 0
    }

    /// The channel of the lane.
    #[inline]
    pub(super) const fn channel(&mut self) -> &mut RemoteChannel {
        &mut self.channel
    }

    /// The channel of the lane, for queries.
    #[inline]
    pub(super) const fn channel_ref(&self) -> &RemoteChannel {
        &self.channel
    }
}

fn bytes_of(data: Option<&IoSlice>) -> u64 {
    data.map_or(0, IoSlice::len) as u64
}
