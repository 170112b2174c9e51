//! The requests of virtio-blk: chains of descriptors in, commands out.
//!
//! Pure code over guest memory, for every front end that serves a virtio block device. A guest is
//! not trusted: every value in a chain is checked here, memory is accessed through [`vm_memory`]
//! only, and a chain is walked once. `[virtio 1.2 §5.2]`

pub mod config;
mod copy;
mod request;
#[cfg(test)]
mod tests;

pub use copy::{copy_in, copy_out};
pub use request::{Command, Malformed, Request, Segment, Status, parse};

/// Bytes of a sector: the unit of offsets and lengths, whatever the block size. `[virtio 1.2
/// §5.2.4]`
pub const SECTOR_BYTES: u64 = 512;

/// Bytes of the reply to [`Command::GetId`]. `[virtio 1.2 §5.2.6]`
pub const ID_BYTES: usize = 20;

/// Maximum data segments of one request, as reported to the driver (`seg_max`): with header and
/// status as many descriptors as the queues of most machines have (128). Some drivers send more, up
/// to [`DESCRIPTORS_MAX`].
pub const SEGMENTS_MAX: u32 = 126;

/// Maximum segment capacity of a vector that is kept for reuse.
pub const SEGMENTS_KEPT: usize = SEGMENTS_MAX as usize + 2;

/// Maximum bytes of one segment, as reported to the driver (`size_max`). Firmware sends segments of
/// up to 1 GiB.
pub const SEGMENT_BYTES_MAX: u32 = 256 * 1024;

/// Maximum bytes of one part of a request: larger requests are executed in parts, one after the
/// other. Requests within the reported limits have a single part.
pub const PART_BYTES_MAX: u64 = SEGMENTS_MAX as u64 * SEGMENT_BYTES_MAX as u64;

/// Maximum descriptors of a chain, including those of an indirect table: a driver's chains are no
/// longer than its queue. `[virtio 1.2 §2.7.5.3.1]`
pub const DESCRIPTORS_MAX: usize = 1024;

/// Maximum sectors of one discard or write-zeroes request: 2 GiB.
pub const RANGE_SECTORS_MAX: u32 = 4 << 20;
