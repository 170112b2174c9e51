//! The completion of a request of a path.

use crate::request::BlockError;

/// Completion of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// Slot of the request at its submitter.
    pub(super) slot: u32,
    pub(super) result: Result<(), BlockError>,
    /// For a Flush: [losses](crate::Channel::losses) of the device's cache known when it completed.
    pub(super) losses: Option<u32>,
}
