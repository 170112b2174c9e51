//! Snapshot of a tenant on a device.

use crate::latency::TenantLatency;
use crate::qos::record::Windows;
use crate::stats::TenantStats;
use qos::{Declaration, TokenRate};

/// A tenant on a device, at one moment.
#[derive(Clone, Debug)]
pub struct TenantSnapshot {
    /// What it is called.
    pub name: String,
    /// What it is promised.
    pub declaration: Declaration,
    /// The rate of tokens that this takes.
    pub reserved: TokenRate,
    /// What it was served, on all cores together.
    pub stats: TenantStats,
    /// How long its commands took, on all cores together.
    pub latency: TenantLatency,
    /// In how many seconds its promise was kept.
    pub windows: Windows,
    /// Whether it keeps asking for more than its promise says.
    pub overruns: bool,
}
