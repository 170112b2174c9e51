//! Messages to the cores of a server.

use super::handed::HandedConnection;
use crate::Ping;
use reactor::Stream;
use std::sync::mpsc::Sender;

/// The connections that a core has released, or the reason why it serves them.
pub(super) type Released = Result<Vec<HandedConnection>, String>;

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
    /// Stop at a boundary of requests, release all connections, and reply.
    Pause(Sender<Released>),
    /// Serve the connections if they are not released yet, and reply to the pause.
    Stay,
    /// Serve a connection that was released, here or by a predecessor.
    Resume(Box<HandedConnection>),
}
