//! Whose a host's requests are, and which blocks they may touch. `[ReFlex §3.1, §4.1]`
//!
//! A control plane says it as a [`Tenancy`], by names. [`Rules`] are what that comes to: all cores
//! share them, and they never change; another tenancy makes others. They are asked once for each
//! controller, and the answer, its host's [`Rights`], stays with every queue of it, so that a
//! command is checked without a lock and without a name. A queue that may do everything has none,
//! and its commands pass unchecked.
//!
//! Must never: let a command touch one block that is not granted, or tell a host more by a refusal
//! than that it is one.

use crate::error::TargetError;
use crate::limits::NAMESPACES_MAX;
use ipnet::IpNet;
use qos::access::{AccessError, AccessGrant, Assignment, Need};
use qos::{Assignments, Declaration, Permissions, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use wire::nvme::Status;

/// Who hosts are. Without tenants, and with others served, everybody may do everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenancy {
    /// The tenants. Where a host is several, the most particular one counts: one that names its
    /// host before one that names the subsystem, and that before one that names the namespace.
    pub tenants: Vec<TenantOptions>,
    /// Those who are none of these.
    pub others: Others,
}

/// What becomes of hosts that are no tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Others {
    /// They may do everything.
    #[default]
    Serve,
    /// They may not connect.
    Refuse,
}

/// One tenant. What names nothing matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantOptions {
    /// What it is called; no two have the same name.
    pub name: String,
    /// The NQNs of its hosts.
    pub hosts: Vec<String>,
    /// From where these connect, and nobody else by their names, in whatever subsystem: an NQN is
    /// what a host says of itself. Without any, from anywhere, unless another tenant that names the
    /// host says from where.
    pub networks: Vec<IpNet>,
    /// The subsystems in which they are this tenant.
    pub subsystems: Vec<String>,
    /// The namespaces in which they are, 1 to 1024.
    pub namespaces: Vec<u32>,
    /// What it may do, and nothing else; `None` lets it do everything.
    pub grants: Option<Vec<TenantGrant>>,
    /// What it is promised on each device of which it uses a namespace that is scheduled
    /// ([`NamespaceOptions::qos`](crate::NamespaceOptions::qos)).
    pub declaration: Declaration,
}

/// The tenant of hosts that are no other, and of those that have no account on a device. It shares
/// what is left with the weight of one that names none, unless a tenant of this name says otherwise.
pub const DEFAULT_TENANT: &str = "default";

/// Blocks that a tenant may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantGrant {
    /// The subsystem; `None` for every one.
    pub subsystem: Option<String>,
    /// The namespace in it, the blocks, and what may be done with them.
    pub grant: AccessGrant,
}

/// Stands for the namespaces that nothing names: no namespace is called so.
const UNNAMED: u32 = 0;

/// A tenancy that is in force.
#[derive(Debug)]
pub(crate) struct Rules {
    assignments: Assignments,
    tenants: Vec<TenantOptions>,
    /// Of the tenants, and last of the others.
    names: Vec<Arc<str>>,
    others: Others,
    /// Namespaces for which a host may be another tenant than for the rest.
    assigned: BTreeSet<u32>,
    /// From where hosts connect, by their names, where that is said.
    origins: BTreeMap<String, BTreeSet<IpNet>>,
}

impl TenantOptions {
    /// Whether anybody is this tenant in a namespace.
    fn is_in(&self, subsystem: &str, nsid: u32) -> bool {
        let subsystems = &self.subsystems;
        let here = subsystems.is_empty() || subsystems.iter().any(|name| name == subsystem);
        here && (self.namespaces.is_empty() || self.namespaces.contains(&nsid))
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::new(&Tenancy::default()).expect("nothing is said that could be wrong")
    }
}

