//! The dataplane, as the control plane knows it.
//!
//! The program implements [`DataPlane`] over the target. Nothing in here says how: a change is
//! an [`Action`] that has happened when `apply` returns, and everything that is known about what
//! happens on the cores is one [`Snapshot`].

mod calibration;
mod limits;
mod switch;
mod tenants;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use calibration::{
    CalibrationRequest, CalibrationResult, CalibrationSnapshot, CalibrationState, SeenLoad,
    UnkeptPromise,
};
pub use limits::{LimitedSnapshot, UsageSnapshot};
pub use switch::{
    CaravanSnapshot, ClassSnapshot, ServiceSnapshot, SizeBucket, SwitchSnapshot, ThreadsSnapshot,
};
pub use tenants::{
    ClassOfService, CommandCounters, SharedDeviceSnapshot, TenantEvent, TenantEventKind,
    TenantLatencies, TenantSnapshot, TokenCounters,
};

use crate::action::Action;

/// What carries out actions, and tells what happens.
pub trait DataPlane: Send + Sync + 'static {
    /// Carries out one action on every core, under pause and resume, and returns when it is in
    /// force everywhere. Never called by two threads at a time, and never on a dataplane core.
    ///
    /// # Errors
    /// Why nothing has changed: an action that fails leaves the dataplane as it was.
    fn apply(&self, action: &Action) -> Result<(), ApplyError>;

    /// What is known now. May be called by several threads at a time; must not disturb I/O.
    fn snapshot(&self) -> Snapshot;

    /// What happened after the event of this number, 0 for all that is known, oldest first. A
    /// bounded number is kept; numbers have no gaps but for what was dropped. As
    /// [`snapshot`](Self::snapshot) otherwise.
    fn events(&self, after: u64) -> Vec<TenantEvent>;

    /// Begins to calibrate a device again while it serves, and returns at once. What comes out is
    /// in force as soon as it is done. May be called by several threads at a time, as the two below.
    ///
    /// # Errors
    /// When there is no such device, it has no model, or it is being calibrated already.
    fn calibrate(&self, device: &str, request: CalibrationRequest) -> Result<(), ApplyError>;

    /// How far a device's last calibration is, or how it ended.
    ///
    /// # Errors
    /// When there was none.
    fn calibration(&self, device: &str) -> Result<CalibrationSnapshot, ApplyError>;

    /// Lets a device's calibration end soon without a newer model. One that ended stays as it is.
    ///
    /// # Errors
    /// When there was none.
    fn cancel_calibration(&self, device: &str) -> Result<(), ApplyError>;
}

/// Why an action was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}; {what_to_do}")]
pub struct ApplyError {
    /// Whose fault it is.
    pub kind: ApplyErrorKind,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub what_to_do: String,
}

/// Whose fault a failed action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyErrorKind {
    /// What the action names is not there.
    NotFound,
    /// The action contradicts what is there.
    Conflict,
    /// The action was decided by what is not there any more.
    Outdated,
    /// The action itself makes no sense.
    Invalid,
    /// The action is good, and this machine cannot carry it out.
    Failed,
}

impl ApplyError {
    /// An error of `kind`, with what is wrong and what would be right.
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
