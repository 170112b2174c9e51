//! The size of a device as reported to clients.

use crate::limits::DEVICE_BYTES_MAX;
use block::{Device, Geometry};

/// Returns the size and block size that clients of a device see. If it has grown beyond
/// [`DEVICE_BYTES_MAX`] since it was attached, only the blocks below that limit count. They include
/// everything that clients can have written.
pub(crate) fn served(device: &dyn Device) -> Geometry {
    let geometry = device.geometry();
    let most = DEVICE_BYTES_MAX / u64::from(geometry.block_bytes);
    Geometry {
        blocks: geometry.blocks.min(most),
        ..geometry
    }
}
