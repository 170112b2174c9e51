//! New requests: checked, made into a command, and started or queued. A command over several
//! extents is sent as one vendor command if the target supports it, otherwise as one command per
//! extent.

use super::RemoteChannel;
use crate::command::BlockRequest;
use crate::command::exchange::{Direction, Exchange, Work};
use crate::command::extents::{ExtentsRequest, has_more_owners};
use crate::info::{Features, Parameters};
use crate::recovery::machine::ChannelState;
use base::Time;
use block::{
    BlockError, Capabilities, Completion, Extents, Geometry, Operation, Request, Submit,
    SubmitExtents, check_extents,
};
use reactor::{BufferPool, Context, IoSlice};
use wire::limits::BLOCKS_PER_COMMAND_MAX;
use wire::nvme::ExtentTerms;
use wire::nvme::io::DatasetRange;

impl RemoteChannel {
    /// Submits a request for the namespace with this number.
    pub(crate) fn submit_to(
        &mut self,
        namespace: usize,
        request: Request,
        cx: &mut Context<'_>,
    ) -> Submit {
        self.submit_limited(namespace, request, Time::NEVER, cx)
    }

    /// Returns the properties of the namespace with this number, or the error of a request for it
    /// if the channel or the namespace is gone.
    #[inline]
    fn properties(&self, namespace: usize) -> Result<(Geometry, Capabilities), BlockError> {
        let entry = &self.namespaces[namespace];
        if self.state() == ChannelState::Closed {
            return Err(BlockError::Aborted);
        }
        if self.state() == ChannelState::Gone || entry.state.is_gone() {
            return Err(BlockError::Gone);
        }
        let capabilities = Capabilities {
            read_only: entry.state.read_only(),
            ..entry.capabilities
        };
        Ok((entry.state.geometry(), capabilities))
    }

    /// Submits a request that is given up at `limit`.
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
        let (geometry, capabilities) = match self.properties(namespace) {
            Ok(_) if limit <= cx.now => {
                return Submit::Done(request.ended(Err(BlockError::TimedOut)));
            }
            Ok(properties) => properties,
            Err(error) => return Submit::Done(request.ended(Err(error))),
        };
        let entry = &self.namespaces[namespace];
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
        if let Err(error) = allowed(&mut request, parameters.features) {
            return Submit::Done(request.ended(Err(error)));
        }
        let buffers = cx.driver.buffers();
        let nsid = entry.state.nsid;
        let names = (u16::try_from(namespace).expect("at most 1,024"), nsid);
        let mut exchange = match exchange_of(request, names, geometry, parameters, buffers) {
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

    /// Submits a request that ends with [`BlockError::TimedOut`] at `limit`. A write may or may not
    /// have been done then.
    pub fn submit_until(&mut self, request: Request, limit: Time, cx: &mut Context<'_>) -> Submit {
        self.submit_limited(0, request, limit, cx)
    }

    /// Sends a new command on a free lane, or queues it if none is free or it must wait for an
    /// older command.
    fn start_or_keep(&mut self, mut exchange: Exchange, now: Time) {
        self.limit_held(&mut exchange, now);
        let lane = if self.must_wait(&exchange) {
            None
        } else {
            self.lanes.free()
        };
        match lane {
            Some(lane) => self.lanes.start(lane, exchange, now),
            None => self.requests.waiting.push_back(exchange),
        }
    }

    /// Submits a command over extents that is given up at `limit`: its extents end with
    /// [`BlockError::TimedOut`], except those that were sent as separate commands and answered
    /// before. The remaining extents of a write may or may not have been written.
    pub fn submit_extents_until(
        &mut self,
        command: Extents,
        limit: Time,
        cx: &mut Context<'_>,
    ) -> SubmitExtents {
        self.submit_extents_to(0, command, limit, cx)
    }

    /// Submits a command over extents for the namespace with this number, which is given up at
    /// `limit`. Its data is at most one transfer in total.
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
        let under_way = self.requests.outstanding + self.requests.apart.further;
        let in_flight = terms.map_or(u16::MAX, |terms| terms.in_flight);
        if under_way >= self.requests.capacity || self.requests.extents >= usize::from(in_flight) {
            return SubmitExtents::Busy(command);
        }
        let taken_by = terms.map(|_| &parameters);
        let exchange = self.extents_exchange(command, namespace, taken_by, cx.driver.buffers());
        let mut exchange = match exchange {
            Ok(exchange) => exchange,
            Err(command) => return SubmitExtents::Busy(command),
        };
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
        self.requests.outstanding += 1;
        if terms.is_some() {
            self.start_or_keep(exchange, cx.now);
            return SubmitExtents::Queued;
        }
        let geometry = self.namespaces[namespace].state.geometry();
        for mut extent in self.requests.apart.take(exchange) {
            extent.change_part(|part| part.shorten(geometry, &parameters));
            self.start_or_keep(extent, cx.now);
        }
        SubmitExtents::Queued
    }

