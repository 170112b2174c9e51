//! State and counters of attachments, as the HTTP interface reports them.

use block::IoCounts;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The answer to `GET /v1/attachments`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachmentsAnswer {
    /// Milliseconds since the start of the process.
    pub uptime_ms: u64,
    /// The attachments, in order of the file.
    pub attachments: Vec<AttachmentSnapshot>,
}

/// One attachment. Counters count from its start and never fall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachmentSnapshot {
    /// Its name, unique in the process.
    pub name: String,
    /// The front end, such as `nbd`.
    pub kind: String,
    /// Ways for clients: a URI, a socket, or files.
    pub at: Vec<String>,
    /// The device behind it.
    pub device: String,
    /// The rule that gives requests their class: a class's name or `auto`.
    pub class: String,
    /// Number of rules that go before it.
    pub class_rules: usize,
    /// Writes are refused.
    pub read_only: bool,
    /// Size of its devices.
    pub size_bytes: u64,
    /// Connections (NBD), machines (vhost-user) or open files (FUSE).
    pub clients: u64,
    /// State of the way to its device.
    pub state: AttachmentState,
    /// The reason for which it is not connected, or not started, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Requests, for each class.
    pub classes: Vec<AttachmentClass>,
}

/// State of the way from an attachment to its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachmentState {
    /// The device is of this machine.
    #[default]
    Local,
    /// Requests flow to the target.
    Connected,
    /// The connection to the target is lost: requests wait until it is back.
    NotConnected,
    /// The target does not come back, or a namespace went away: requests fail.
    Gone,
    /// It could not be started: nothing is offered, and it is tried again.
    NotStarted,
}

impl fmt::Display for AttachmentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Local => "local",
            Self::Connected => "connected",
            Self::NotConnected => "not connected",
            Self::Gone => "gone",
            Self::NotStarted => "not started",
        })
    }
}

/// Requests of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachmentClass {
    /// Name of the class.
    pub class: String,
    /// Requests that the device was given and has not finished.
    pub outstanding: u64,
    /// Those that it has finished.
    #[serde(flatten)]
    pub counts: IoCounts,
}
