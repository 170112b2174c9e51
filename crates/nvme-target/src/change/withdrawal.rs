//! Removals and revocations that a core has begun, and the connections that they wait for.

use super::ack::Pausing;
use base::{SlabKey, Time};

/// A removal or a revocation that waits.
#[derive(Debug)]
pub(crate) struct Withdrawal {
    /// The namespace that is to be removed, by subsystem and identifier; `None` for rights.
    pub(crate) removes: Option<(u32, u32)>,
    /// Connections with answers that point into the memory and are not sent.
    pub(crate) holders: Vec<Holder>,
    /// Time at which the connections close that hold some still.
    pub(crate) until: Time,
    /// Acknowledged, by being dropped, when the change is through on this core.
    pub(crate) _debt: Option<Pausing>,
}

/// A connection with answers that are not sent.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) connection: SlabKey,
    /// Number of the send with which the last of them leaves; `None` while some wait for room.
    pub(crate) mark: Option<u64>,
}
