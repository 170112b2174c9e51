//! Tenants: their hosts, their SLOs, and the blocks that they may access.

use std::collections::BTreeSet;

use base::Nanos;
use qos::limits::{RATE_MAX, SLO_LATENCY_MAX, SLO_LATENCY_MIN, SLO_REQUEST_BYTES_MAX, WEIGHT_MAX};
use qos::{Declaration, Slo, Weight};

use super::declare::of_empty;
use super::{Authentication, Network, Size, keyword};
use crate::limits::NAMESPACES_MAX;

/// The tenant of hosts that no other tenant covers.
pub const DEFAULT_TENANT: &str = "default";

/// The weight of a best-effort tenant that names none.
pub const DEFAULT_WEIGHT: u32 = qos::limits::WEIGHT_DEFAULT;

/// The size of the requests that an SLO is stated for, where it names none.
pub const DEFAULT_REQUEST_SIZE: Size = Size::from_bytes(qos::limits::UNIT_BYTES);

crate::schema! {
    /// A tenant. A host is the tenant that matches it most precisely: by its name before by a
    /// subsystem, and that before by a namespace. An empty match is every one.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Tenant {
        /// 1 to 64 letters, digits, `-`, `_` and `.`; `default`: hosts of no other tenant.
        pub name: String = required("write its name, like name = \"database\""),
        /// NQNs of its hosts. Without `authentication` they are claims.
        pub hosts: BTreeSet<String> = set("every host"),
        /// Networks or addresses that these hosts connect from, at most 256; from elsewhere, these
        /// NQNs are refused.
        pub networks: BTreeSet<Network> = set("anywhere"),
        /// NQNs of the subsystems in which it applies.
        pub subsystems: BTreeSet<String> = set("every subsystem"),
        /// Proof of its name that a host has to give, in addition to that of the subsystem.
        pub authentication: Authentication = or(Authentication::None),
        /// NSIDs of the namespaces in which it applies.
        pub namespaces: BTreeSet<u32> = set("every namespace") in 1..=NAMESPACES_MAX.into(),
        /// SLO, on each device with a `model`.
        pub latency_critical: Option<LatencyCritical> = optional("best_effort"),
        /// Weight in the spare capacity; not together with `latency_critical`.
        pub best_effort: Option<BestEffort> = without("weight 100", "latency_critical"),
        /// Its only permissions; other commands fail with Access Denied.
        pub permissions: Option<Vec<Permission>> = optional("everything is permitted"),
    }

    /// A service-level objective: a read latency at a percentile, for a rate of requests of one size
    /// and mix. `[ReFlex §3.2]`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LatencyCritical {
        /// Reads that complete within `latency_us`: p95 is 95 %.
        pub percentile: Percentile = or(Percentile::P95),
        /// Read latency.
        pub latency_us: u64 = required(
            "write within how many microseconds reads are done, like latency_us = 500"
        ) in micros(SLO_LATENCY_MIN)..=micros(SLO_LATENCY_MAX),
        /// Requests per second.
        pub iops: u64 = required("write how many requests a second, like iops = 70000")
            in 1..=RATE_MAX,
        /// Reads in 100 requests.
        pub read_percent: u64 = or(100)
            in 0..=100,
        /// Size of each request.
        pub request_size: Size = or(DEFAULT_REQUEST_SIZE) in 1..=SLO_REQUEST_BYTES_MAX.into(),
    }

    /// A weight in the capacity that latency-critical tenants leave.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BestEffort {
        /// Weight relative to other best-effort tenants.
        pub weight: u32 = or(DEFAULT_WEIGHT) in 1..=WEIGHT_MAX.into(),
    }

    /// Blocks that a tenant may access.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Permission {
        /// NQN of the subsystem.
        pub subsystem: Option<String> = optional("every subsystem"),
        /// NSID of the namespace.
        pub namespace: Option<u32> = optional("every namespace") in 1..=NAMESPACES_MAX.into(),
        /// First logical block of the range.
        pub first_block: u64 = or(0),
        /// Number of logical blocks.
        pub blocks: Option<u64> = optional("all that follow"),
        /// Permitted access.
        pub access: Access = required("write access = \"read_write\", \"read\" or \"write\""),
    }
}

const fn micros(time: Nanos) -> u64 {
    time.0 / 1000
}

impl Default for BestEffort {
    fn default() -> Self {
        of_empty()
    }
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
            authentication: Authentication::None,
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
