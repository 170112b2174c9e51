//! Everything that is known about a running target at one moment.

mod limits;
mod switch;
mod tenants;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use limits::{LimitedSnapshot, UsageSnapshot};
pub use switch::{
    CaravanSnapshot, ClassSnapshot, ServiceSnapshot, SizeBucket, SwitchSnapshot, ThreadsSnapshot,
};
pub use tenants::{
    ClassOfService, CommandCounters, SharedDeviceSnapshot, TenantEvent, TenantEventKind,
    TenantLatencies, TenantSnapshot, TokenCounters,
};

/// What is known about a running target. Counters count from its start and never fall.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Milliseconds since the target's start.
    pub uptime_ms: u64,
    /// The addresses the target listens at, with the ports that were really taken.
    pub listen: Vec<SocketAddr>,
    /// The discovery log page's generation counter.
    pub discovery_generation: u64,
    /// Connections of all cores.
    pub connections: ConnectionCounters,
    /// How much is in use of what is limited.
    pub usage: Vec<UsageSnapshot>,
    /// How often each limit held somebody back.
    pub limited: Vec<LimitedSnapshot>,
    /// The cores, by number.
    pub cores: Vec<CoreSnapshot>,
    /// Which threads are in use.
    pub threads: ThreadsSnapshot,
    /// What the switch did, by core.
    pub switch: Vec<SwitchSnapshot>,
    /// The namespaces, by subsystem and identifier.
    pub namespaces: Vec<NamespaceSnapshot>,
    /// The devices that tenants share by tokens, by name.
    pub devices: Vec<SharedDeviceSnapshot>,
    /// The controllers that hosts have open, by identifier.
    pub controllers: Vec<ControllerSnapshot>,
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
    /// Controllers given up because their host was silent for too long.
    pub keep_alive_expired: u64,
}

/// What one core has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoreSnapshot {
    /// The core's number.
    pub core: u32,
    /// Connections open on it now.
    pub connections: u64,
    /// Commands that its queues have memory for.
    pub command_places: u64,
    /// Turns of its loop.
    pub loops: u64,
    /// Times it slept in the kernel.
    pub sleeps: u64,
    /// Nanoseconds of processor time its thread has used.
    pub busy_ns: u64,
    /// Nanoseconds in which its thread had something to do: polling in vain does not count, waiting
    /// for the processor in the midst of work does.
    pub work_ns: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// System calls that received something.
    pub receives: u64,
    /// System calls that sent something.
    pub sends: u64,
}

/// What one namespace has done, on all cores together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceSnapshot {
    /// Its subsystem's name.
    pub nqn: String,
    /// Its identifier.
    pub nsid: u32,
    /// The name of the device under it.
    pub device: String,
    /// Its size in bytes, as hosts are told.
    pub size_bytes: u64,
    /// Its logical block in bytes.
    pub block_bytes: u64,
    /// Reads, by their completion.
    pub reads: OperationCounters,
    /// Writes, by their completion.
    pub writes: OperationCounters,
    /// Flushes, by their completion.
    pub flushes: OperationCounters,
    /// All other commands: Write Zeroes, Dataset Management, Compare, Verify.
    pub others: OperationCounters,
}

/// Commands of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationCounters {
    /// Completed, whatever their status.
    pub completed: u64,
    /// Of these, completed with an error.
    pub errors: u64,
    /// Data moved by those that succeeded, in bytes.
    pub bytes: u64,
    /// From the command's dispatch until its answer is queued, in steps of a turn of the core's
    /// loop: what is answered in the turn in which it came counts as 0. Whatever the status.
    pub latency: LatencyHistogram,
}

/// How long requests took, counted in buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyHistogram {
    /// Buckets in rising order of their bounds; each counts only what the one before does not.
    pub buckets: Vec<LatencyBucket>,
    /// What took longer than the last bucket's bound.
    pub above: u64,
    /// All of it together, in nanoseconds.
    pub sum_ns: u64,
}

/// Requests that took at most so long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// The bound in nanoseconds, itself included.
    pub up_to_ns: u64,
    /// How many.
    pub count: u64,
}

impl LatencyHistogram {
    /// The latency within which so many thousandths of the requests were, at the latest: the bound
    /// of a bucket, in nanoseconds. `None` without requests, or above the last bound.
    #[must_use]
    pub fn permille_ns(&self, permille: u64) -> Option<u64> {
        let wanted = (u128::from(self.count()) * u128::from(permille)).div_ceil(1000);
        let mut count = 0u128;
        let mut buckets = self.buckets.iter().filter(|_| wanted > 0);
        let found = buckets.find(|bucket| {
            count += u128::from(bucket.count);
            count >= wanted
        });
        found.map(|bucket| bucket.up_to_ns)
    }

    /// How many requests were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.count).sum::<u64>() + self.above
    }
}

/// A controller that a host has open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControllerSnapshot {
    /// Its controller identifier.
    pub cntlid: u16,
    /// Its subsystem's name; the discovery subsystem's for a discovery controller.
    pub nqn: String,
    /// The host's name; `(none)` for a host that gave none.
    pub host_nqn: String,
    /// The host's identifier, as hexadecimal digits.
    pub host_id: String,
    /// Where the host's admin queue comes from.
    pub peer: Option<SocketAddr>,
    /// I/O queues it has open.
    pub io_queues: Vec<QueueSnapshot>,
    /// The Keep Alive timeout in milliseconds; 0 means none.
    pub keep_alive_timeout_ms: u64,
    /// Milliseconds since it was created.
    pub age_ms: u64,
}

/// An I/O queue of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSnapshot {
    /// Its queue identifier, from 1.
    pub qid: u16,
    /// Its entries.
    pub depth: u32,
    /// The core that serves it.
    pub core: u32,
    /// Commands being worked on.
    pub inflight: u32,
    /// The header digest is on.
    pub header_digest: bool,
    /// The data digest is on.
    pub data_digest: bool,
}
