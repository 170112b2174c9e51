//! Errors as positive errno values, for programs in other languages.

use crate::client::SubmitError;
use crate::error::{ConnectionError, HostError, RequestError};
use block::{BlockError, DeviceError};
use reactor::uring::SetupError;
use rustix::io::Errno;
use std::io::ErrorKind;

/// Returns the errno value of a device's error.
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
    /// Returns the errno value: `EINVAL` for ranges that are not whole blocks, `ERANGE` beyond the
    /// end, otherwise [`block_errno`].
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
    /// Returns the errno value: `EAGAIN` for a full queue.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Full => Errno::AGAIN.raw_os_error(),
            Self::Request(error) => error.errno(),
        }
    }
}

/// Returns the errno value of a channel that could not be opened: `EBUSY` if no queue is left,
/// `ESHUTDOWN` if the namespace is gone.
fn device_errno(error: &DeviceError) -> i32 {
    let errno = match error {
        DeviceError::Io { source, .. } => {
            return source.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        }
        DeviceError::Invalid(_) | DeviceError::NoQueue(_) => Errno::BUSY,
        DeviceError::Memory(_) => Errno::NOMEM,
    };
    errno.raw_os_error()
}

/// Returns the errno value of a driver that could not be created: `ENOSYS` if io_uring is not
/// available.
fn driver_errno(error: &SetupError) -> i32 {
    let errno = match error {
        SetupError::Forbidden(_) | SetupError::TooOld(_) => Errno::NOSYS,
        SetupError::Memlock(_) => Errno::NOMEM,
        SetupError::Descriptors(error) => {
            return error.raw_os_error().unwrap_or(Errno::MFILE.raw_os_error());
        }
        SetupError::Other { source, .. } => {
            return source.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        }
    };
    errno.raw_os_error()
}

impl HostError {
    /// Returns the errno value of the error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Connection(error) => return error.errno(),
            Self::Io { source, .. } => {
                return source.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            }
            Self::Option(_) | Self::Address { .. } => Errno::INVAL,
            Self::Driver(error) => return driver_errno(error),
            Self::NoNamespace { .. } => Errno::NXIO,
            Self::UnusableNamespace { .. } => Errno::OPNOTSUPP,
            Self::Device(error) => return device_errno(error),
            Self::Closed => Errno::SHUTDOWN,
            Self::Limit(_) => Errno::MFILE,
        };
        errno.raw_os_error()
    }
}

impl ConnectionError {
    /// Returns the errno value of the error.
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
            Self::Refused { .. } | Self::Tls { .. } | Self::Authentication { .. } => Errno::ACCESS,
            Self::Shut { .. } | Self::UnknownController { .. } => Errno::CONNRESET,
            Self::TimedOut { .. } | Self::GivenUp { .. } => Errno::TIMEDOUT,
            Self::OtherVolume { .. } => Errno::STALE,
            Self::Inaccessible { .. } => Errno::HOSTUNREACH,
            Self::Unusable(_) => Errno::OPNOTSUPP,
        };
        errno.raw_os_error()
    }
}
