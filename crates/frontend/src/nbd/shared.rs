//! State that the threads of a server share.

use super::write_order::WriteOrder;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Connections, the write order, and how the server ended.
#[derive(Debug, Default)]
pub(super) struct SharedServer {
    /// Current number of connections.
    pub(super) open: AtomicUsize,
    pub(super) order: WriteOrder,
    /// The server ended with cancelled requests or a failed flush.
    pub(super) forced: AtomicBool,
}

impl SharedServer {
    /// Counts a connection that begins.
    pub(super) fn connection_begins(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that has ended.
    pub(super) fn connection_ended(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
