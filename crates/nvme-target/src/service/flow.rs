//! Outcome of a command's arrival.

use crate::service::wait_lists::WaitsFor;

/// Outcome of a command's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The command was taken.
    Continue,
    /// The command was not taken: it waits for a buffer in this list, and with it all input behind it.
    Stall(WaitsFor),
}
