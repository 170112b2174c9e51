//! The configuration space and the features of a block device. `[virtio 1.2 §5.2.3, §5.2.4]`

use super::{RANGE_SECTORS_MAX, SECTOR_BYTES, SEGMENT_BYTES_MAX, SEGMENTS_MAX};
use block::Geometry;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_TOPOLOGY,
    VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// Bytes of the configuration space, including fields of later specification versions, which read
/// as zeroes.
pub const CONFIG_BYTES: usize = 96;

/// The device properties that a driver sees.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// Size and block size.
    pub geometry: Geometry,
    /// Optimal I/O size in bytes; 0 for no preference.
    pub preferred_bytes: u32,
    /// Number of request queues; at least 1.
    pub queues: u16,
}

/// Returns the feature bits that a device offers. Without `VIRTIO_BLK_F_CONFIG_WCE`, so that the
/// write cache cannot be turned off: a back end that takes over would not know the setting.
#[must_use]
pub fn features(read_only: bool) -> u64 {
    let always = [
        VIRTIO_BLK_F_SIZE_MAX,
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_BLK_F_FLUSH,
        VIRTIO_BLK_F_MQ,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_F_VERSION_1,
    ];
    let writes = [VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES];
    let bits = |bits: &[u32]| bits.iter().fold(0, |all, bit| all | 1 << bit);
    let writable = if read_only {
        1 << VIRTIO_BLK_F_RO
    } else {
        bits(&writes)
    };
    bits(&always) | writable
}

/// Returns true if the driver knows that the device has a write cache, and so flushes it. Otherwise
/// every write must be on stable storage before it completes. `[virtio 1.2 §5.2.6.2]`
#[must_use]
pub const fn driver_flushes(features: u64) -> bool {
    features & 1 << VIRTIO_BLK_F_FLUSH != 0
}

/// Returns the configuration space. `[virtio 1.2 §5.2.4]`
#[must_use]
pub fn space(properties: &Properties) -> [u8; CONFIG_BYTES] {
    let Properties {
        geometry,
        preferred_bytes,
        queues,
    } = *properties;
    let block = geometry.block_bytes;
    let block_sectors = block / u32::try_from(SECTOR_BYTES).expect("512");
    let preferred_blocks = preferred_bytes / block;
    let mut space = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(geometry.bytes() / SECTOR_BYTES).to_le_bytes());
    put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    put(20, &block.to_le_bytes());
    // Topology: physical block exponent 0 and alignment 0, then the minimum and the optimal I/O
    // size, in blocks.
    put(24, &[0, 0]);
    put(26, &1u16.to_le_bytes());
    put(28, &preferred_blocks.to_le_bytes());
    put(34, &queues.to_le_bytes());
    // Discard, then write zeroes: the maximum sectors, the maximum ranges, the discard alignment,
    // and that Write Zeroes may deallocate.
    put(36, &RANGE_SECTORS_MAX.to_le_bytes());
    put(40, &1u32.to_le_bytes());
    put(44, &block_sectors.to_le_bytes());
    put(48, &RANGE_SECTORS_MAX.to_le_bytes());
    put(52, &1u32.to_le_bytes());
    put(56, &[1]);
    space
}
