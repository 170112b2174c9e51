//! Payload that is arriving.

use wire::tcp::c2h_data::C2hProgress;

/// A C2HData PDU of which payload is still arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    /// Slot of the command; `None` for payload that is dropped.
    pub(super) index: Option<u16>,
    pub(super) progress: C2hProgress,
}
