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
    /// Name of the tenant.
    pub name: String,
    /// Class of service, with its parameters.
    pub class: ServiceClass,
    /// Tokens per second reserved by its SLO.
    pub reserved_tokens_per_second: u64,
    /// Counters, summed over all cores.
    #[serde(flatten)]
    pub stats: TenantStats,
    /// Service times of its commands, over all cores.
    pub latency: TenantLatency,
    /// Seconds with reads, by whether the SLO was met.
    #[serde(flatten)]
    pub windows: Windows,
    /// Its demand keeps exceeding its SLO.
    pub overruns: bool,
}

/// The class of service of a tenant on a device. `[ReFlex §3.2]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceClass {
    /// The tenant has a share of the tokens that latency-critical tenants do not use.
    BestEffort {
        /// The share, in proportion to the weights of the other tenants.
        weight: u32,
    },
    /// The tenant has an SLO with a read latency.
    LatencyCritical {
        /// The percentile of reads that must meet the latency.
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
