//! The kernel's errors as errors of a device.

use crate::request::{BlockError, Operation};
use std::io;

/// The direction of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// A read.
    Read,
    /// A change.
    Write,
}

impl Direction {
    /// Returns the direction of an operation on a file.
    pub(super) const fn of(operation: Operation) -> Self {
        if operation.is_write() {
            Self::Write
        } else {
            Self::Read
        }
    }

    /// Returns the error of an operation that failed.
    pub(super) const fn failure(self) -> BlockError {
        match self {
            Self::Read => BlockError::ReadFailure,
            Self::Write => BlockError::WriteFailure,
        }
    }
}

/// Returns the device error for an error of the kernel.
pub(super) fn block_error(error: &io::Error, direction: Direction) -> BlockError {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => BlockError::NoSpace,
        Some(libc::EROFS | libc::EPERM | libc::EACCES) if direction == Direction::Write => {
            BlockError::ReadOnly
        }
        Some(libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::ESTALE) => BlockError::Gone,
        Some(libc::ETIMEDOUT) => BlockError::TimedOut,
        Some(libc::ECANCELED) => BlockError::Aborted,
        Some(libc::ENOMEM | libc::EBADF | libc::EFAULT | libc::EINVAL | libc::EAGAIN) => {
            BlockError::Internal
        }
        Some(libc::EOPNOTSUPP) => BlockError::Unsupported,
        _ => direction.failure(),
    }
}

/// Why the kernel did not zero a range. Writing zeroes is always possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsupported {
    /// The file does not support the operation.
    Ever,
    /// Not possible for this range, or now: a block device requires alignment to its own blocks,
    /// and does not drop dirty pages of its cache.
    ThisTime,
}

/// Returns the reason if an error means that a range cannot be zeroed; `None` for a failure.
pub(super) fn unsupported(error: &io::Error) -> Option<Unsupported> {
    match error.raw_os_error()? {
        libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => Some(Unsupported::Ever),
        libc::EINVAL | libc::EBUSY => Some(Unsupported::ThisTime),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_meaning() {
        let of = |number, direction| block_error(&io::Error::from_raw_os_error(number), direction);
        assert_eq!(of(libc::ENOSPC, Direction::Write), BlockError::NoSpace);
        assert_eq!(of(libc::EIO, Direction::Read), BlockError::ReadFailure);
        assert_eq!(of(libc::EIO, Direction::Write), BlockError::WriteFailure);
        assert_eq!(of(libc::EROFS, Direction::Write), BlockError::ReadOnly);
        assert_eq!(of(libc::EPERM, Direction::Read), BlockError::ReadFailure);
        assert_eq!(of(libc::ENODEV, Direction::Read), BlockError::Gone);
    }
}
