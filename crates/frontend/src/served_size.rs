//! The size of a device as clients are told it.

use crate::limits::DEVICE_BYTES_MAX;
use block::{Device, Geometry};

/// Returns size and block size of a device as its clients are told them: of one that has grown beyond
/// [`DEVICE_BYTES_MAX`] since it was attached, the blocks that end within it. All that clients can
/// have written is among them.
pub(crate) fn served(device: &dyn Device) -> Geometry {
    let geometry = device.geometry();
    let most = DEVICE_BYTES_MAX / u64::from(geometry.block_bytes);
    Geometry {
        blocks: geometry.blocks.min(most),
        ..geometry
    }
}
