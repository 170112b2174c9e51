//! Block requests on their way into the command table.

use crate::association::parameters::{Features, Parameters};
use crate::command::BlockRequest;
use crate::command::exchange::{Direction, Exchange, Work};
use crate::command::extents::has_more_owners;
use block::{BlockError, Geometry, Operation, Request};
use reactor::{BufferPool, IoSlice};
use wire::limits::BLOCKS_PER_COMMAND_MAX;
use wire::nvme::io::DatasetRange;

/// Returns true if a controller with these features supports the command of an operation.
pub(crate) const fn supports(features: Features, operation: Operation) -> bool {
    match operation {
        Operation::Compare => features.compare,
        Operation::Deallocate => features.dataset_management,
        Operation::WriteZeroes { .. } => features.write_zeroes,
        Operation::Verify => features.verify,
        Operation::Read | Operation::Write { .. } | Operation::Flush => true,
    }
}

/// Checks that the controller supports the command, and that what is read has a place.
pub(super) fn allowed(request: &mut Request, features: Features) -> Result<(), BlockError> {
    if !supports(features, request.operation) {
        return Err(BlockError::Unsupported);
    }
    if request.operation == Operation::Read && request.data.as_mut().is_some_and(has_more_owners) {
        return Err(BlockError::Malformed);
    }
    Ok(())
}

/// The first command of a request, which is all of it unless the controller takes less in one; hands
/// the request back when a buffer is missing.
#[inline]
pub(super) fn exchange(
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
