//! Front ends that another process takes over
//! (docs/design/decisions/0030-attach-takeover.md).

use serde_json::Value;
use std::os::fd::OwnedFd;

/// The state of a front end that has stopped serving, for the one that continues: a successor's, or the
/// same one.
#[derive(Debug, Default)]
pub struct Handed {
    /// The state in JSON.
    pub state: Value,
    /// Bytes that clients have sent, as the state divides them.
    pub bytes: Vec<u8>,
    /// Sockets, in the order of the state.
    pub files: Vec<OwnedFd>,
}

impl Handed {
    /// Returns the state with this meaning.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, String> {
        let state = self.state.take();
        serde_json::from_value(state).map_err(|error| format!("its state is invalid: {error}"))
    }
}
