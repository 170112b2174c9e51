//! Tenants of hosts and their permissions: as drawn, and in the form of a target's configuration.

use crate::rights::Permit;
use base::{Nanos, Prng};
use qos::slo::Weight;
use qos::{Declaration, Percentile, Slo};
use target::{AccessGrant, Tenancy, TenantGrant, TenantOptions};

/// Tenants of a target by host; `None` for a host without a tenant.
#[derive(Clone, Debug, Default)]
pub(super) struct Tenants(Vec<Option<Tenant>>);

#[derive(Clone, Debug)]
struct Tenant {
    declaration: Declaration,
    /// Permissions by volume; `None` for full access.
    permits: Option<Vec<Vec<Permit>>>,
}

/// The name of a host.
pub(super) fn host_name(number: usize) -> String {
    format!("nqn.2026-11.io.switchyard:host{number}")
}

fn number(prng: &mut Prng, below: u64) -> usize {
    usize::try_from(prng.below(below)).expect("a small number")
}

impl Permit {
    fn draw(prng: &mut Prng, blocks: u64) -> Self {
        let first = number(prng, blocks);
        let all = usize::try_from(blocks).expect("a small disk");
        let count = 1 + number(prng, (all - first) as u64);
        let kind = prng.below(4);
        Self {
            blocks: first..first + count,
            read: kind != 1,
            write: kind != 2,
        }
    }
}

impl Tenants {
    /// Draws random tenants.
    pub(super) fn draw(prng: &mut Prng, hosts: usize, volumes: usize, blocks: u64) -> Self {
        let draw = |_| {
            if prng.chance(1, 3) {
                return None;
            }
            let limited = prng.chance(2, 3);
            let permits = limited.then(|| {
                let of_volume = |prng: &mut Prng| {
                    let count = 1 + prng.below(3);
                    (0..count).map(|_| Permit::draw(prng, blocks)).collect()
                };
                (0..volumes).map(|_| of_volume(prng)).collect()
            });
            Some(Tenant {
                declaration: declaration(prng),
                permits,
            })
        };
        Self((0..hosts).map(draw).collect())
    }

    /// Returns the permissions of a host in a volume; `None` for everything.
    pub(super) fn permits(&self, host: usize, volume: usize) -> Option<Vec<Permit>> {
        let tenant = self.0.get(host)?.as_ref()?;
        tenant
            .permits
            .as_ref()
            .map(|permits| permits[volume].clone())
    }

    /// Returns the tenants in the form of a target's configuration.
    pub(super) fn tenancy(&self) -> Tenancy {
        let tenants = self.0.iter().enumerate();
        let tenants = tenants.filter_map(|(host, tenant)| Some((host, tenant.as_ref()?)));
        let tenants = tenants.map(|(host, tenant)| TenantOptions {
            name: format!("tenant{host}"),
            hosts: vec![host_name(host)],
            grants: tenant.permits.as_deref().map(grants),
            declaration: tenant.declaration,
            ..TenantOptions::default()
        });
        Tenancy {
            tenants: tenants.collect(),
            ..Tenancy::default()
        }
    }
}

/// Draws an SLO that every device meets, or a weight.
fn declaration(prng: &mut Prng) -> Declaration {
    if prng.chance(1, 3) {
        return Declaration::LatencyCritical(Slo {
            percentile: Percentile::P95,
            latency: Nanos::from_secs(1),
            iops: 50 + prng.below(100),
            read_permille: 1_000,
            request_bytes: 4096,
        });
    }
    let weight = u32::try_from(1 + prng.below(1_000)).expect("a small number");
    Declaration::BestEffort(Weight::new(weight).expect("within its limits"))
}

fn grants(permits: &[Vec<Permit>]) -> Vec<TenantGrant> {
    let volumes = (1..).zip(permits);
    let grants = volumes.flat_map(|(nsid, permits)| {
        permits.iter().map(move |permit| AccessGrant {
            namespace: Some(nsid),
            range: Some((permit.blocks.start as u64, permit.blocks.len() as u64)),
            read: permit.read,
            write: permit.write,
        })
    });
    let grants = grants.map(|grant| TenantGrant {
        subsystem: None,
        grant,
    });
    grants.collect()
}
