//! State that the threads of a server share.

use super::write_order::WriteOrder;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Connections, the order of writes, and the way in which the server ended.
#[derive(Debug, Default)]
pub(super) struct SharedServer {
    /// Connections at present.
    pub(super) open: AtomicUsize,
    pub(super) order: WriteOrder,
    /// The end gave requests up, or could not flush the device.
    pub(super) forced: AtomicBool,
}

impl SharedServer {
    /// Counts a connection that has ended.
    pub(super) fn connection_ended(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
