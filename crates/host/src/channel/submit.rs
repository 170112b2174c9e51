//! New requests: checked, made into a command, and started or kept.

use super::{ChannelState, RemoteChannel, commands};
use crate::command::exchange::{Exchange, Work};
use base::Time;
use block::{BlockError, Capabilities, Completion, Operation, Request, Submit};
use reactor::Context;

impl RemoteChannel {
    /// Takes a request for the namespace with this number.
    pub(crate) fn submit_to(
        &mut self,
        namespace: usize,
        request: Request,
        cx: &mut Context<'_>,
    ) -> Submit {
        self.submit_limited(namespace, request, Time::NEVER, cx)
    }

    /// The same for a request that is given up at `limit`.
    pub(crate) fn submit_limited(
        &mut self,
        namespace: usize,
        mut request: Request,
        limit: Time,
        cx: &mut Context<'_>,
    ) -> Submit {
        if self.requests.outstanding >= self.requests.capacity {
            return Submit::Busy(request);
        }
        let entry = &self.namespaces[namespace];
        if self.closing {
            return Submit::Done(request.ended(Err(BlockError::Aborted)));
        }
        if self.state() == ChannelState::Gone || entry.state.is_gone() {
            return Submit::Done(request.ended(Err(BlockError::Gone)));
        }
        if limit <= cx.now {
            return Submit::Done(request.ended(Err(BlockError::TimedOut)));
        }
        let capabilities = Capabilities {
            read_only: entry.state.read_only(),
            ..entry.capabilities
        };
        let geometry = entry.state.geometry();
        if let Err(error) = block::check(&request, geometry, capabilities) {
            return Submit::Done(request.ended(Err(error)));
        }
        let latest;
        let parameters = if self.state() == ChannelState::Live {
            &self.parameters
        } else {
            latest = self.association.parameters();
            &latest
        };
        if let Err(error) = commands::allowed(&mut request, parameters.features) {
            return Submit::Done(request.ended(Err(error)));
        }
        let buffers = cx.driver.buffers();
        let nsid = entry.state.nsid;
        let names = (u16::try_from(namespace).expect("at most 1,024"), nsid);
        let mut exchange = match commands::exchange(request, names, geometry, parameters, buffers) {
            Ok(exchange) => exchange,
            Err(request) => return Submit::Busy(request),
        };
        if let Work::Block(request) = &mut exchange.work
            && request.operation == Operation::Flush
        {
            request.set_promise(entry.state.unflushed.begin_flush(), entry.reported);
        }
        self.recovery.refresh(&self.association);
        if self.recovery.is_fenced(&exchange) {
            return Submit::Done(Completion {
                tag: exchange.tag,
                result: Err(BlockError::TimedOut),
                data: exchange.take_data(),
            });
        }
        exchange.limit = limit;
        self.requests.next_limit = self.requests.next_limit.min(limit);
        self.requests.outstanding += 1;
        self.start_or_keep(exchange, cx.now);
        Submit::Queued
    }

    /// Starts a new command on a free lane, or keeps it until there is one and nothing goes before it.
    pub(super) fn start_or_keep(&mut self, mut exchange: Exchange, now: Time) {
        self.limit_held(&mut exchange, now);
        let lane = if self.must_wait(&exchange) {
            None
        } else {
            self.free_lane()
        };
        match lane {
            Some(lane) => self.start(lane, exchange, now),
            None => self.requests.waiting.push_back(exchange),
        }
    }
}
