//! Access control: the tenant of a connection, and the blocks that it may read and write. `[ReFlex
//! §3.1, §4.1]`
//!
//! [`Assignments`] map (host NQN, subsystem, namespace) to a tenant, the default tenant, or none,
//! when a host connects. [`Permissions`] check the whole range of every command. Both are
//! immutable; a change of the configuration creates new ones. Invariant: every block of an accepted
//! range is granted, also in case of an overflow.

use crate::limits::{ASSIGNMENTS_MAX, GRANTS_MAX};
use crate::slo::TenantId;
use base::mutation::{self, Mutation};
use std::collections::BTreeMap;

/// Assigns a tenant to every connection that matches; an omitted field matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The host's NQN.
    pub host: Option<String>,
    /// The subsystem's NQN.
    pub subsystem: Option<String>,
    /// The namespace within it.
    pub namespace: Option<u32>,
    /// The tenant that is assigned.
    pub tenant: TenantId,
}

/// Why a rule of access control is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Too many assignments.
    #[error("{0} assignments; use at most {ASSIGNMENTS_MAX}")]
    Assignments(usize),
    /// Two tenants for the same host, subsystem and namespace.
    #[error(
        "{0} and {1} are both assigned to the same host, subsystem and namespace; use only one"
    )]
    Ambiguous(TenantId, TenantId),
    /// Too many grants.
    #[error("{0} grants; use at most {GRANTS_MAX}")]
    Grants(usize),
    /// A range of 0 blocks.
    #[error("grant {0} has 0 blocks; use at least one, or omit the number for all")]
    Empty(usize),
    /// A range beyond block 2^64.
    #[error("grant {0} exceeds block 2^64; use fewer blocks")]
    TooFar(usize),
    /// A grant without read and write access.
    #[error("grant {0} allows neither reading nor writing; omit it")]
    Nothing(usize),
}

/// Values of some names, and one for all.
#[derive(Clone, Debug, Default)]
struct ByName<T> {
    named: BTreeMap<String, T>,
    any: T,
}

impl<T: Default> ByName<T> {
    /// Returns the values of a name, the more particular first.
    fn of(&self, name: &str) -> impl Iterator<Item = &T> {
        self.named.get(name).into_iter().chain([&self.any])
    }

    fn entry(&mut self, name: Option<String>) -> &mut T {
        match name {
            Some(name) => self.named.entry(name).or_default(),
            None => &mut self.any,
        }
    }
}

/// The map from a connection to its tenant.
#[derive(Clone, Debug, Default)]
pub struct Assignments {
    /// Tenants by host, subsystem and namespace. A host is more specific than a subsystem, and a
    /// subsystem more specific than a namespace.
    rules: ByName<ByName<BTreeMap<Option<u32>, TenantId>>>,
    default: Option<TenantId>,
}

impl Assignments {
    /// Creates assignments. `default` is the tenant of all other connections; `None` refuses them.
    ///
    /// # Errors
    /// Too many assignments, or two that contradict each other.
    pub fn new(
        assignments: Vec<Assignment>,
        default: Option<TenantId>,
    ) -> Result<Self, AccessError> {
        if assignments.len() > ASSIGNMENTS_MAX {
            return Err(AccessError::Assignments(assignments.len()));
        }
        let mut rules = ByName::<ByName<BTreeMap<_, _>>>::default();
        for Assignment {
            host,
            subsystem,
            namespace,
            tenant,
        } in assignments
        {
            let by_namespace = rules.entry(host).entry(subsystem);
            let before = by_namespace.insert(namespace, tenant);
            if let Some(before) = before.filter(|&before| before != tenant) {
                return Err(AccessError::Ambiguous(before, tenant));
            }
        }
        Ok(Self { rules, default })
    }

    /// The tenant of a host's requests to a namespace; `None`: refused. The most specific
    /// assignment wins.
    #[must_use]
    pub fn tenant(&self, host: &str, subsystem: &str, namespace: u32) -> Option<TenantId> {
        let mut rules = self.rules_of(host, subsystem);
        let assigned = rules.find_map(|rules| {
            let particular = rules.get(&Some(namespace));
            particular.or_else(|| rules.get(&None))
        });
        assigned.copied().or(self.default)
    }

    /// Returns true if a host has a tenant for some namespace of a subsystem. The number of
    /// namespaces that rules name does not matter.
    #[must_use]
    pub fn admits(&self, host: &str, subsystem: &str) -> bool {
        let mut rules = self.rules_of(host, subsystem);
        self.default.is_some() || rules.any(|rules| !rules.is_empty())
    }