    /// Makes an exchange of a command over extents, with its capsule if the controller supports the
    /// command (`taken_by`). Returns the command if no buffer is free.
    fn extents_exchange(
        &mut self,
        command: Extents,
        namespace: usize,
        taken_by: Option<&Parameters>,
        buffers: &BufferPool,
    ) -> Result<Exchange, Extents> {
        let state = &self.namespaces[namespace].state;
        let number = u16::try_from(namespace).expect("at most 1,024");
        let (names, block_bytes) = ((number, state.nsid), state.block_bytes);
        let direction = if command.operation.is_write() {
            Direction::Out
        } else {
            Direction::In
        };
        let tag = command.tag;
        let spare = self.requests.spare.pop();
        let mut request = spare.unwrap_or_else(|| Box::new(ExtentsRequest::new()));
        let mut capsule = None;
        if let Some(parameters) = taken_by {
            match request.begin(command, names, block_bytes, parameters, buffers) {
                Ok(filled) => capsule = Some(filled),
                Err(command) => {
                    self.requests.spare.push(request);
                    return Err(command);
                }
            }
        } else {
            request.keep(command, names, block_bytes);
        }
        let work = Work::Extents(request);
        Ok(Exchange::new(tag, work, direction, capsule))
    }

    /// Checks a command over extents. Returns the controller's limits, or `None` if it does not
    /// support the command.
    fn extents_allowed(
        &self,
        namespace: usize,
        command: &mut Extents,
        parameters: &Parameters,
    ) -> Result<Option<ExtentTerms>, BlockError> {
        let (geometry, capabilities) = self.properties(namespace)?;
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
        Ok(parameters.extents.filter(takes))
    }
}

/// Checks that the controller supports the command, and that the memory of a read can be written.
fn allowed(request: &mut Request, features: Features) -> Result<(), BlockError> {
    if !features.supports(request.operation) {
        return Err(BlockError::Unsupported);
    }
    if request.operation == Operation::Read && request.data.as_mut().is_some_and(has_more_owners) {
        return Err(BlockError::Malformed);
    }
    Ok(())
}

/// Makes the first command of a request. It covers the whole request unless that is too long for
/// the controller. Returns the request if no buffer is free.
#[inline]
fn exchange_of(
    mut request: Request,
    (namespace, nsid): (u16, u32),
    geometry: Geometry,
    parameters: &Parameters,
    buffers: &BufferPool,
) -> Result<Exchange, Request> {
    let direction = match request.operation {
        Operation::Read => Direction::In,
        Operation::Write { .. } | Operation::Compare | Operation::Deallocate => Direction::Out,
        Operation::WriteZeroes { .. } | Operation::Verify | Operation::Flush => Direction::None,
    };
    let private_data = request.operation == Operation::Deallocate;
    if private_data {
        let Some(buffer) = buffers.take(DatasetRange::SIZE) else {
            return Err(request);
        };
        request.data = Some(IoSlice::from_buffer(buffer, DatasetRange::SIZE));
    }
    let lent = request.data.as_mut().is_some_and(has_more_owners);
    let bytes = request.data.as_ref().map_or(usize::MAX, IoSlice::len);
    let is_whole = bytes <= parameters.max_transfer_bytes as usize
        && request.blocks <= BLOCKS_PER_COMMAND_MAX
        && !private_data;
    let part = BlockRequest {
        operation: request.operation,
        nsid,
        namespace,
        lba: request.lba,
        blocks: request.blocks,
        blocks_done: 0,
        blocks_left: 0,
        private_data,
        extent_of: None,
    };
    let exchange = Exchange::new(request.tag, Work::Block(part), direction, request.data);
    let mut exchange = Exchange { lent, ..exchange };
    if !is_whole {
        exchange.change_part(|part| part.shorten(geometry, parameters));
    }
    Ok(exchange)
}
