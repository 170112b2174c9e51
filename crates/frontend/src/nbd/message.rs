//! Messages to the cores of a server.

use crate::Ping;
use reactor::Stream;

/// A message to a core of the server.
#[derive(Debug)]
pub(super) enum Message {
    /// A client connected.
    Connection(Stream),
    /// A write with this ticket may begin that waited for overlapping ones.
    Begin(u64),
    /// Answer by dropping it.
    Ping(Ping),
    /// The server detaches.
    Drain,
}
