//! Block requests on their way into the command table.

use crate::association::parameters::Parameters;
use crate::command::BlockRequest;
use crate::command::exchange::{Direction, Exchange, Work};
use crate::command::extents::has_more_owners;
use crate::limits::CONTROLLER_BUFFERS;
use block::{BlockError, Geometry, Operation, Request};
use reactor::{BufferPool, IoSlice};
use wire::limits::BLOCKS_PER_COMMAND_MAX;
use wire::nvme::io::DatasetRange;

/// Checks that the controller supports the command and the length of the transfer.
pub(super) fn allowed(
    request: &mut Request,
    geometry: Geometry,
    parameters: &Parameters,
) -> Result<(), BlockError> {
    let features = parameters.features;
    let supported = match request.operation {
        Operation::Compare => features.compare,
        Operation::Deallocate => features.dataset_management,
        Operation::WriteZeroes { .. } => features.write_zeroes,
        Operation::Verify => features.verify,
        Operation::Read | Operation::Write { .. } | Operation::Flush => true,
    };
    if !supported {
        return Err(BlockError::Unsupported);
    }
    let bytes = u64::from(request.blocks) * u64::from(geometry.block_bytes);
    if request.operation.has_data()
        && (bytes > u64::from(parameters.max_transfer_bytes)
            || request.blocks > BLOCKS_PER_COMMAND_MAX)
    {
        return Err(BlockError::Malformed);
    }
    if request.operation == Operation::Read && request.data.as_mut().is_some_and(has_more_owners) {
        return Err(BlockError::Malformed);
    }
    Ok(())
}

/// The first command of a request; hands the request back when a buffer is missing.
#[inline]
pub(super) fn exchange(
    mut request: Request,
    (namespace, nsid): (u16, u32),
    geometry: Geometry,
    parameters: &Parameters,
    buffers: &BufferPool,
) -> Result<Exchange, Request> {
    let mut part = BlockRequest {
        operation: request.operation,
        nsid,
        namespace,
        lba: request.lba,
        blocks: request.blocks,
        blocks_done: 0,
        blocks_left: 0,
        private_data: false,
    };
    let mut data = None;
    let direction = match request.operation {
        Operation::Read => Direction::In,
        Operation::Write { .. } | Operation::Compare => Direction::Out,
        Operation::Deallocate => {
            let free: usize = buffers.usage().map(|(_, free, _)| free).sum();
            let spare = free > CONTROLLER_BUFFERS;
            let buffer = spare.then(|| buffers.take(DatasetRange::SIZE));
            let Some(buffer) = buffer.flatten() else {
                return Err(request);
            };
            part.begin(geometry, parameters);
            part.private_data = true;
            let mut list = IoSlice::from_buffer(buffer, DatasetRange::SIZE);
            list.copy_in(0, &part.range().to_bytes());
            data = Some(list);
            Direction::Out
        }
        Operation::WriteZeroes { .. } | Operation::Verify => {
            part.begin(geometry, parameters);
            Direction::None
        }
        Operation::Flush => Direction::None,
    };
    let lent = request.data.as_mut().is_some_and(has_more_owners);
    let data = data.or(request.data);
    let exchange = Exchange::new(request.tag, Work::Block(part), direction, data);
    Ok(Exchange { lent, ..exchange })
}
