//! Everything that is known about a running target at one moment.
//!
//! The target's own snapshots and counters are written as they are; only sums over them, and facts
//! that the target does not know (names of devices, processor time), are added here.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
pub use target::{
    ClassStats, ControllerSnapshot, CoreStats, EventKind, Latency, QueueSnapshot, ScheduledDevice,
    ServiceClass, SwitchStats, TargetEvent, TenantSnapshot, ThreadsSnapshot,
};

/// Everything that is known about a running target. Counters count from its start and never fall.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Milliseconds since the target's start.
    pub uptime_ms: u64,
    /// The addresses at which the target listens, with the ports that it got.
    pub listen: Vec<SocketAddr>,
    /// The same, by the address of the configuration, which may have port 0.
    #[serde(skip)]
    pub bound: Vec<(SocketAddr, SocketAddr)>,
    /// The discovery log page's generation counter.
    pub discovery_generation: u64,
    /// Connections of all cores.
    pub connections: ConnectionCounters,
    /// Amounts in use of what is limited.
    pub usage: Vec<UsageSnapshot>,
    /// Refusals and waits, by the limit that caused them.
    pub limited: Vec<LimitedSnapshot>,
    /// End of the life of the HTTP interface's certificate, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_certificate_expiry_s: Option<u64>,
    /// Time since which the oldest key of a host is known, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_host_key_s: Option<u64>,
    /// The erase in progress, of blocks that a smaller namespace gave up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase: Option<EraseSnapshot>,
    /// The cores, by number.
    pub cores: Vec<CoreSnapshot>,
    /// The threads in use.
    pub threads: ThreadsSnapshot,
    /// The switch of each core.
    pub switch: Vec<SwitchSnapshot>,
    /// The namespaces, by subsystem and identifier.
    pub namespaces: Vec<NamespaceSnapshot>,
    /// The devices that tenants share by tokens, by name.
    pub devices: Vec<ScheduledDevice>,
    /// The caches of devices that have one, by the device's name.
    pub caches: Vec<CacheSnapshot>,
    /// The controllers that hosts have open, by identifier.
    pub controllers: Vec<ControllerSnapshot>,
}

/// An erase in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EraseSnapshot {
    /// The device's name.
    pub device: String,
    /// Bytes that remain.
    pub remaining_bytes: u64,
}

/// The cache of a device, in pages of 4 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheSnapshot {
    /// The device's name.
    pub device: String,
    /// Its counters.
    #[serde(flatten)]
    pub counters: block::CacheSnapshot,
}

/// Connections of all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionCounters {
    /// Open now.
    pub open: u64,
    /// Accepted since the start.
    pub accepted: u64,
    /// Refused because there were too many.
    pub refused: u64,
    /// Ended because the peer broke the protocol (C2HTermReq).
    pub protocol_errors: u64,
    /// Ended because the peer sent a termination request (H2CTermReq).
    pub terminated_by_host: u64,
    /// Digests that were wrong.
    pub digest_errors: u64,
    /// Controllers ended because their host was silent for too long.
    pub keep_alive_expired: u64,
}

impl From<&CoreStats> for ConnectionCounters {
    fn from(total: &CoreStats) -> Self {
        Self {
            open: total.connections,
            accepted: total.accepted,
            refused: total.refused,
            protocol_errors: total.terminations_sent,
            terminated_by_host: total.terminations_received,
            digest_errors: total.data_digest_errors,
            keep_alive_expired: total.keep_alive_expirations,
        }
    }
}

/// The amount in use of something that is limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageSnapshot {
    /// A key of `[limits]`, or a fixed one.
    pub limit: String,
    /// The core that has the limit; `None` for a limit of the whole target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// In use now.
    pub used: u64,
    /// The limit's value.
    pub max: u64,
}

/// Refusals and waits that a limit caused since the target's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitedSnapshot {
    /// The limit: a key of `[limits]`, or a fixed one.
    pub limit: String,
    /// Connections or controllers refused, commands that waited or were refused, and connections
    /// closed because a host took too long.
    pub count: u64,
}

/// One core at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoreSnapshot {
    /// The processor's number.
    pub core: u32,
    /// Processor time that its thread has used, in nanoseconds.
    pub busy_ns: u64,
    /// Counters of its thread.
    #[serde(flatten)]
    pub stats: CoreStats,
}

/// The switch of one core at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchSnapshot {
    /// The processor's number.
    pub core: u32,
    /// The privilege with which its thread runs: "nice" or "unprivileged".
    pub privilege: String,
    /// The reason for which it lacks a privilege that was asked for, and the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privilege_refused: Option<String>,
    /// Its thread is in use; otherwise it sleeps, and has no connection.
    pub in_use: bool,
    /// Counters of its switch.
    #[serde(flatten)]
    pub stats: SwitchStats,
}

/// One namespace at one moment, on all cores together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceSnapshot {
    /// Its subsystem's name.
    pub nqn: String,
    /// The name of the device under it.
    pub device: String,
    /// Its size in bytes, as Identify reports it.
    pub size_bytes: u64,
    /// Its identity, and counters of its commands.
    #[serde(flatten)]
    pub namespace: target::NamespaceSnapshot,
}
