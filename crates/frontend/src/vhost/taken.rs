//! A request between its virtqueue and the device.

use crate::virtio_blk::{Command, PART_BYTES_MAX, Request, Status};
use block::{BlockError, Geometry};
use switch::Class;

/// A request taken from a virtqueue.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) ring: u16,
    /// The [start](super::ring::Ring::start) number of its ring.
    pub(super) start: u64,
    pub(super) class: Class,
    pub(super) command: Command,
    pub(super) request: Request,
    /// Bytes of a Read or Write that are done: it is executed in parts.
    pub(super) done: u64,
    /// Of a Flush in flight: the [mark](crate::cache_life::mark) of the device's cache life at its
    /// beginning.
    pub(super) life: u32,
}

impl Taken {
    /// Bytes of the next part of a Read or Write; otherwise 0.
    pub(super) fn part_bytes(&self) -> u64 {
        match self.request.command {
            Ok(Command::Read { bytes, .. } | Command::Write { bytes, .. }) => {
                (bytes - self.done).min(PART_BYTES_MAX)
            }
            _ => 0,
        }
    }

    /// Returns true if it changes the device.
    pub(super) const fn changes(&self) -> bool {
        matches!(
            self.request.command,
            Ok(Command::Write { .. } | Command::Discard { .. } | Command::WriteZeroes { .. })
        )
    }
}

/// Returns false if the device would refuse a request only after executing its first parts.
pub(super) fn fits(geometry: Geometry, offset: u64, bytes: u64) -> bool {
    if bytes <= PART_BYTES_MAX {
        return true;
    }
    let is_whole = bytes.is_multiple_of(geometry.block_bytes.into());
    let end = offset.checked_add(bytes);
    is_whole && end.is_some_and(|end| end <= geometry.bytes())
}

/// Returns the virtio status for a result.
pub(super) const fn status_of(result: Result<(), BlockError>) -> Status {
    match result {
        Ok(()) => Status::Ok,
        Err(BlockError::Unsupported) => Status::Unsupported,
        Err(_) => Status::IoError,
    }
}
