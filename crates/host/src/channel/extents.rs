//! Commands over several extents: checked, and made into a command of the vendor's where the target
//! announced that it takes them.

use super::{ChannelState, RemoteChannel};
use crate::association::parameters::Parameters;
use crate::command::exchange::{Direction, Exchange, Work};
use crate::command::extents::{ExtentsRequest, has_more_owners};
use base::Time;
use block::{BlockError, Capabilities, Extents, Operation, SubmitExtents, check_extents};
use reactor::Context;
use wire::nvme::ExtentTerms;

impl RemoteChannel {
    /// Submits a command over extents that is given up at `limit`: each of its extents ends with
    /// [`BlockError::TimedOut`]. Which of them were written is not known then.
    pub fn submit_extents_until(
        &mut self,
        command: Extents,
        limit: Time,
        cx: &mut Context<'_>,
    ) -> SubmitExtents {
        self.submit_extents_to(0, command, limit, cx)
    }

    /// Takes a command over extents of the namespace with this number, which is given up at `limit`.
    /// Its data together is at most a transfer.
    pub(super) fn submit_extents_to(
        &mut self,
        namespace: usize,
        mut command: Extents,
        limit: Time,
        cx: &mut Context<'_>,
    ) -> SubmitExtents {
        let parameters = if self.state() == ChannelState::Live {
            self.parameters
        } else {
            self.association.parameters()
        };
        let terms = match self.extents_allowed(namespace, &mut command, &parameters) {
            Ok(terms) if limit > cx.now => terms,
            Ok(_) => return SubmitExtents::Done(command.ended(Err(BlockError::TimedOut))),
            Err(error) => return SubmitExtents::Done(command.ended(Err(error))),
        };
        if self.requests.outstanding >= self.requests.capacity
            || self.requests.extents >= usize::from(terms.in_flight)
        {
            return SubmitExtents::Busy(command);
        }
        let state = &self.namespaces[namespace].state;
        let number = u16::try_from(namespace).expect("at most 1,024");
        let names = (number, state.nsid);
        let direction = if command.operation.is_write() {
            Direction::Out
        } else {
            Direction::In
        };
        let (tag, block_bytes, buffers) = (command.tag, state.block_bytes, cx.driver.buffers());
        let spare = self.requests.spare.pop();
        let mut request = spare.unwrap_or_else(|| Box::new(ExtentsRequest::new()));
        let capsule = match request.begin(command, names, block_bytes, &parameters, buffers) {
            Ok(capsule) => capsule,
            Err(command) => {
                self.requests.spare.push(request);
                return SubmitExtents::Busy(command);
            }
        };
        let mut exchange = Exchange::new(tag, Work::Extents(request), direction, Some(capsule));
        self.recovery.refresh(&self.association);
        if self.recovery.is_fenced(&exchange)
            && let Work::Extents(request) = exchange.work
        {
            let command = self.end_extents(request, Err(BlockError::TimedOut));
            return SubmitExtents::Done(command);
        }
        self.requests.extents += 1;
        exchange.limit = limit;
        self.requests.next_limit = self.requests.next_limit.min(limit);
        self.start_or_keep(exchange, cx.now);
        SubmitExtents::Queued
    }

    /// Checks a command, and that the controller takes it. Returns the controller's terms.
    fn extents_allowed(
        &self,
        namespace: usize,
        command: &mut Extents,
        parameters: &Parameters,
    ) -> Result<ExtentTerms, BlockError> {
        let entry = &self.namespaces[namespace];
        if self.closing {
            return Err(BlockError::Aborted);
        }
        if self.state() == ChannelState::Gone || entry.state.is_gone() {
            return Err(BlockError::Gone);
        }
        let capabilities = Capabilities {
            read_only: entry.state.read_only(),
            ..entry.capabilities
        };
        let geometry = entry.state.geometry();
        check_extents(command, geometry, capabilities)?;
        let bytes = command.blocks().saturating_mul(geometry.block_bytes.into());
        let mut data = command.extents.iter_mut().flat_map(|e| e.data.as_mut());
        let read_only = command.operation == Operation::Read && data.any(has_more_owners);
        if bytes > u64::from(capabilities.max_transfer_bytes) || read_only {
            return Err(BlockError::Malformed);
        }
        let extents = command.extents.len();
        let takes = |terms: &ExtentTerms| {
            extents <= usize::from(terms.extents) && bytes <= u64::from(terms.bytes)
        };
        let terms = parameters.extents.filter(takes);
        terms.ok_or(BlockError::Unsupported)
    }

    /// Returns true for a command over extents that the target does not take any more: another
    /// one, with other terms, may have come back in its place.
    pub(super) fn is_untaken(&self, exchange: &Exchange) -> bool {
        let capsule = exchange.data.as_ref().map_or(0, reactor::IoSlice::len);
        let request = exchange.extents();
        request.is_some_and(|request| !request.is_taken_by(&self.parameters, capsule))
    }

    /// Ends a command over extents, which is reaped next.
    pub(super) fn finish_extents(
        &mut self,
        request: Box<ExtentsRequest>,
        result: Result<(), BlockError>,
    ) {
        let command = self.end_extents(request, result);
        self.requests.done_extents.push_back(command);
    }

    /// Returns a command over extents with this result, but for those of its extents that were done
    /// although it failed.
    fn end_extents(
        &mut self,
        mut request: Box<ExtentsRequest>,
        result: Result<(), BlockError>,
    ) -> Extents {
        let empty = Extents {
            tag: 0,
            operation: Operation::Read,
            extents: Vec::new(),
        };
        let mut command = std::mem::replace(&mut request.command, empty);
        for (index, extent) in command.extents.iter_mut().enumerate() {
            extent.result = request.result_of(index, result);
        }
        self.requests.spare.push(request);
        command
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
}
