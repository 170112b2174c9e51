//! Tenants of hosts, and the blocks that their requests may access. `[ReFlex §3.1, §4.1]`
//!
//! A control plane declares them by name as a [`Tenancy`]. [`AccessRules`] are derived from it;
//! they are shared by all cores and immutable: a new tenancy creates new rules. They are evaluated
//! once per controller; the resulting [`Rights`] of its host are kept with each of its queues, so
//! that a command is checked without a lock or a name. A queue with all rights has no `Rights`, and
//! its commands are not checked.
//!
//! Invariant: a command never accesses a block that is not granted, and a refusal reveals nothing
//! but itself.

use crate::authentication::Authentication;
use crate::error::TargetError;
use crate::limits::NAMESPACES_MAX;
use ipnet::IpNet;
use qos::access::{AccessError, AccessGrant, Assignment, Need};
use qos::{Assignments, Declaration, Permissions, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use wire::nvme::Status;

/// Tenants of a target. Without tenants and with [`Others::Serve`], every host has all rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenancy {
    /// The tenants. If several match a host, the most specific one applies: one that names its host
    /// precedes one that names the subsystem, which precedes one that names the namespace.
    pub tenants: Vec<TenantOptions>,
    /// Policy for hosts without a tenant.
    pub others: Others,
}

/// Policy for hosts without a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Others {
    /// They have all rights.
    #[default]
    Serve,
    /// They may not connect.
    Refuse,
}

/// One tenant. An empty list matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantOptions {
    /// Its unique name.
    pub name: String,
    /// The NQNs of its hosts.
    pub hosts: Vec<String>,
    /// Networks from which these hosts connect. From any other network their names are refused, in
    /// every subsystem, because an NQN is the host's own claim. Empty: any network, unless another
    /// tenant that names the host has networks.
    pub networks: Vec<IpNet>,
    /// The subsystems in which the hosts belong to this tenant.
    pub subsystems: Vec<String>,
    /// The proofs of their names that the hosts have to give, in addition to those of the subsystem.
    pub authentication: Authentication,
    /// The namespaces in which they do, 1 to 1024.
    pub namespaces: Vec<u32>,
    /// The only blocks that the tenant may use; `None`: all.
    pub grants: Option<Vec<TenantGrant>>,
    /// Its SLO or weight on each device with a scheduled namespace that it uses
    /// ([`NamespaceOptions::qos`](crate::NamespaceOptions::qos)).
    pub declaration: Declaration,
}

/// The tenant of hosts without a tenant, and of hosts whose tenant has no account on a device. It
/// shares the spare capacity with the default weight, unless a tenant of this name sets another.
pub const DEFAULT_TENANT: &str = "default";

/// Blocks that a tenant may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantGrant {
    /// The subsystem; `None`: every subsystem.
    pub subsystem: Option<String>,
    /// The namespace in it, the blocks, and the permitted operations.
    pub grant: AccessGrant,
}

/// Represents all namespaces that are not named; no namespace has this identifier.
const UNNAMED: u32 = 0;

/// The rules derived from a tenancy.
#[derive(Debug)]
pub(crate) struct AccessRules {
    assignments: Assignments,
    tenants: Vec<TenantOptions>,
    /// The names of the tenants, then that of hosts without a tenant.
    names: Vec<Arc<str>>,
    others: Others,
    /// Namespaces for which a host may have a different tenant than for the rest.
    assigned: BTreeSet<u32>,
    /// Networks from which hosts may connect, by host name; only for hosts with such a restriction.
    origins: BTreeMap<String, BTreeSet<IpNet>>,
}

impl TenantOptions {
    /// Returns true if hosts can belong to this tenant in a namespace.
    fn is_in(&self, subsystem: &str, nsid: u32) -> bool {
        let subsystems = &self.subsystems;
        let here = subsystems.is_empty() || subsystems.iter().any(|name| name == subsystem);
        here && (self.namespaces.is_empty() || self.namespaces.contains(&nsid))
    }
}

