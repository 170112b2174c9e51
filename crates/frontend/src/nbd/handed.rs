//! Connections on their way to a successor.

use super::export::Export;
use super::negotiation::Progress;
use super::protocol::Session;
use crate::Handed;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// What a client has negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// The options so far.
    Negotiating(Progress),
    /// It sends requests.
    Serving(Session),
}

/// A connection without requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    pub(super) stage: Stage,
    /// Its next Flush fails: writes may be lost.
    pub(super) has_lost: bool,
    /// Bytes that it has sent and that are no whole request, or wait to be one.
    bytes: usize,
}

/// A connection with its socket, and with what the client has sent.
#[derive(Debug)]
pub(super) struct HandedConnection {
    pub(super) description: Description,
    pub(super) bytes: Vec<u8>,
    pub(super) socket: OwnedFd,
}

impl HandedConnection {
    pub(super) fn new(stage: Stage, has_lost: bool, bytes: Vec<u8>, socket: OwnedFd) -> Self {
        let description = Description {
            stage,
            has_lost,
            bytes: bytes.len(),
        };
        Self {
            description,
            bytes,
            socket,
        }
    }

    /// Returns the state of all connections.
    pub(super) fn join(all: Vec<Self>) -> Handed {
        let mut handed = Handed::default();
        let mut descriptions = Vec::with_capacity(all.len());
        for mut connection in all {
            descriptions.push(connection.description);
            handed.bytes.append(&mut connection.bytes);
            handed.files.push(connection.socket);
        }
        handed.state = serde_json::json!(descriptions);
        handed
    }

    /// Returns the connections of a state.
    ///
    /// # Errors
    /// A state that is not one, or of other exports.
    pub(super) fn divide(mut handed: Handed, exports: &[Export]) -> Result<Vec<Self>, String> {
        let descriptions: Vec<Description> = handed.read()?;
        let is_known = |stage: &Stage| match stage {
            Stage::Negotiating(_) => true,
            Stage::Serving(session) => session.export < exports.len(),
        };
        let mut rest = &*handed.bytes;
        let mut files = handed.files.into_iter();
        let mut take = |description: Description| {
            let (bytes, after) = rest.split_at_checked(description.bytes)?;
            rest = after;
            Some(Self {
                description,
                bytes: bytes.to_vec(),
                socket: files.next().filter(|_| is_known(&description.stage))?,
            })
        };
        let all: Option<Vec<_>> = descriptions.into_iter().map(&mut take).collect();
        let all = all.filter(|_| rest.is_empty() && files.next().is_none());
        all.ok_or_else(|| "its state is incomplete".to_owned())
    }
}
