//! The reason for which the dataplane, or the model, refuses an [`Action`](crate::Action), and errors in
//! words.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

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

macro_rules! of_kinds {
    ($($name:ident: $kind:ident),+) => {
        impl ApplyError {$(
            #[doc = concat!("Creates an error of the kind [`ApplyErrorKind::", stringify!($kind), "`].")]
            pub fn $name(message: impl Into<String>, what_to_do: impl Into<String>) -> Self {
                Self::new(ApplyErrorKind::$kind, message, what_to_do)
            }
        )+}
    };
}

of_kinds!(not_found: NotFound, conflict: Conflict, outdated: Outdated, invalid: Invalid, failed: Failed);

impl ApplyError {
    /// The error for an unknown device.
    #[must_use]
    pub fn no_device(name: &str) -> Self {
        let message = format!("there is no device {name:?}");
        Self::not_found(message, "list the devices with GET /v1/devices")
    }

    /// The error for an unknown subsystem.
    #[must_use]
    pub fn no_subsystem(nqn: &str) -> Self {
        let message = format!("there is no subsystem {nqn:?}");
        Self::not_found(message, "list the subsystems with GET /v1/subsystems")
    }

    /// The error for an unknown listener.
    #[must_use]
    pub fn no_listener(address: SocketAddr) -> Self {
        let message = format!("there is no listener on {address}");
        Self::not_found(message, "list the listeners with GET /v1/listeners")
    }

    /// The error for an unknown namespace.
    #[must_use]
    pub fn no_namespace(nqn: &str, nsid: u32) -> Self {
        Self::not_found(
            format!("subsystem {nqn:?} has no namespace {nsid}"),
            format!("list its namespaces with GET /v1/subsystems/{nqn}/namespaces"),
        )
    }
}

/// Returns the error's message and those of its causes, without the ones that are a part of what was
/// told before: an error may name its cause in its own message, because some readers see no other.
#[must_use]
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for message in error.chain().map(ToString::to_string) {
        if told.contains(&message) {
            continue;
        }
        if !told.is_empty() {
            told.push_str(": ");
        }
        told.push_str(&message);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// An error that named its cause in its own message was printed with that cause once more.
    #[test]
    fn a_cause_is_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot mount: {0}")]
        struct Named(#[source] io::Error);
        let named = Named(io::Error::other("no entry; check the path"));
        let error = anyhow::Error::new(named).context("disk");
        let told = "disk: cannot mount: no entry; check the path";
        assert_eq!(with_causes(&error), told);
    }
}
