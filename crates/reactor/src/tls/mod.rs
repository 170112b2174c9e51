//! TLS 1.3 with pre-shared keys, between a socket and its owner. `[NVMe-TCP 1.1 §3.6.1]`
//!
//! A driver's socket may have a [`Session`]: then the driver encrypts what its owner sends, and
//! decrypts what arrives. Owners see the same operations as without TLS. A [`Server`] in the options
//! of a listener, or a [`Client`] in those of a connect, requests it. The [handshake](Handshake)
//! runs on a thread of its own (`pool`), never on a core, and the operation completes after it.
//!
//! The library s2n-tls makes the handshake; the records are those of [`secure::record`]
//! (docs/design/decisions/0027-tls.md).

mod attempts;
mod error;
mod handshake;
mod library;
mod peer;
pub(crate) mod pool;
mod server;
pub(crate) mod session;
pub(crate) mod side;

pub use attempts::Attempts;
pub use error::{Refused, TlsError};
pub use handshake::{Handshake, Shaken};
pub use peer::Peer;
pub use server::{Keys, Server};
pub use session::{Proven, Sealed, Session, SessionEnd, TlsMemory};
pub use side::{Client, Side};

/// Prepares what handshakes need in this process: the library, which opens files, and the thread.
/// A process that confines itself calls it before; otherwise the first handshake does it.
///
/// # Errors The library's or the kernel's reason.
pub fn prepare() -> Result<(), TlsError> {
    pool::prepare()
}
