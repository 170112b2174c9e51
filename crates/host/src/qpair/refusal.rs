//! A Connect that the controller refused.

use super::connection::Qpair;
use crate::error::ConnectionError;
use wire::nvme::Status;

impl Qpair {
    /// Returns the status with which the controller refused the last Connect.
    pub(crate) fn refusal(&self) -> Option<Status> {
        match self.error {
            Some(ConnectionError::Refused { status, .. }) => Some(status),
            _ => None,
        }
    }

    /// Returns the error that ended the connection.
    pub(crate) fn error(&self) -> Option<&ConnectionError> {
        self.error.as_ref()
    }
}
