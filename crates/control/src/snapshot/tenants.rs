//! What the tenants of a target's devices were promised and served.

use serde::{Deserialize, Serialize};

use super::LatencyHistogram;

/// A device that is shared by tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedDeviceSnapshot {
    /// Its name.
    pub device: String,
    /// Tokens generated in a second, at the strictest latency that was promised.
    pub tokens_per_second: u64,
    /// Of these, what is promised to latency-critical tenants.
    pub reserved_tokens_per_second: u64,
    /// Its tenants, by name.
    pub tenants: Vec<TenantSnapshot>,
}

/// A tenant on a device, on all cores together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantSnapshot {
    /// Its name.
    pub name: String,
    /// What it is, and what that is worth.
    pub class: ClassOfService,
    /// Tokens a second that its promise takes.
    pub reserved_tokens_per_second: u64,
    /// I/O and admin queues that it has open, for each namespace that they may use.
    pub seats: u64,
    /// Commands that wait for tokens now.
    pub waiting: u64,
    /// Commands done.
    pub commands: CommandCounters,
    /// What became of its tokens, in thousandths.
    pub tokens_milli: TokenCounters,
    /// Rounds in which it was stopped at the limit of its debt.
    pub limited_rounds: u64,
    /// Reads done while a latency was promised.
    pub promised_reads: u64,
    /// Of these, those that took longer.
    pub late_reads: u64,
    /// Seconds with such reads in which the promise was kept.
    pub windows_met: u64,
    /// Those in which it was not.
    pub windows_missed: u64,
    /// It keeps asking for more than its promise says.
    pub overruns: bool,
    /// How long its commands took.
    pub latency: TenantLatencies,
}

/// Something that happened to a latency-critical tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantEvent {
    /// Its number, from 1 on.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// What happened.
    pub kind: TenantEventKind,
    /// The tenant's name.
    pub tenant: String,
    /// The device on which it was promised something.
    pub device: String,
    /// Over how long it was looked at, in milliseconds.
    pub window_ms: u32,
    /// Tokens that it is promised in a second.
    pub promised_tokens_per_second: u64,
    /// Tokens that it asked for in a second.
    pub asked_tokens_per_second: u64,
    /// Commands that waited for tokens.
    pub waiting: u64,
}

/// What happened to a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantEventKind {
    /// It keeps asking for more than it is promised.
    OverrunBegan,
    /// It keeps to its promise again.
    OverrunEnded,
}

/// What a tenant is on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassOfService {
    /// It has a share of what is left.
    BestEffort {
        /// The share, in proportion to the weights of the others.
        weight: u32,
    },
    /// It is promised a latency of reads.
    LatencyCritical {
        /// At which percentile.
        percentile: String,
        /// The latency in nanoseconds.
        latency_ns: u64,
    },
}

impl Default for ClassOfService {
    fn default() -> Self {
        Self::BestEffort {
            weight: crate::model::DEFAULT_WEIGHT,
        }
    }
}

/// Commands done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandCounters {
    /// Reads.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Flush, Write Zeroes, Dataset Management, Compare and Verify.
    pub others: u64,
    /// Of any kind, ended with an error.
    pub errors: u64,
}

/// What became of a tenant's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenCounters {
    /// Generated for it, or its share of what was left.
    pub earned: u64,
    /// What its commands cost.
    pub spent: u64,
    /// What it did not need.
    pub given: u64,
    /// What was lent to it.
    pub taken: u64,
}

/// How long a tenant's commands took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantLatencies {
    /// Reads, from their dispatch to their answer.
    pub reads: LatencyHistogram,
    /// All others, from dispatch to answer.
    pub others: LatencyHistogram,
    /// Reads, the time in the device.
    pub device_reads: LatencyHistogram,
    /// All others, the time in the device.
    pub device_others: LatencyHistogram,
}
