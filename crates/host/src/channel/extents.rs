//! Commands over several extents: checked, and made into a command of the vendor's where the target
//! announced that it takes them, or into one of each extent.

use super::{ChannelState, RemoteChannel, Requests};
use crate::association::parameters::Parameters;
use crate::command::exchange::{Direction, Exchange, Work};
use crate::command::extents::{ExtentsRequest, has_more_owners};
use base::Time;
use base::units::Lba;
use block::{BlockError, Capabilities, Extents, Operation, SubmitExtents, check_extents};
use reactor::{BufferPool, Context, IoSlice};
use std::num::NonZeroU16;
use wire::nvme::ExtentTerms;

impl RemoteChannel {
    /// Submits a command over extents that is given up at `limit`: each of its extents ends with
    /// [`BlockError::TimedOut`], but for those that left alone and were answered before. Which of the
    /// others were written is not known then.
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
        let under_way = self.requests.outstanding + self.requests.apart.further;
        let in_flight = terms.map_or(u16::MAX, |terms| terms.in_flight);
        if under_way >= self.requests.capacity || self.requests.extents >= usize::from(in_flight) {
            return SubmitExtents::Busy(command);
        }
        let taken_by = terms.map(|_| &parameters);
        let exchange = self.exchange_of(command, namespace, taken_by, cx.driver.buffers());
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

    /// Makes an exchange of a command, with its capsule where a controller with these parameters takes
    /// it; hands the command back while there is no buffer for that.
    fn exchange_of(
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

    /// Checks a command. Returns the controller's terms, or `None` where it does not take the command.
    fn extents_allowed(
        &self,
        namespace: usize,
        command: &mut Extents,
        parameters: &Parameters,
    ) -> Result<Option<ExtentTerms>, BlockError> {
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
        Ok(parameters.extents.filter(takes))
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

    /// Has the extents of commands that are kept leave alone where the controller does not take so
    /// many of them, or not one like that.
    pub(super) fn take_apart(&mut self) {
        if self.requests.extents == 0 {
            return;
        }
        let Self {
            recovery,
            requests,
            parameters,
            ..
        } = self;
        let Requests { waiting, apart, .. } = requests;
        let in_flight = parameters.extents.map_or(0, |terms| terms.in_flight);
        let mut places = usize::from(in_flight);
        let mut take_apart = |exchange: Exchange| {
            if exchange.extents().is_none() {
                return vec![exchange];
            }
            if places == 0 || !is_taken(&exchange, parameters) {
                return apart.take(exchange);
            }
            places -= 1;
            vec![exchange]
        };
        recovery.replace_lost(&mut take_apart);
        for _ in 0..waiting.len() {
            let exchange = waiting.pop_front().expect("there are as many");
            waiting.extend(take_apart(exchange));
        }
    }

    /// Ends an extent that left alone, and its command with the last one.
    pub(super) fn end_extent(
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

    /// Keeps the blocks of an extent that was sent again locked until its command ends. Returns false
    /// if it does not: it is the last one, or another extent waits, perhaps for a lock of a command
    /// that waits for this one.
    pub(super) fn stays_locked(&mut self, exchange: &Exchange) -> bool {
        let Some((number, _)) = exchange.extent() else {
            return false;
        };
        let is_one = |other: &Exchange| other.extent().is_some_and(|(other, _)| other == number);
        let waits = self.requests.waiting.iter().any(is_one);
        !waits && self.requests.apart.keep_locked(number, exchange.written())
    }
}

/// Returns true if the controller takes this command over extents.
fn is_taken(exchange: &Exchange, parameters: &Parameters) -> bool {
    let capsule = exchange.data.as_ref().map_or(0, IoSlice::len);
    let request = exchange.extents();
    request.is_some_and(|request| request.is_taken_by(parameters, capsule))
}

impl Requests {
    /// Returns the command of a request that is over, and keeps its memory.
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
