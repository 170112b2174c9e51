//! Everything that is known about a target at one moment, in the form in which interfaces show it.

use crate::controller::registry::ControllerKind;
use crate::latency::Latency;
use crate::limits::Limits;
use crate::qos::snapshot::TenantSnapshot;
use crate::shared::Referral;
use crate::stats::CoreStats;
use crate::switch::stats::SwitchStats;
use crate::switch::threads::ThreadsSnapshot;
use reactor::priority::PriorityStatus;
use serde::{Deserialize, Serialize, Serializer};
use std::net::SocketAddr;
use switch::Knobs;

/// A target at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Counts the changes of what discovery hosts may see.
    pub generation: u64,
    /// Addresses that it listens on.
    pub listeners: Vec<SocketAddr>,
    /// Other discovery services that it refers to.
    pub referrals: Vec<Referral>,
    /// Its subsystems, by name.
    pub subsystems: Vec<SubsystemSnapshot>,
    /// The devices that are shared by tokens.
    pub devices: Vec<ScheduledDevice>,
    /// Its controllers, by identifier.
    pub controllers: Vec<ControllerSnapshot>,
    /// Entries of all queues of its controllers together.
    pub queue_entries: u64,
    /// Changes that not every core had made when their time was over.
    pub late_changes: u64,
    /// Counters of each core.
    pub cores: Vec<CoreStats>,
    /// Counters of each core's switch, in the same order.
    pub switch: Vec<SwitchStats>,
    /// Scheduling priority of each core's thread.
    pub priorities: Vec<PriorityStatus>,
    /// Threads in use.
    pub threads: ThreadsSnapshot,
    /// The knobs.
    pub knobs: Knobs,
    /// Its limits.
    pub limits: Limits,
}

/// A subsystem at one moment.
#[derive(Clone, Debug)]
pub struct SubsystemSnapshot {
    /// Its name.
    pub nqn: String,
    /// Its serial number.
    pub serial: String,
    /// Its model number.
    pub model: String,
    /// Every host may connect.
    pub allow_any_host: bool,
    /// Hosts that may connect otherwise.
    pub allowed_hosts: Vec<String>,
    /// Its namespaces, by identifier.
    pub namespaces: Vec<NamespaceSnapshot>,
}

/// A namespace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceSnapshot {
    /// Its identifier.
    pub nsid: u32,
    /// Its size in blocks.
    pub blocks: u64,
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Its UUID, as text.
    pub uuid: String,
    /// Read commands.
    pub reads: OperationSnapshot,
    /// Write commands.
    pub writes: OperationSnapshot,
    /// Flush commands of this namespace alone.
    pub flushes: OperationSnapshot,
    /// Write Zeroes, Dataset Management, Compare and Verify commands.
    pub others: OperationSnapshot,
}

impl NamespaceSnapshot {
    /// Returns the kinds of commands with their names.
    #[must_use]
    pub const fn operations(&self) -> [(&'static str, &OperationSnapshot); 4] {
        [
            ("read", &self.reads),
            ("write", &self.writes),
            ("flush", &self.flushes),
            ("other", &self.others),
        ]
    }
}

/// Commands of one kind, by their completion, on all cores together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationSnapshot {
    /// Commands completed, with any status.
    pub completed: u64,
    /// Of these, commands completed with an error.
    pub errors: u64,
    /// Data moved by those that succeeded, in bytes.
    pub bytes: u64,
    /// Times from the dispatch of a command until its answer is queued, with any status. What is
    /// answered in the turn of the core's loop in which it came counts as 0.
    pub latency: Latency,
}

/// A device that is shared by tokens, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScheduledDevice {
    /// Its name.
    #[serde(rename = "device")]
    pub name: String,
    /// Tokens generated in a second, at the strictest latency that was promised.
    pub tokens_per_second: u64,
    /// Of these, tokens promised to latency-critical tenants.
    pub reserved_tokens_per_second: u64,
    /// The namespaces over it, each by its subsystem's name and its identifier.
    pub namespaces: Vec<(String, u32)>,
    /// Its tenants, by name.
    pub tenants: Vec<TenantSnapshot>,
}

/// A controller at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerSnapshot {
    /// CNTLID.
    #[serde(rename = "cntlid")]
    pub id: u16,
    /// I/O or discovery.
    pub kind: ControllerKind,
    /// The name of its subsystem; that of the discovery subsystem for a discovery controller.
    pub nqn: String,
    /// HOSTNQN; empty for a host that gave none.
    #[serde(serialize_with = "or_none")]
    pub host_nqn: String,
    /// HOSTID, as hexadecimal digits.
    pub host_id: String,
    /// The address that its admin queue comes from.
    pub peer: SocketAddr,
    /// I/O queues that are connected, by their identifiers.
    pub io_queues: Vec<QueueSnapshot>,
    /// Errors since it was created.
    pub errors: u64,
}

/// Writes the name of a host; `(none)` for one that gave none.
fn or_none<S: Serializer>(name: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if name.is_empty() { "(none)" } else { name })
}

/// An I/O queue of a controller at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSnapshot {
    /// Its queue identifier, from 1.
    pub qid: u16,
    /// The processor of the thread that serves it; `None` before that thread has one.
    pub core: Option<u32>,
    /// Its entries, as the host's Connect says.
    pub depth: u32,
    /// Its PDUs carry header digests.
    pub header_digest: bool,
    /// Its PDUs carry data digests.
    pub data_digest: bool,
}
