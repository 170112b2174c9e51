//! Snapshot of a target: for people and for metrics.

use crate::controller::registry::ControllerKind;
use crate::latency::NamespaceLatency;
use crate::limits::Limits;
use crate::qos::snapshot::TenantSnapshot;
use crate::shared::Referral;
use crate::stats::{CoreStats, NamespaceStats};
use crate::switch::stats::SwitchStats;
use crate::switch::threads::ThreadsSnapshot;
use qos::Plan;
use reactor::priority::PriorityStatus;
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
#[derive(Clone, Debug)]
pub struct NamespaceSnapshot {
    /// Its identifier.
    pub nsid: u32,
    /// Its size in blocks.
    pub blocks: u64,
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Counters of all cores together.
    pub stats: NamespaceStats,
    /// Service times of its commands, on all cores together.
    pub latency: NamespaceLatency,
}

/// A device that is shared by tokens, at one moment.
#[derive(Clone, Debug)]
pub struct ScheduledDevice {
    /// Its name.
    pub name: String,
    /// At which rate tokens are generated, and how much of that is promised.
    pub plan: Plan,
    /// The namespaces over it, each by its subsystem's name and its identifier.
    pub namespaces: Vec<(String, u32)>,
    /// Its tenants, by name.
    pub tenants: Vec<TenantSnapshot>,
}

/// A controller at one moment.
#[derive(Clone, Debug)]
pub struct ControllerSnapshot {
    /// CNTLID.
    pub id: u16,
    /// I/O or discovery.
    pub kind: ControllerKind,
    /// The subsystem of an I/O controller.
    pub subsystem: Option<String>,
    /// HOSTNQN.
    pub host_nqn: String,
    /// HOSTID.
    pub host_id: [u8; 16],
    /// Peer of the admin queue.
    pub peer: SocketAddr,
    /// I/O queues connected.
    pub io_queues: usize,
    /// Errors since it was made.
    pub errors: u64,
}
