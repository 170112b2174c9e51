//! Messages to the cores of a server.

use crate::Ping;
use reactor::Stream;

/// A message to a core of the server.
#[derive(Debug)]
pub(super) enum Message {
    /// A client connected.
    Connection(Stream),
    /// The write with this ticket, which waited for overlapping ones, may begin.
    Begin(u64),
    /// Reply by dropping it.
    Ping(Ping),
    /// The server detaches.
    Drain,
}
