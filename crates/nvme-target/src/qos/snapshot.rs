//! Snapshot of a tenant on a device.

use crate::latency::TenantLatency;
use crate::qos::record::Windows;
use crate::stats::TenantStats;
use qos::{Declaration, TokenRate};

/// A tenant on a device, at one moment.
#[derive(Clone, Debug)]
pub struct TenantSnapshot {
    /// Its name.
    pub name: String,
    /// Its declaration.
    pub declaration: Declaration,
    /// The rate of tokens that this takes.
    pub reserved: TokenRate,
    /// Its counters, of all cores together.
    pub stats: TenantStats,
    /// Service times of its commands, of all cores together.
    pub latency: TenantLatency,
    /// Seconds in which its promise was kept, and in which it was not.
    pub windows: Windows,
    /// It keeps asking for more than its promise says.
    pub overruns: bool,
}
