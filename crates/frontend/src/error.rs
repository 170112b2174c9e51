//! Errors of front ends.

use block::DeviceError;
use rustix::io::Errno;
use std::io;

/// Why a front end cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// The options are invalid.
    #[error("{0}")]
    Option(String),
    /// Listening on the address failed.
    #[error("cannot listen on {address}: {source}; {}", listen_remedy(source))]
    Listen {
        /// The address.
        address: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Machine {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Returns the remedy for a failure to listen on an address.
fn listen_remedy(error: &io::Error) -> &'static str {
    if let Some(Errno::MFILE | Errno::NFILE) = Errno::from_io_error(error) {
        return "raise the limit of open files with `ulimit -n` or LimitNOFILE= in the service's unit";
    }
    match error.kind() {
        io::ErrorKind::AddrInUse => "use another address, or stop the program that uses it",
        io::ErrorKind::AlreadyExists => "use another path, or remove the existing file",
        io::ErrorKind::InvalidInput => "use a shorter path",
        io::ErrorKind::NotFound => "create the directory",
        io::ErrorKind::PermissionDenied => "use an address that this user may listen on",
        _ => "use another address",
    }
}

impl FrontendError {
    pub(crate) const fn thread(source: io::Error) -> Self {
        Self::Machine {
            what: "cannot start a thread",
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lack of resources must not suggest another address.
    #[test]
    fn a_process_without_a_file_descriptor_is_told_to_raise_the_limit() {
        let error = FrontendError::Listen {
            address: "/run/disk.sock".into(),
            source: Errno::MFILE.into(),
        };
        assert!(error.to_string().contains("LimitNOFILE="), "{error}");
    }
}
