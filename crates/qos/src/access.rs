//! Access control: the tenant of a connection, and the blocks that it may read and write. `[ReFlex
//! §3.1, §4.1]`
//!
//! [`Assignments`] are queried once, when a host connects: (host NQN, subsystem, namespace) →
//! tenant, or the default tenant, or none. [`Permissions`] are checked for every command, over its
//! whole range. Both are built from an operator's configuration and immutable; a change builds new
//! ones. Invariant: no range passes if its last block is not granted, or if it overflows.

use crate::limits::{ASSIGNMENTS_MAX, GRANTS_MAX};
use crate::slo::TenantId;
use base::mutation::{self, Mutation};
use std::collections::BTreeMap;

/// Assigns a tenant to every connection that matches; an omitted field matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The host's NQN; `None` for all.
    pub host: Option<String>,
    /// The subsystem's NQN; `None` for all.
    pub subsystem: Option<String>,
    /// The namespace within it; `None` for all.
    pub namespace: Option<u32>,
    /// The assigned tenant.
    pub tenant: TenantId,
}

/// An invalid rule of access control.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Too many assignments: their number.
    #[error("{0} assignments; use at most {ASSIGNMENTS_MAX}")]
    Assignments(usize),
    /// Two tenants for the same host, subsystem and namespace.
    #[error(
        "{0} and {1} are both assigned to the same host, subsystem and namespace; use only one"
    )]
    Ambiguous(TenantId, TenantId),
    /// Too many grants: their number.
    #[error("{0} grants; use at most {GRANTS_MAX}")]
    Grants(usize),
    /// An empty range: index of the grant.
    #[error("grant {0} has 0 blocks; use at least one, or omit the number for all")]
    Empty(usize),
    /// A range beyond the end of any device: index of the grant.
    #[error("grant {0} exceeds block 2^64; use fewer blocks")]
    TooFar(usize),
    /// A grant of neither reads nor writes: index of the grant.
    #[error("grant {0} allows neither reading nor writing; omit it")]
    Nothing(usize),
}

/// Values by name, and a value for all names.
#[derive(Clone, Debug, Default)]
struct ByName<T> {
    named: BTreeMap<String, T>,
    any: T,
}

impl<T: Default> ByName<T> {
    /// Returns the values for a name, the most specific first.
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

/// Maps connections to tenants.
#[derive(Clone, Debug, Default)]
pub struct Assignments {
    /// Tenants by host, subsystem and namespace: a match of the host takes precedence over one of
    /// the subsystem, and that over one of the namespace.
    rules: ByName<ByName<BTreeMap<Option<u32>, TenantId>>>,
    default: Option<TenantId>,
}

impl Assignments {
    /// Builds assignments; `default` is the tenant of all other connections, and `None` rejects
    /// these.
    ///
    /// # Errors
    /// If there are too many assignments, or two contradict each other.
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

    /// Returns the tenant of a host's requests to a namespace; `None` rejects the host. The most
    /// specific assignment wins.
    #[must_use]
    pub fn tenant(&self, host: &str, subsystem: &str, namespace: u32) -> Option<TenantId> {
        let mut rules = self.rules_of(host, subsystem);
        let assigned = rules.find_map(|rules| {
            let particular = rules.get(&Some(namespace));
            particular.or_else(|| rules.get(&None))
        });
        assigned.copied().or(self.default)
    }

    /// Returns true if a host has a tenant for some namespace of a subsystem. The cost does not
    /// depend on the number of namespaces in the rules.
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

/// The access that a command requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Read, Compare, Verify.
    Read,
    /// Write, Write Zeroes, Deallocate.
    Write,
}

/// A range of blocks that a tenant may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessGrant {
    /// The namespace; `None` for all.
    pub namespace: Option<u32>,
    /// First block and number of blocks; `None` for all.
    pub range: Option<(u64, u64)>,
    /// The blocks may be read.
    pub read: bool,
    /// The blocks may be written.
    pub write: bool,
}

/// The command is not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tenant may not access all of these blocks")]
pub struct Denied;

/// Disjoint, non-adjacent ranges in ascending order: first block, last block.
type Ranges = Vec<(u64, u64)>;

/// A tenant's permissions in one namespace.
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

    /// Builds the permissions in a namespace: the union of the grants for it.
    ///
    /// # Errors
    /// If there are too many grants, or a grant of any namespace is invalid.
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

    /// Checks a command's whole block range. A command without a range (Flush) needs no check.
    ///
    /// # Errors
    /// If a block is not granted, or the range is empty or overflows.
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

/// Sorts ranges, and merges adjacent or overlapping ranges.
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

    /// A check of the first block alone is not sufficient.
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
        /// Compares with a bitmap of the granted blocks.
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