impl Rules {
    /// The rules that a tenancy comes to.
    ///
    /// # Errors
    /// [`TargetError::Invalid`]: a contradiction, a number out of range, or too much of something.
    pub(crate) fn new(tenancy: &Tenancy) -> Result<Self, TargetError> {
        let mut assignments = Vec::new();
        let mut names = BTreeSet::new();
        let mut assigned = BTreeSet::new();
        let mut origins: BTreeMap<String, BTreeSet<IpNet>> = BTreeMap::new();
        for (tenant, id) in tenancy.tenants.iter().zip(0..) {
            let named = |error: AccessError| invalid(&tenant.name, &error.to_string());
            check(tenant).map_err(named)?;
            if !names.insert(&tenant.name) {
                return Err(invalid(&tenant.name, "there are two of this name"));
            }
            for &namespace in &tenant.namespaces {
                if !(1..=NAMESPACES_MAX).contains(&namespace) {
                    let reason = format!("a namespace is 1 to {NAMESPACES_MAX}, not {namespace}");
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
                    "networks are of hosts, and it names none",
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

    /// Whether a host that connects from an address is anybody in a subsystem.
    pub(crate) fn admit(&self, host: &str, from: IpAddr, subsystem: &str) -> bool {
        self.believe(host, from) && !self.tenants(host, subsystem).is_empty()
    }

    /// Whether somebody at an address may call himself by a host's name.
    pub(crate) fn believe(&self, host: &str, from: IpAddr) -> bool {
        // A socket for both families shows IPv4 as mapped addresses.
        let from = from.to_canonical();
        let origins = self.origins.get(host);
        origins.is_none_or(|origins| origins.iter().any(|network| network.contains(&from)))
    }

    /// What a host that connects from an address may do in a subsystem. Control path: allocates.
    pub(crate) fn pass(&self, host: &str, from: IpAddr, subsystem: &str) -> Pass {
        let tenants = self.tenants(host, subsystem);
        if tenants.is_empty() || !self.believe(host, from) {
            return Pass::Refused;
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
            return Pass::Everything;
        }
        Pass::Limited(Arc::new(Rights { named, unnamed }))
    }

    /// Who a host is in a subsystem, whichever the namespace.
    fn tenants(&self, host: &str, subsystem: &str) -> BTreeSet<TenantId> {
        let namespaces = self.assigned.iter().chain([&UNNAMED]);
        namespaces
            .filter_map(|&namespace| self.assignments.tenant(host, subsystem, namespace))
            .collect()
    }

    fn grants(&self, tenant: TenantId) -> Option<&[TenantGrant]> {
        self.tenants.get(tenant.0 as usize)?.grants.as_deref()
    }

    /// Which tenant a host's requests are in a subsystem. Control path: allocates.
    pub(crate) fn whom(&self, host: &str, subsystem: &str) -> Whom {
        let name = |namespace| {
            let tenant = self.assignments.tenant(host, subsystem, namespace)?;
            self.names.get(tenant.0 as usize).cloned()
        };
        let unnamed = name(UNNAMED);
        let named = self.assigned.iter().map(|&nsid| (nsid, name(nsid)));
        Whom {
            named: named.filter(|(_, name)| *name != unnamed).collect(),
            unnamed,
        }
    }

    /// What is declared by those who can be somebody in one of these namespaces.
    pub(crate) fn declared(&self, namespaces: &[(String, u32)]) -> BTreeMap<String, Declaration> {
        let tenants = self.tenants.iter().filter(|tenant| {
            let mut namespaces = namespaces.iter();
            namespaces.any(|(subsystem, nsid)| tenant.is_in(subsystem, *nsid))
        });
        tenants
            .map(|tenant| (tenant.name.clone(), tenant.declaration))
            .collect()
    }

    /// Whether these rules say the same of every host but what it is promised.
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

/// Whether a tenant's grants mean something.
fn check(tenant: &TenantOptions) -> Result<(), AccessError> {
    let grants = tenant.grants.iter().flatten();
    let grants: Vec<_> = grants.map(|granted| granted.grant).collect();
    Permissions::new(&grants, UNNAMED).map(drop)
}

/// Whom a tenant matches: each of its hosts in each of its subsystems and namespaces.
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

/// What rules come to for one host in one subsystem.
#[derive(Clone, Debug)]
pub(crate) enum Pass {
    /// It may not connect.
    Refused,
    /// Nothing needs to be checked.
    Everything,
    /// Commands are checked.
    Limited(Arc<Rights>),
}

impl Pass {
    /// What the commands of a queue are checked against, if they are.
    pub(crate) fn rights(self) -> Option<Arc<Rights>> {
        match self {
            Self::Refused => Some(Arc::default()),
            Self::Everything => None,
            Self::Limited(rights) => Some(rights),
        }
    }
}

/// Which tenant a host is in a subsystem; by default, nobody.
#[derive(Debug, Default)]
pub(crate) struct Whom {
    /// By namespace, in order: those that differ from the rest.
    named: Vec<(u32, Option<Arc<str>>)>,
    unnamed: Option<Arc<str>>,
}

impl Whom {
    /// The tenants in the namespaces that differ from the rest, in order.
    pub(crate) fn named(&self) -> impl Iterator<Item = (u32, Option<&Arc<str>>)> {
        let named = self.named.iter();
        named.map(|(namespace, name)| (*namespace, name.as_ref()))
    }

    /// The tenant in the rest.
    pub(crate) const fn unnamed(&self) -> Option<&Arc<str>> {
        self.unnamed.as_ref()
    }

    /// The tenant whose share of a core it counts for what the host holds, if it is one: that in
    /// most namespaces, or else in the first.
    pub(crate) fn held_to_account(&self) -> Option<&Arc<str>> {
        let named = self.named.iter().filter_map(|(_, name)| name.as_ref());
        let mut tenants = self.unnamed.iter().chain(named);
        tenants.find(|name| ***name != *DEFAULT_TENANT)
    }

    /// Whether it is this tenant in any namespace.
    pub(crate) fn is(&self, tenant: &str) -> bool {
        let mut all = self.named().map(|(_, name)| name).chain([self.unnamed()]);
        all.any(|name| name.is_some_and(|name| **name == *tenant))
    }

    /// The tenant in a namespace.
    pub(crate) fn tenant(&self, namespace: u32) -> Option<&str> {
        let found = self.named.binary_search_by_key(&namespace, |named| named.0);
        let name = found.map_or(&self.unnamed, |at| &self.named[at].1);
        name.as_deref()
    }
}

/// What a host may do in a subsystem; by default, nothing.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    /// By namespace, in order: those that differ from the rest.
    named: Vec<(u32, Permissions)>,
    unnamed: Permissions,
}

impl Rights {
    /// Checks every block that a command names.
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

    /// Whether a command without blocks (Flush) may be, which is where any other may.
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
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const A: &str = "nqn.2026-11.io.example:a";
    const B: &str = "nqn.2026-11.io.example:b";
    const HOST: &str = "nqn.2026-11.io.example:host";
    const OTHER: &str = "nqn.2026-11.io.example:other";

    fn tenant(name: &str, hosts: &[&str]) -> TenantOptions {
        TenantOptions {
            name: name.to_owned(),
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            ..TenantOptions::default()
        }
    }

    fn grant(subsystem: Option<&str>, namespace: Option<u32>, write: bool) -> TenantGrant {
        TenantGrant {
            subsystem: subsystem.map(str::to_owned),
            grant: AccessGrant {
                namespace,
                range: Some((0, 10)),
                read: true,
                write,
            },
        }
    }

    fn rules(tenants: Vec<TenantOptions>, others: Others) -> Rules {
        Rules::new(&Tenancy { tenants, others }).expect("a good tenancy")
    }

    fn limited(pass: Pass) -> Arc<Rights> {
        match pass {
            Pass::Limited(rights) => rights,
            other => panic!("{other:?}"),
        }
    }

    fn may(rights: &Rights, namespace: u32, need: Need, first: u64, blocks: u64) -> bool {
        rights.check(namespace, need, first, blocks).is_ok()
    }

    #[test]
    fn without_rules_nothing_is_checked() {
        let rules = Rules::default();
        assert!(rules.admit(HOST, HERE, A));
        assert!(matches!(rules.pass(HOST, HERE, A), Pass::Everything));
        assert!(rules.pass(HOST, HERE, A).rights().is_none());
    }

    #[test]
    fn who_is_no_tenant_is_served_or_refused() {
        let mut only_in_b = tenant("t", &[HOST]);
        only_in_b.subsystems.push(B.to_owned());
        let open = rules(vec![only_in_b.clone()], Others::Serve);
        assert!(matches!(open.pass(OTHER, HERE, A), Pass::Everything));
        let strict = rules(vec![only_in_b], Others::Refuse);
        assert!(matches!(strict.pass(HOST, HERE, B), Pass::Everything));
        for (host, subsystem) in [(HOST, A), (OTHER, A), (OTHER, B)] {
            assert!(!strict.admit(host, HERE, subsystem));
            let rights = strict
                .pass(host, HERE, subsystem)
                .rights()
                .expect("it is checked");
            assert!(!may(&rights, 1, Need::Read, 0, 1));
            assert!(rights.check_any(1).is_err());
        }
    }

    #[test]
    fn grants_hold_where_they_say() {
        let mut some = tenant("t", &[HOST]);
        some.grants = Some(vec![
            grant(Some(A), Some(2), true),
            grant(None, Some(3), false),
        ]);
        let rules = rules(vec![some], Others::Serve);
        let (a, b) = (
            limited(rules.pass(HOST, HERE, A)),
            limited(rules.pass(HOST, HERE, B)),
        );
        assert!(may(&a, 2, Need::Write, 0, 10));
        assert!(!may(&a, 2, Need::Write, 0, 11));
        assert!(!may(&b, 2, Need::Read, 0, 1));
        for rights in [a, b] {
            assert!(may(&rights, 3, Need::Read, 9, 1));
            assert!(!may(&rights, 3, Need::Write, 9, 1));
            assert!(!may(&rights, 1, Need::Read, 0, 1));
            assert!(rights.check_any(3).is_ok() && rights.check_any(1).is_err());
        }
    }

    #[test]
    fn a_host_can_be_another_tenant_in_a_namespace() {
        let mut reader = tenant("reader", &[HOST]);
        reader.namespaces.push(5);
        reader.grants = Some(vec![grant(None, None, false)]);
        let rules = rules(vec![reader], Others::Refuse);
        let rights = limited(rules.pass(HOST, HERE, A));
        assert!(may(&rights, 5, Need::Read, 0, 10));
        assert!(!may(&rights, 5, Need::Write, 0, 10));
        assert!(!may(&rights, 4, Need::Read, 0, 10));
    }

    #[test]
    fn each_namespace_has_its_tenant_and_each_device_those_who_use_it() {
        let mut scratch = tenant("scratch", &[HOST]);
        scratch.subsystems.push(A.to_owned());
        scratch.namespaces.push(5);
        let rules = rules(vec![tenant("all", &[HOST]), scratch], Others::Serve);
        let whom = rules.whom(HOST, A);
        assert_eq!(
            (whom.tenant(5), whom.tenant(1)),
            (Some("scratch"), Some("all"))
        );
        assert_eq!(rules.whom(HOST, B).tenant(5), Some("all"));
        assert_eq!(rules.whom(OTHER, A).tenant(5), Some(DEFAULT_TENANT));
        let on = |subsystem: &str, nsid| {
            let declared = rules.declared(&[(subsystem.to_owned(), nsid)]);
            declared.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(on(A, 5), ["all", "scratch"]);
        assert_eq!(on(A, 1), ["all"]);
        assert_eq!(on(B, 5), ["all"]);
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        let error = |tenants: Vec<TenantOptions>| {
            let tenancy = Tenancy {
                tenants,
                others: Others::Serve,
            };
            Rules::new(&tenancy).expect_err("bad").to_string()
        };
        let mut beyond = tenant("beyond", &[]);
        beyond.namespaces.push(NAMESPACES_MAX + 1);
        assert!(error(vec![beyond]).starts_with("tenant \"beyond\": a namespace is 1 to 1024"));
        let mut empty = tenant("empty", &[]);
        let mut nothing = grant(None, None, true);
        nothing.grant.range = Some((5, 0));
        empty.grants = Some(vec![nothing]);
        assert!(error(vec![empty]).contains("grant 0 has no blocks"));
        let twice = error(vec![tenant("one", &[HOST]), tenant("two", &[HOST])]);
        assert!(twice.starts_with("tenants: both"), "{twice}");
        let same = error(vec![tenant("one", &[HOST]), tenant("one", &[OTHER])]);
        assert!(same.starts_with("tenant \"one\": there are two"), "{same}");
    }

    #[test]
    fn a_name_is_believed_from_its_networks_only() {
        let network = |text: &str| text.parse::<IpNet>().expect("a network");
        let bound = TenantOptions {
            networks: vec![network("127.0.0.0/8"), network("2001:db8::/32")],
            ..tenant("bound", &[HOST])
        };
        // Of the same host elsewhere; what is said of it once holds everywhere.
        let elsewhere = TenantOptions {
            subsystems: vec![B.to_owned()],
            ..tenant("elsewhere", &[HOST])
        };
        let tenants = vec![bound.clone(), elsewhere, tenant("free", &[OTHER])];
        let rules = rules(tenants, Others::Serve);
        for (host, from, believed) in [
            (HOST, "127.0.0.1", true),
            (HOST, "127.255.255.255", true),
            (HOST, "::ffff:127.0.0.1", true),
            (HOST, "2001:db8:ffff::1", true),
            (HOST, "128.0.0.1", false),
            (HOST, "2001:db9::1", false),
            (HOST, "::1", false),
            (OTHER, "128.0.0.1", true),
            ("nqn.2026-11.io.example:stranger", "128.0.0.1", true),
        ] {
            let from = from.parse().expect("an address");
            for subsystem in [A, B] {
                assert_eq!(
                    rules.admit(host, from, subsystem),
                    believed,
                    "{host} from {from}"
                );
                let refused = matches!(rules.pass(host, from, subsystem), Pass::Refused);
                assert_eq!(refused, !believed, "{host} from {from}");
            }
        }
        let nobody = TenantOptions {
            hosts: Vec::new(),
            subsystems: vec![A.to_owned()],
            ..bound
        };
        let tenancy = Tenancy {
            tenants: vec![nobody],
            ..Tenancy::default()
        };
        assert!(matches!(Rules::new(&tenancy), Err(TargetError::Invalid(_))));
    }
}
