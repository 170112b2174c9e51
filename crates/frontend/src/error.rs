//! Errors of front ends.

use block::DeviceError;
use std::io;

/// The reason for which a front end cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// The options ask for what cannot be.
    #[error("{0}")]
    Option(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; {}", listen_remedy(source))]
    Listen {
        /// The address.
        address: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The machine refuses something.
    #[error("{what}: {source}")]
    Machine {
        /// The attempt.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Returns the remedy for an address that cannot be listened on.
fn listen_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "choose another one, or end what uses it",
        io::ErrorKind::AlreadyExists => "choose another path, or remove what is there",
        io::ErrorKind::InvalidInput => "choose a shorter path",
        io::ErrorKind::NotFound => "create its directory",
        io::ErrorKind::PermissionDenied => "choose one that this user may listen on",
        _ => "choose another one",
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
