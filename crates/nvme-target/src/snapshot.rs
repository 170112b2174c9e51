//! The state of a target at one moment, in the form that interfaces show.

use crate::authentication::Authentication;
use crate::controller::registry::ControllerKind;
use crate::latency::Latency;
use crate::limits::Limits;
use crate::qos::snapshot::TenantSnapshot;
use crate::reservation::kept::ReservationSnapshot;
use crate::shared::Referral;
use crate::stats::CoreStats;
use crate::switch::stats::SwitchStats;
use crate::switch::threads::ThreadsSnapshot;
use crate::tls::OpenListener;
use reactor::priority::PriorityStatus;
use serde::{Deserialize, Serialize, Serializer};
use std::net::SocketAddr;
use switch::Knobs;

/// A target at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Number of changes to the discovery log page.
    pub generation: u64,
    /// Addresses that the target listens on.
    pub listeners: Vec<OpenListener>,
    /// Referrals to other discovery services.
    pub referrals: Vec<Referral>,
    /// Subsystems, by name.
    pub subsystems: Vec<SubsystemSnapshot>,
    /// Devices shared by tokens.
    pub devices: Vec<ScheduledDevice>,
    /// Controllers, by identifier.
    pub controllers: Vec<ControllerSnapshot>,
    /// Entries of all queues of all controllers.
    pub queue_entries: u64,
    /// Changes that not every core applied in time.
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
    /// The limits.
    pub limits: Limits,
}

/// A subsystem at one moment.
#[derive(Clone, Debug)]
pub struct SubsystemSnapshot {
    /// Name of the subsystem.
    pub nqn: String,
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// Every host may connect.
    pub allow_any_host: bool,
    /// Hosts that may connect if not every host may.
    pub allowed_hosts: Vec<String>,
    /// Namespaces, by identifier.
    pub namespaces: Vec<NamespaceSnapshot>,
}

/// A namespace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceSnapshot {
    /// Namespace identifier.
    pub nsid: u32,
    /// Size in blocks.
    pub blocks: u64,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// UUID, as text.
    pub uuid: String,
    /// Registrations and the reservation.
    pub reservations: ReservationSnapshot,
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
    /// Returns each kind of commands with its name.
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

/// Completed commands of one kind, over all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationSnapshot {
    /// Commands completed, with any status.
    pub completed: u64,
    /// Commands completed with an error, included in `completed`.
    pub errors: u64,
    /// Data moved by successful commands, in bytes.
    pub bytes: u64,
    /// Times from the dispatch of a command until its answer is queued, for any status. A command
    /// answered in the turn of its dispatch counts as 0.
    pub latency: Latency,
}

/// A device shared by tokens, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScheduledDevice {
    /// Name of the device.
    #[serde(rename = "device")]
    pub name: String,
    /// Tokens generated per second, at the strictest latency of any SLO.
    pub tokens_per_second: u64,
    /// Tokens per second reserved for latency-critical tenants, included in `tokens_per_second`.
    pub reserved_tokens_per_second: u64,
    /// Namespaces on the device, each by its subsystem's name and its identifier.
    pub namespaces: Vec<(String, u32)>,
    /// Tenants of the device, by name.
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
    /// NQN of its subsystem; for a discovery controller, that of the discovery subsystem.
    pub nqn: String,
    /// HOSTNQN; empty for a host without a name.
    #[serde(serialize_with = "or_none")]
    pub host_nqn: String,
    /// HOSTID, as hexadecimal digits.
    pub host_id: String,
    /// How its host has proved its name: "claimed" (not at all), "tls", "chap" or "chap+tls".
    #[serde(default)]
    pub identity: Authentication,
    /// The peer address of its admin queue.
    pub peer: SocketAddr,
    /// Connected I/O queues, by identifier.
    pub io_queues: Vec<QueueSnapshot>,
    /// Number of errors since it was created.
    pub errors: u64,
}

/// Serialises the name of a host; `(none)` for a host without a name.
fn or_none<S: Serializer>(name: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if name.is_empty() { "(none)" } else { name })
}

/// An I/O queue of a controller at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSnapshot {
    /// Queue identifier, from 1.
    pub qid: u16,
    /// The processor of the thread that serves the queue; `None` until that thread has one.
    pub core: Option<u32>,
    /// Number of entries, as set by Connect.
    pub depth: u32,
    /// Header digests are enabled.
    pub header_digest: bool,
    /// Data digests are enabled.
    pub data_digest: bool,
}
