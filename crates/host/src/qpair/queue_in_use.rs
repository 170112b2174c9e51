//! A queue that the controller has still.

use super::connection::Qpair;
use crate::error::ConnectionError;
use wire::nvme::Status;

impl Qpair {
    /// Returns the error of a Connect that was refused because the controller has the queue still.
    pub(crate) fn queue_in_use(&self) -> Option<&ConnectionError> {
        self.error.as_ref().filter(|error| {
            matches!(error, ConnectionError::Refused { status, .. }
                if status.is(Status::COMMAND_SEQUENCE_ERROR))
        })
    }
}