impl Default for AccessRules {
    fn default() -> Self {
        Self::new(&Tenancy::default()).expect("nothing is said that could be wrong")
    }
}

impl AccessRules {
    /// Creates the rules of a tenancy.
    ///
    /// # Errors
    /// [`TargetError::Invalid`]: a contradiction, a number out of range, or too many of something.
    pub(crate) fn new(tenancy: &Tenancy) -> Result<Self, TargetError> {
        let mut assignments = Vec::new();
        let mut names = BTreeSet::new();
        let mut assigned = BTreeSet::new();
        let mut origins: BTreeMap<String, BTreeSet<IpNet>> = BTreeMap::new();
        for (tenant, id) in tenancy.tenants.iter().zip(0..) {
            let named = |error: AccessError| invalid(&tenant.name, &error.to_string());
            check(tenant).map_err(named)?;
            if !names.insert(&tenant.name) {
                return Err(invalid(&tenant.name, "two tenants have this name"));
            }
            for &namespace in &tenant.namespaces {
                if !(1..=NAMESPACES_MAX).contains(&namespace) {
                    let reason = format!(
                        "namespace ID {namespace} is out of range; use 1 to \
                        {NAMESPACES_MAX}"
                    );
                    return Err(invalid(&tenant.name, &reason));
                }
            }
            assignments.extend(patterns(tenant, TenantId(id)));
            assigned.extend(&tenant.namespaces);
            if tenant.networks.is_empty() {
                continue;
            }
            if tenant.hosts.is_empty() {
                return Err(invalid(
                    &tenant.name,
                    "it has networks, but no hosts; add host NQNs, or remove the networks",
                ));
            }
            for host in &tenant.hosts {
                origins
                    .entry(host.clone())
                    .or_default()
                    .extend(&tenant.networks);
            }
        }
        let names = tenancy.tenants.iter().map(|tenant| tenant.name.as_str());
        let names: Vec<_> = names.chain([DEFAULT_TENANT]).map(Arc::from).collect();
        let count = tenancy.tenants.len();
        let others = TenantId(u32::try_from(count).expect("fewer tenants than memory"));
        let default = (tenancy.others == Others::Serve).then_some(others);
        let assignments = Assignments::new(assignments, default)
            .map_err(|error| TargetError::Invalid(format!("tenants: {error}")))?;
        Ok(Self {
            assignments,
            tenants: tenancy.tenants.clone(),
            names,
            others: tenancy.others,
            assigned,
            origins,
        })
    }

    /// Returns true if a host that connects from an address has a tenant in a subsystem.
    pub(crate) fn admit(&self, host: &str, from: IpAddr, subsystem: &str) -> bool {
        self.may_use_name(host, from) && self.assignments.admits(host, subsystem)
    }

    /// Returns true if a host at an address may use this name.
    pub(crate) fn may_use_name(&self, host: &str, from: IpAddr) -> bool {
        // A socket for both families reports IPv4 addresses as mapped addresses.
        let from = from.to_canonical();
        let origins = self.origins.get(host);
        origins.is_none_or(|origins| origins.iter().any(|network| network.contains(&from)))
    }

    /// Returns the decision on a host that connects from an address to a subsystem. Control path:
    /// allocates.
    pub(crate) fn decide(&self, host: &str, from: IpAddr, subsystem: &str) -> AccessDecision {
        let tenants = self.tenants(host, subsystem);
        if tenants.is_empty() || !self.may_use_name(host, from) {
            return AccessDecision::Refused;
        }
        let mut namespaces = self.assigned.clone();
        for &tenant in &tenants {
            let grants = self.grants(tenant).into_iter().flatten();
            namespaces.extend(grants.filter_map(|granted| granted.grant.namespace));
        }
        let unnamed = self.permissions(host, subsystem, UNNAMED);
        let named: Vec<_> = namespaces
            .into_iter()
            .map(|namespace| (namespace, self.permissions(host, subsystem, namespace)))
            .filter(|(_, permissions)| *permissions != unnamed)
            .collect();
        if named.is_empty() && unnamed == Permissions::all() {
            return AccessDecision::Everything;
        }
        AccessDecision::Limited(Arc::new(Rights { named, unnamed }))
    }

