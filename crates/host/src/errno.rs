//! Errors as the numbers that programs in other languages know: positive errno values.

use crate::client::SubmitError;
use crate::error::{ConnectionError, HostError, RequestError};
use block::BlockError;
use rustix::io::Errno;
use std::io::ErrorKind;

/// Returns the errno value that a device's error is reported as.
#[must_use]
pub fn block_errno(error: BlockError) -> i32 {
    let errno = match error {
        BlockError::OutOfRange => Errno::RANGE,
        BlockError::Malformed => Errno::INVAL,
        BlockError::Unsupported => Errno::OPNOTSUPP,
        BlockError::ReadOnly => Errno::ROFS,
        BlockError::Denied => Errno::ACCESS,
        BlockError::NoSpace => Errno::NOSPC,
        BlockError::CacheLost => Errno::REMOTEIO,
        BlockError::CompareFailure => Errno::ILSEQ,
        BlockError::Corrupt => Errno::BADMSG,
        BlockError::Aborted => Errno::CANCELED,
        BlockError::Gone => Errno::NODEV,
        BlockError::TimedOut => Errno::TIMEDOUT,
        BlockError::ReadFailure | BlockError::WriteFailure | BlockError::Internal => Errno::IO,
    };
    errno.raw_os_error()
}

impl RequestError {
    /// Returns the errno value that stands for the error: `EINVAL` for ranges that are not whole
    /// blocks, `ERANGE` beyond the end, otherwise [`block_errno`].
    #[must_use]
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Device(error) => return block_errno(*error),
            Self::Alignment { .. } | Self::TooLong { .. } => Errno::INVAL,
            Self::OutOfRange { .. } => Errno::RANGE,
            Self::Closed => Errno::SHUTDOWN,
        };
        errno.raw_os_error()
    }
}

impl SubmitError {
    /// Returns the errno value that stands for the error: `EAGAIN` for a queue that is full.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Full => Errno::AGAIN.raw_os_error(),
            Self::Request(error) => error.errno(),
        }
    }
}

impl HostError {
    /// Returns the errno value that stands for the error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Connection(error) => return error.errno(),
            Self::Io { source, .. } => return source.raw_os_error().unwrap_or(5),
            Self::Option(_) | Self::Address { .. } => Errno::INVAL,
            Self::Driver(_) => Errno::NOSYS,
            Self::NoNamespace { .. } => Errno::NXIO,
            Self::UnusableNamespace { .. } => Errno::OPNOTSUPP,
            Self::Device(_) => Errno::BUSY,
            Self::Closed => Errno::SHUTDOWN,
            Self::Limit(_) => Errno::MFILE,
        };
        errno.raw_os_error()
    }
}

impl ConnectionError {
    /// Returns the errno value that stands for the error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Io { kind, .. } => match kind {
                ErrorKind::ConnectionRefused => Errno::CONNREFUSED,
                ErrorKind::TimedOut => Errno::TIMEDOUT,
                ErrorKind::HostUnreachable => Errno::HOSTUNREACH,
                ErrorKind::NetworkUnreachable => Errno::NETUNREACH,
                ErrorKind::AddrNotAvailable => Errno::ADDRNOTAVAIL,
                _ => Errno::CONNRESET,
            },
            Self::Protocol { .. } | Self::Terminated { .. } => Errno::PROTO,
            Self::Refused { .. } => Errno::ACCESS,
            Self::TimedOut { .. } => Errno::TIMEDOUT,
            Self::OtherVolume { .. } => Errno::STALE,
            Self::Unusable(_) => Errno::OPNOTSUPP,
        };
        errno.raw_os_error()
    }
}
