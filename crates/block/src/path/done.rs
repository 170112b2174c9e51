//! The end of a request of a path.

use crate::request::BlockError;

/// End of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// The submitter's name for the request.
    pub(super) slot: u32,
    pub(super) result: Result<(), BlockError>,
    /// [Losses](crate::Channel::losses) of the device's cache that were known when it was done, for
    /// a Flush.
    pub(super) losses: Option<u32>,
}
