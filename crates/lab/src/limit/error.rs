//! Errors of a raw exchange.

use reactor::placement::PlacementError;
use std::net::SocketAddr;
use std::thread;

/// An error of the raw socket exchange; the text includes the remedy.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    /// The case is impossible.
    #[error("case {case}: {what}")]
    Case {
        /// Name of the case.
        case: &'static str,
        /// The fault, and the remedy.
        what: String,
    },
    /// The thread could not be pinned.
    #[error("the raw exchange has no core to run on")]
    Pin(#[from] PlacementError),
    /// No connection to the server.
    #[error("cannot connect to the raw server at {addr}; is it running?")]
    Connect {
        /// The address tried.
        addr: SocketAddr,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// A system call failed.
    #[error("the raw exchange failed in {call}")]
    Call {
        /// The system call.
        call: &'static str,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// The peer sent data that is not a message of this case.
    #[error("the peer violated the exchange: {what}; do both ends run the same case?")]
    Peer {
        /// Description of the data.
        what: String,
    },
    /// The peer closed the connection in the middle of an exchange.
    #[error("the peer closed the connection with {outstanding} messages outstanding")]
    Closed {
        /// Messages without a response, or incomplete ones.
        outstanding: usize,
    },
    /// No data arrived for [`super::limits::STALL`].
    #[error("no response for {seconds} s with {outstanding} messages outstanding")]
    Stalled {
        /// Seconds that the client waited.
        seconds: u64,
        /// Messages without a response.
        outstanding: usize,
    },
    /// The server was stopped before it had served a client.
    #[error("the raw server was stopped before a client had finished")]
    Stopped,
    /// A thread of the exchange panicked: a bug in this program.
    #[error("the {end} thread panicked; this is a bug in the raw exchange")]
    Panicked {
        /// "client" or "server".
        end: &'static str,
    },
}

impl RawError {
    /// Returns an error constructor for the system call `call`.
    pub(super) fn call<E: Into<std::io::Error>>(call: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Call {
            call,
            source: source.into(),
        }
    }

    /// The result of the joined thread of an `end`.
    pub(super) fn of_end<T>(
        end: &'static str,
        joined: thread::Result<Result<T, Self>>,
    ) -> Result<T, Self> {
        joined.unwrap_or(Err(Self::Panicked { end }))
    }
}
