//! The reason for which the dataplane, or the model, refuses an [`Action`](crate::Action).

use serde::{Deserialize, Serialize};

/// The reason for which an action was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}; {what_to_do}")]
pub struct ApplyError {
    /// The side that has to change something.
    pub kind: ApplyErrorKind,
    /// The fault.
    pub message: String,
    /// The remedy.
    pub what_to_do: String,
}

/// The side that has to change something after an action failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyErrorKind {
    /// The action names something that does not exist.
    NotFound,
    /// The action contradicts what is there.
    Conflict,
    /// The action was decided on a state that has changed since.
    Outdated,
    /// The action itself makes no sense.
    Invalid,
    /// The action is good, and this machine cannot carry it out.
    Failed,
}

impl ApplyError {
    /// Creates an error of `kind` with the fault and its remedy.
    pub fn new(
        kind: ApplyErrorKind,
        message: impl Into<String>,
        what_to_do: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            message: message.into(),
            what_to_do: what_to_do.into(),
        }
    }
}
