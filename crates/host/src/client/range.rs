//! Ranges in bytes: the checks that blocking calls and queues share.

use crate::error::RequestError;
use crate::limits::TRANSFER_BYTES_MAX;
use block::{BlockError, Device, Geometry, Operation};

/// Checks that a range consists of whole blocks and lies within the namespace.
pub(super) fn check(geometry: Geometry, offset: u64, length: u64) -> Result<(), RequestError> {
    if geometry.is_gone() {
        return Err(BlockError::Gone.into());
    }
    let block_bytes = geometry.block_bytes;
    for (what, value) in [("offset", offset), ("length", length)] {
        if !value.is_multiple_of(u64::from(block_bytes)) {
            return Err(RequestError::Alignment {
                what,
                value,
                block_bytes,
            });
        }
    }
    let size = geometry.bytes();
    if offset.checked_add(length).is_none_or(|end| end > size) {
        return Err(RequestError::OutOfRange {
            offset,
            length,
            size,
        });
    }
    Ok(())
}

/// Checks that a range fits into one request of this operation.
pub(super) fn check_length(
    device: &dyn Device,
    operation: Operation,
    length: u64,
) -> Result<(), RequestError> {
    let most = if operation.has_data() {
        max_request_bytes(device)
    } else {
        without_data_max(device.geometry())
    };
    if length > most {
        return Err(RequestError::TooLong { length, most });
    }
    Ok(())
}

/// Returns the largest size in bytes of a request with data.
pub(super) fn max_request_bytes(device: &dyn Device) -> u64 {
    u64::from(
        device
            .capabilities()
            .max_transfer_bytes
            .min(TRANSFER_BYTES_MAX),
    )
}

/// Returns the largest size in bytes of a request without data: its number of blocks has 32 bits.
pub(super) fn without_data_max(geometry: Geometry) -> u64 {
    u64::from(u32::MAX / 2 + 1) * u64::from(geometry.block_bytes)
}
