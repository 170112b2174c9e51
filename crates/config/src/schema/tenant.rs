//! Tenants: their hosts, their promises, and the blocks that they may touch.

use std::collections::BTreeSet;

use base::Nanos;
use qos::{Declaration, Slo, Weight};
use serde::{Deserialize, Serialize};

use super::{Network, Size, keyword};

/// The tenant of hosts that no other tenant covers.
pub const DEFAULT_TENANT: &str = "default";

/// The weight of a best-effort tenant that names none.
pub const DEFAULT_WEIGHT: u32 = qos::limits::WEIGHT_DEFAULT;

/// The size of the requests that an SLO is stated for, where it names none.
pub const DEFAULT_REQUEST_SIZE: Size = Size::from_bytes(qos::limits::UNIT_BYTES);

/// A tenant. Of hosts, subsystems and namespaces, one that names none is the tenant of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// The names of its hosts.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub hosts: BTreeSet<String>,
    /// Networks from which these hosts connect; their names count from no other network. Without
    /// any, from anywhere.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub networks: BTreeSet<Network>,
    /// The subsystems in which they are this tenant.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub subsystems: BTreeSet<String>,
    /// The namespaces in which they are.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub namespaces: BTreeSet<u32>,
    /// Its promise; not together with `best_effort`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_critical: Option<LatencyCritical>,
    /// Its share of what is left. This is what a tenant is that says neither.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub best_effort: Option<BestEffort>,
    /// Its permissions, exclusively; `None` permits everything.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub permissions: Option<Vec<Permission>>,
}

/// A service-level objective: reads within a latency, at a percentile, for so many requests of one
/// size and mix. `[ReFlex §3.2]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyCritical {
    /// Of how many reads the latency holds.
    pub percentile: Percentile,
    /// The latency of a read in microseconds.
    pub latency_us: u64,
    /// Requests a second.
    pub iops: u64,
    /// The share of reads among them, in hundredths: 0 to 100.
    pub read_percent: u64,
    /// The size of each.
    pub request_size: Size,
}

keyword! {
    /// A percentile.
    pub enum Percentile {
        /// 95 of 100.
        P95 = "p95",
        /// Half.
        P50 = "p50",
        /// 99 of 100.
        P99 = "p99",
        /// 999 of 1000.
        P999 = "p99.9",
    }
}

/// A share of what latency-critical tenants leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BestEffort {
    /// The share, in proportion to the weights of the others.
    pub weight: u32,
}

impl Default for BestEffort {
    fn default() -> Self {
        Self {
            weight: DEFAULT_WEIGHT,
        }
    }
}

/// Blocks that a tenant may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permission {
    /// The subsystem; `None` means every one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subsystem: Option<String>,
    /// The namespace; `None` means every one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub namespace: Option<u32>,
    /// The first block.
    pub first_block: u64,
    /// Their number; `None` means all that follow.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub blocks: Option<u64>,
    /// The permitted access.
    pub access: Access,
}

keyword! {
    /// The permitted access to blocks.
    pub enum Access {
        /// Everything.
        ReadWrite = "read_write",
        /// Read, Compare and Verify.
        Read = "read",
        /// Write, Write Zeroes and Deallocate.
        Write = "write",
    }
}

impl Tenant {
    /// Creates a best-effort tenant with no hosts and all permissions.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            hosts: BTreeSet::new(),
            networks: BTreeSet::new(),
            subsystems: BTreeSet::new(),
            namespaces: BTreeSet::new(),
            latency_critical: None,
            best_effort: None,
            permissions: None,
        }
    }

    /// Returns its declaration in the scheduler's terms; the configuration's checks cover the
    /// numbers.
    #[must_use]
    pub fn declaration(&self) -> Declaration {
        let Some(promise) = &self.latency_critical else {
            let BestEffort { weight } = self.best_effort.unwrap_or_default();
            return Declaration::BestEffort(Weight::new(weight).unwrap_or_default());
        };
        let percent = promise.read_percent.min(100);
        Declaration::LatencyCritical(Slo {
            percentile: match promise.percentile {
                Percentile::P50 => qos::Percentile::P50,
                Percentile::P95 => qos::Percentile::P95,
                Percentile::P99 => qos::Percentile::P99,
                Percentile::P999 => qos::Percentile::P999,
            },
            latency: Nanos(promise.latency_us.saturating_mul(1000)),
            iops: promise.iops,
            read_permille: u16::try_from(percent * 10).expect("at most 1000"),
            request_bytes: u32::try_from(promise.request_size.bytes).unwrap_or(u32::MAX),
        })
    }

    /// Returns true if it names neither hosts nor subsystems nor namespaces.
    #[must_use]
    pub fn matches_everybody(&self) -> bool {
        self.hosts.is_empty() && self.subsystems.is_empty() && self.namespaces.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_that_says_neither_is_best_effort() {
        let mut tenant = Tenant::new("t");
        assert_eq!(tenant.declaration(), Declaration::default());
        tenant.best_effort = Some(BestEffort { weight: 7 });
        let seven = Weight::new(7).expect("a weight");
        assert_eq!(tenant.declaration(), Declaration::BestEffort(seven));
        tenant.latency_critical = Some(LatencyCritical {
            percentile: Percentile::P999,
            latency_us: 250,
            iops: 9,
            read_percent: 80,
            request_size: Size::from_bytes(8192),
        });
        let Declaration::LatencyCritical(slo) = tenant.declaration() else {
            panic!("a promise counts before a share");
        };
        assert_eq!((slo.percentile.permille(), slo.latency.0), (999, 250_000));
        assert_eq!(
            (slo.iops, slo.read_permille, slo.request_bytes),
            (9, 800, 8192)
        );
    }
}