    /// Returns the tenants of a host in a subsystem, over all namespaces.
    fn tenants(&self, host: &str, subsystem: &str) -> BTreeSet<TenantId> {
        let namespaces = self.assigned.iter().chain([&UNNAMED]);
        namespaces
            .filter_map(|&namespace| self.assignments.tenant(host, subsystem, namespace))
            .collect()
    }

    /// Returns the proofs of its name that a host has to give in a subsystem.
    pub(crate) fn required(&self, host: &str, subsystem: &str) -> Authentication {
        let tenants = self.tenants(host, subsystem).into_iter();
        let tenants = tenants.filter_map(|tenant| self.tenants.get(tenant.0 as usize));
        tenants.fold(Authentication::default(), |all, tenant| {
            all.and(tenant.authentication)
        })
    }

    fn grants(&self, tenant: TenantId) -> Option<&[TenantGrant]> {
        self.tenants.get(tenant.0 as usize)?.grants.as_deref()
    }

    /// Returns the tenants of a host in a subsystem, by namespace. Control path: allocates.
    pub(crate) fn host_tenants(&self, host: &str, subsystem: &str) -> HostTenants {
        let name = |namespace| {
            let tenant = self.assignments.tenant(host, subsystem, namespace)?;
            self.names.get(tenant.0 as usize).cloned()
        };
        let unnamed = name(UNNAMED);
        let named = self.assigned.iter().map(|&nsid| (nsid, name(nsid)));
        HostTenants {
            named: named.filter(|(_, name)| *name != unnamed).collect(),
            unnamed,
        }
    }

    /// Returns the declarations of all tenants that can have hosts in one of these namespaces.
    pub(crate) fn declared(&self, namespaces: &[(String, u32)]) -> BTreeMap<String, Declaration> {
        let tenants = self.tenants.iter().filter(|tenant| {
            let mut namespaces = namespaces.iter();
            namespaces.any(|(subsystem, nsid)| tenant.is_in(subsystem, *nsid))
        });
        tenants
            .map(|tenant| (tenant.name.clone(), tenant.declaration))
            .collect()
    }

    /// Returns true if these rules differ only in SLOs and weights.
    pub(crate) fn same_but_for_promises(&self, other: &Self) -> bool {
        let plain = |tenant: &TenantOptions| TenantOptions {
            declaration: Declaration::default(),
            ..tenant.clone()
        };
        self.others == other.others
            && self.tenants.len() == other.tenants.len()
            && self
                .tenants
                .iter()
                .zip(&other.tenants)
                .all(|(a, b)| plain(a) == plain(b))
    }

    fn permissions(&self, host: &str, subsystem: &str, namespace: u32) -> Permissions {
        let Some(tenant) = self.assignments.tenant(host, subsystem, namespace) else {
            return Permissions::default();
        };
        let Some(grants) = self.grants(tenant) else {
            return Permissions::all();
        };
        let here = |granted: &&TenantGrant| {
            let other = granted.subsystem.as_deref();
            other.is_none_or(|name| name == subsystem)
        };
        let grants: Vec<_> = grants.iter().filter(here).map(|g| g.grant).collect();
        Permissions::new(&grants, namespace).expect("checked when the rules were made")
    }
}

fn invalid(tenant: &str, reason: &str) -> TargetError {
    TargetError::Invalid(format!("tenant {tenant:?}: {reason}"))
}

/// Checks a tenant's grants.
fn check(tenant: &TenantOptions) -> Result<(), AccessError> {
    let grants = tenant.grants.iter().flatten();
    let grants: Vec<_> = grants.map(|granted| granted.grant).collect();
    Permissions::new(&grants, UNNAMED).map(drop)
}

