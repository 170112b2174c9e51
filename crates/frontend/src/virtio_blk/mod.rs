//! The requests of virtio-blk: chains of descriptors in, commands out.
//!
//! Pure code over guest memory, for every front end that serves a virtio block device. A guest is
//! not trusted: whatever a chain says is checked here, memory is touched through [`vm_memory`]
//! alone, and a chain is walked once. `[virtio 1.2 §5.2]`

pub mod config;
mod copy;
mod request;
#[cfg(test)]
mod tests;

pub use copy::{copy_in, copy_out};
pub use request::{Command, Malformed, Request, Segment, Status, parse};

/// Bytes of a sector: the unit of positions and lengths, whatever the block size. `[virtio 1.2 §5.2.4]`
pub const SECTOR_BYTES: u64 = 512;

/// Bytes of the answer to [`Command::GetId`]. `[virtio 1.2 §5.2.6]`
pub const ID_BYTES: usize = 20;

/// The most data segments of one request that a driver is told: with header and status as many
/// descriptors as the queues of most machines have (128). Some drivers send more, up to
/// [`DESCRIPTORS_MAX`].
pub const SEGMENTS_MAX: u32 = 126;

/// Segments for which a vector that is kept for reuse has room at most.
pub const SEGMENTS_KEPT: usize = SEGMENTS_MAX as usize + 2;

/// The most bytes of one segment that a driver is told. Firmware sends segments of up to 1 GiB.
pub const SEGMENT_BYTES_MAX: u32 = 256 * 1024;

/// The most data of a part of a request, in bytes: larger requests are carried out in parts, one after
/// the other. No request that keeps to what the driver is told is larger.
pub const PART_BYTES_MAX: u64 = SEGMENTS_MAX as u64 * SEGMENT_BYTES_MAX as u64;

/// The most descriptors of a chain, those of an indirect table included: a driver makes none longer
/// than its queue. `[virtio 1.2 §2.7.5.3.1]`
pub const DESCRIPTORS_MAX: usize = 1024;

/// The most sectors of one discard or one write of zeroes: 2 GiB.
pub const RANGE_SECTORS_MAX: u32 = 4 << 20;