    fn rules_of(
        &self,
        host: &str,
        subsystem: &str,
    ) -> impl Iterator<Item = &BTreeMap<Option<u32>, TenantId>> {
        let hosts = self.rules.of(host);
        hosts.flat_map(move |rules| rules.of(subsystem))
    }
}

/// The access that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Read, Compare, Verify.
    Read,
    /// Write, Write Zeroes, Deallocate.
    Write,
}

/// Blocks that a tenant may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessGrant {
    /// The namespace; `None` for every one.
    pub namespace: Option<u32>,
    /// First block and number of blocks; `None` for all.
    pub range: Option<(u64, u64)>,
    /// The blocks may be read.
    pub read: bool,
    /// The blocks may be written.
    pub write: bool,
}

/// A command without permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tenant may not access all of these blocks")]
pub struct Denied;

/// Ranges that neither touch nor overlap, in order: first block, last block.
type Ranges = Vec<(u64, u64)>;

/// Permissions of a tenant in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    read: Ranges,
    write: Ranges,
}

impl Permissions {
    /// Permits everything.
    #[must_use]
    pub fn all() -> Self {
        let all = vec![(0, u64::MAX)];
        Self {
            read: all.clone(),
            write: all,
        }
    }

    /// Creates the permissions in a namespace: the union of its grants.
    ///
    /// # Errors
    /// Too many grants, or an invalid one (of any namespace).
    pub fn new(grants: &[AccessGrant], namespace: u32) -> Result<Self, AccessError> {
        if grants.len() > GRANTS_MAX {
            return Err(AccessError::Grants(grants.len()));
        }
        let mut permissions = Self::default();
        for (at, grant) in grants.iter().enumerate() {
            if !(grant.read || grant.write) {
                return Err(AccessError::Nothing(at));
            }
            let (first, last) = match grant.range {
                None => (0, u64::MAX),
                Some((_, 0)) => return Err(AccessError::Empty(at)),
                Some((first, blocks)) => {
                    let last = first.checked_add(blocks - 1);
                    (first, last.ok_or(AccessError::TooFar(at))?)
                }
            };
            if grant.namespace.is_some_and(|granted| granted != namespace) {
                continue;
            }
            if grant.read {
                permissions.read.push((first, last));
            }
            if grant.write {
                permissions.write.push((first, last));
            }
        }
        merge(&mut permissions.read);
        merge(&mut permissions.write);
        Ok(permissions)
    }

    /// Checks all blocks of a command. Commands without a range (Flush) need no check.
    ///
    /// # Errors
    /// A block that is not granted, an empty range, or an overflow.
    #[inline]
    pub fn check(&self, need: Need, first: u64, blocks: u64) -> Result<(), Denied> {
        let last = blocks
            .checked_sub(1)
            .and_then(|more| first.checked_add(more))
            .ok_or(Denied)?;
        let ranges = match need {
            Need::Read => &self.read,
            Need::Write => &self.write,
        };
        let beyond = u64::from(mutation::active(Mutation::RangeOffByOne));
        let after = ranges.partition_point(|&(start, _)| start <= first);
        let holding = after.checked_sub(1).map(|at| ranges[at]);
        holding
            .filter(|&(_, end)| last <= end.saturating_add(beyond))
            .map(|_| ())
            .ok_or(Denied)
    }
}