/// Returns the assignments of a tenant: each of its hosts in each of its subsystems and namespaces.
fn patterns(tenant: &TenantOptions, id: TenantId) -> impl Iterator<Item = Assignment> {
    fn each<T: Clone>(all: &[T]) -> Vec<Option<T>> {
        if all.is_empty() {
            return vec![None];
        }
        all.iter().cloned().map(Some).collect()
    }
    let (subsystems, namespaces) = (each(&tenant.subsystems), each(&tenant.namespaces));
    each(&tenant.hosts).into_iter().flat_map(move |host| {
        let namespaces = namespaces.clone();
        subsystems.clone().into_iter().flat_map(move |subsystem| {
            let host = host.clone();
            namespaces
                .clone()
                .into_iter()
                .map(move |namespace| Assignment {
                    host: host.clone(),
                    subsystem: subsystem.clone(),
                    namespace,
                    tenant: id,
                })
        })
    })
}

/// Decision of the rules on one host in one subsystem.
#[derive(Clone, Debug)]
pub(crate) enum AccessDecision {
    /// The host may not connect.
    Refused,
    /// The host has all rights: no command needs a check.
    Everything,
    /// Commands are checked.
    Limited(Arc<Rights>),
}

impl AccessDecision {
    /// Returns the rights that the commands of a queue are checked against; `None` for no checks.
    pub(crate) fn rights(self) -> Option<Arc<Rights>> {
        match self {
            Self::Refused => Some(Arc::default()),
            Self::Everything => None,
            Self::Limited(rights) => Some(rights),
        }
    }
}

/// Tenants of a host in a subsystem; by default, none.
#[derive(Debug, Default)]
pub(crate) struct HostTenants {
    /// Tenant by namespace, in order, for namespaces that differ from the rest.
    named: Vec<(u32, Option<Arc<str>>)>,
    unnamed: Option<Arc<str>>,
}

impl HostTenants {
    /// Returns the tenant that the host's holdings on a core are charged to, if any: the tenant in
    /// most namespaces, or else in the first one.
    pub(crate) fn held_to_account(&self) -> Option<&Arc<str>> {
        let named = self.named.iter().filter_map(|(_, name)| name.as_ref());
        let mut tenants = self.unnamed.iter().chain(named);
        tenants.find(|name| ***name != *DEFAULT_TENANT)
    }

    /// Returns the tenant in a namespace.
    pub(crate) fn tenant(&self, namespace: u32) -> Option<&str> {
        let found = self.named.binary_search_by_key(&namespace, |named| named.0);
        let name = found.map_or(&self.unnamed, |at| &self.named[at].1);
        name.as_deref()
    }
}

/// Rights of a host in a subsystem; by default, none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    /// Permissions by namespace, in order, for namespaces that differ from the rest.
    named: Vec<(u32, Permissions)>,
    unnamed: Permissions,
}

impl Rights {
    /// Checks every block that a command accesses.
    ///
    /// # Errors
    /// Access Denied. `[NVMe Base 2.0 §3.3.3.2.1]`
    #[inline]
    pub(crate) fn check(
        &self,
        namespace: u32,
        need: Need,
        first: u64,
        blocks: u64,
    ) -> Result<(), Status> {
        let permissions = self.of(namespace);
        permissions
            .check(need, first, blocks)
            .map_err(|_| Status::ACCESS_DENIED.with_dnr())
    }

    /// Checks a command without blocks (Flush), which is allowed if any other command is.
    ///
    /// # Errors
    /// Access Denied.
    pub(crate) fn check_any(&self, namespace: u32) -> Result<(), Status> {
        if *self.of(namespace) == Permissions::default() {
            return Err(Status::ACCESS_DENIED.with_dnr());
        }
        Ok(())
    }

    #[inline]
    fn of(&self, namespace: u32) -> &Permissions {
        let found = self.named.binary_search_by_key(&namespace, |named| named.0);
        found.map_or(&self.unnamed, |at| &self.named[at].1)
    }
}

#[cfg(test)]
mod tests;
