//! Snapshot of a tenant on a device.

use crate::latency::TenantLatency;
use crate::qos::record::Windows;
use crate::stats::TenantStats;
use qos::Declaration;
use serde::{Deserialize, Serialize};

/// A tenant on a device, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantSnapshot {
    /// Its name.
    pub name: String,
    /// Its class of service, with its parameters.
    pub class: ServiceClass,
    /// Tokens a second that its promise takes.
    pub reserved_tokens_per_second: u64,
    /// Counters of all cores together.
    #[serde(flatten)]
    pub stats: TenantStats,
    /// Service times of its commands, on all cores together.
    pub latency: TenantLatency,
    /// Seconds with reads, by the verdict on its promise.
    #[serde(flatten)]
    pub windows: Windows,
    /// It keeps asking for more than its promise says.
    pub overruns: bool,
}

/// The class of service of a tenant on a device. `[ReFlex §3.2]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceClass {
    /// The tenant has a share of the tokens that latency-critical tenants leave.
    BestEffort {
        /// The share, in proportion to the weights of the others.
        weight: u32,
    },
    /// The tenant is promised a latency of reads.
    LatencyCritical {
        /// The percentile of the reads for which the latency holds.
        percentile: String,
        /// The latency in nanoseconds.
        latency_ns: u64,
    },
}

impl Default for ServiceClass {
    fn default() -> Self {
        Declaration::default().into()
    }
}

impl From<Declaration> for ServiceClass {
    fn from(declaration: Declaration) -> Self {
        match declaration {
            Declaration::BestEffort(weight) => Self::BestEffort {
                weight: weight.get(),
            },
            Declaration::LatencyCritical(slo) => Self::LatencyCritical {
                percentile: slo.percentile.to_string(),
                latency_ns: slo.latency.0,
            },
        }
    }
}