/// Sorts ranges, and joins those that touch or overlap.
fn merge(ranges: &mut Ranges) {
    ranges.sort_unstable();
    ranges.dedup_by(|later, earlier| {
        let joins = later.0 <= earlier.1.saturating_add(1);
        if joins {
            earlier.1 = earlier.1.max(later.1);
        }
        joins
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grant(range: Option<(u64, u64)>, read: bool, write: bool) -> AccessGrant {
        AccessGrant {
            namespace: None,
            range,
            read,
            write,
        }
    }

    /// The ancestor checked the first block of a command alone.
    #[test]
    fn a_range_whose_last_block_is_out_of_bounds_is_refused() {
        let permissions = Permissions::new(&[grant(Some((100, 50)), true, false)], 1).unwrap();
        let read = |first, blocks| permissions.check(Need::Read, first, blocks);
        assert_eq!(read(100, 50), Ok(()));
        assert_eq!(read(149, 1), Ok(()));
        assert_eq!(read(149, 2), Err(Denied));
        assert_eq!(read(100, 51), Err(Denied));
        assert_eq!(read(99, 2), Err(Denied));
        assert_eq!(read(100, u64::MAX), Err(Denied));
        assert_eq!(read(u64::MAX, 2), Err(Denied), "it wraps to block 0");
        assert_eq!(read(100, 0), Err(Denied));
        assert_eq!(permissions.check(Need::Write, 100, 1), Err(Denied));
        let all = Permissions::all();
        assert_eq!(all.check(Need::Write, u64::MAX, 1), Ok(()));
        assert_eq!(all.check(Need::Write, u64::MAX, 2), Err(Denied));
    }

    #[test]
    fn grants_are_of_a_namespace_and_add_up() {
        let one = AccessGrant {
            namespace: Some(1),
            ..grant(Some((0, 10)), true, true)
        };
        let more = grant(Some((10, 10)), true, false);
        let first = Permissions::new(&[more, one], 1).unwrap();
        assert_eq!(first.check(Need::Read, 5, 10), Ok(()));
        assert_eq!(first.check(Need::Write, 5, 10), Err(Denied));
        let second = Permissions::new(&[more, one], 2).unwrap();
        assert_eq!(second.check(Need::Read, 5, 10), Err(Denied));
        assert_eq!(second.check(Need::Read, 10, 10), Ok(()));
        assert_eq!(
            Permissions::new(&[], 1).unwrap().check(Need::Read, 0, 1),
            Err(Denied)
        );
    }

    #[test]
    fn grants_that_mean_nothing_are_refused() {
        let error = |grant: AccessGrant| Permissions::new(&[grant], 1).unwrap_err();
        assert_eq!(
            error(grant(Some((5, 0)), true, true)),
            AccessError::Empty(0)
        );
        assert_eq!(
            error(grant(Some((5, u64::MAX)), true, true)),
            AccessError::TooFar(0)
        );
        assert_eq!(error(grant(None, false, false)), AccessError::Nothing(0));
        let many = vec![grant(None, true, true); GRANTS_MAX + 1];
        assert_eq!(
            Permissions::new(&many, 1),
            Err(AccessError::Grants(GRANTS_MAX + 1))
        );
    }

    #[test]
    fn the_most_particular_assignment_wins() {
        let rule = |host: Option<&str>, subsystem: Option<&str>, namespace, tenant| Assignment {
            host: host.map(str::to_owned),
            subsystem: subsystem.map(str::to_owned),
            namespace,
            tenant: TenantId(tenant),
        };
        let rules = vec![
            rule(None, Some("sub"), None, 1),
            rule(Some("host"), None, None, 2),
            rule(Some("host"), Some("sub"), Some(7), 3),
            rule(None, None, Some(9), 4),
        ];
        let table = Assignments::new(rules.clone(), Some(TenantId(0))).unwrap();
        let of = |host, subsystem, namespace| table.tenant(host, subsystem, namespace).unwrap().0;
        assert_eq!(of("host", "sub", 7), 3);
        assert_eq!(of("host", "sub", 8), 2);
        assert_eq!(of("other", "sub", 9), 1);
        assert_eq!(of("other", "else", 9), 4);
        assert_eq!(of("other", "else", 1), 0);
        let strict = Assignments::new(rules, None).unwrap();
        assert_eq!(strict.tenant("other", "else", 1), None);
        let twice = vec![
            rule(Some("h"), None, None, 1),
            rule(Some("h"), None, None, 2),
        ];
        let error = AccessError::Ambiguous(TenantId(1), TenantId(2));
        assert_eq!(Assignments::new(twice, None).unwrap_err(), error);
    }

    proptest! {
        /// Against a bitmap of what is granted.
        #[test]
        fn a_range_passes_when_each_of_its_blocks_does(
            grants in prop::collection::vec((0u64..60, 1u64..12, any::<bool>()), 0..8),
            first in 0u64..64,
            blocks in 0u64..16,
            write in any::<bool>(),
        ) {
            let grants: Vec<_> = grants
                .iter()
                .map(|&(first, blocks, write)| grant(Some((first, blocks)), true, write))
                .collect();
            let granted = |block| grants.iter().any(|grant| {
                let (start, count) = grant.range.unwrap();
                (start..start + count).contains(&block) && (grant.write || !write)
            });
            let expected = blocks > 0 && (first..first + blocks).all(granted);
            let need = if write { Need::Write } else { Need::Read };
            let permissions = Permissions::new(&grants, 1).unwrap();
            prop_assert_eq!(permissions.check(need, first, blocks).is_ok(), expected);
        }
    }
}
