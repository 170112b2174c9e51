//! Kernel error numbers for device errors: one table for all front ends.

use block::BlockError;
use rustix::io::Errno;

/// Returns the error number that an application gets for a request that failed with `error`: the
/// one that a block device of the kernel would return.
#[must_use]
pub const fn errno_of(error: BlockError) -> Errno {
    match error {
        BlockError::OutOfRange | BlockError::NoSpace => Errno::NOSPC,
        BlockError::Malformed => Errno::INVAL,
        BlockError::Unsupported => Errno::OPNOTSUPP,
        BlockError::ReadOnly => Errno::ROFS,
        BlockError::Denied => Errno::ACCESS,
        BlockError::Gone => Errno::NODEV,
        BlockError::TimedOut => Errno::TIMEDOUT,
        BlockError::ReadFailure
        | BlockError::WriteFailure
        | BlockError::CacheLost
        | BlockError::CompareFailure
        | BlockError::Corrupt
        | BlockError::Aborted
        | BlockError::Internal => Errno::IO,
    }
}
