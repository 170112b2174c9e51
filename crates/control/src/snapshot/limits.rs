//! What limits do: how much of each is in use, and how often it held somebody back.

use serde::{Deserialize, Serialize};

/// How much is in use of something that is limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageSnapshot {
    /// What: a key of `[limits]`, or `payload_buffer_bytes`.
    pub limit: String,
    /// The core whose it is; `None` for what is the whole target's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// In use now.
    pub used: u64,
    /// All that there is.
    pub max: u64,
}

/// How often a limit held somebody back since the target's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitedSnapshot {
    /// The limit: a key of `[limits]`, or a fixed one.
    pub limit: String,
    /// Connections or controllers refused, commands that waited or were refused, and connections
    /// closed because a host took too long.
    pub count: u64,
}
