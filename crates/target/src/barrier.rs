//! Barriers: whose commands one orders, and which barrier of a tenant is in force.
//!
//! [`Scope`] says whose: a tenant's, whichever of its hosts they come from; for hosts that are no
//! tenant, the host's own. The [`Registry`] is shared by all cores and gives every scope's barriers
//! one order: a barrier is in force from when the one before it has ended, so two of them never
//! wait for each other. What a core does about one that is in force is in
//! [`core_barriers`](crate::core_barriers) (docs/decisions/0015-barrier.md).
//!
//! Must never: have two barriers of a scope in force; keep one whose command is gone.

use crate::limits::BARRIERS_ACTIVE_MAX;
use crate::request::Ticket;
use crate::tenants::{DEFAULT_TENANT, Whom};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whose commands a barrier orders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    tenant: Arc<str>,
    /// Hosts that are no tenant have nothing to do with each other.
    host: Option<(String, [u8; 16])>,
}

/// The scopes of a host's commands in a subsystem, by namespace; by default, none.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    /// In order: those that differ from the rest.
    named: Vec<(u32, Option<Arc<Scope>>)>,
    unnamed: Option<Arc<Scope>>,
}

impl Scopes {
    /// The scopes of a host that is these tenants. Control path: allocates.
    pub(crate) fn of(whom: &Whom, host_nqn: &str, host_id: [u8; 16]) -> Self {
        let mut made: BTreeMap<Arc<str>, Arc<Scope>> = BTreeMap::new();
        let mut scope = |tenant: Option<&Arc<str>>| {
            let tenant = tenant?;
            let alone = (**tenant == *DEFAULT_TENANT).then(|| (host_nqn.to_owned(), host_id));
            let scope = made.entry(Arc::clone(tenant)).or_insert_with(|| {
                Arc::new(Scope {
                    tenant: Arc::clone(tenant),
                    host: alone,
                })
            });
            Some(Arc::clone(scope))
        };
        Self {
            named: whom
                .named()
                .map(|(nsid, name)| (nsid, scope(name)))
                .collect(),
            unnamed: scope(whom.unnamed()),
        }
    }

    /// The scope of commands to a namespace; `None` where the host is nobody.
    pub(crate) fn scope(&self, nsid: u32) -> Option<&Arc<Scope>> {
        let found = self.named.binary_search_by_key(&nsid, |named| named.0);
        found.map_or(self.unnamed.as_ref(), |at| self.named[at].1.as_ref())
    }

    /// All of them, some perhaps more than once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Scope>> {
        let named = self.named.iter().filter_map(|(_, scope)| scope.as_ref());
        named.chain(&self.unnamed)
    }
}

/// A barrier command under way.
#[derive(Debug)]
pub(crate) struct Barrier {
    pub(crate) scope: Arc<Scope>,
    /// The core of its queue, and its place there.
    pub(crate) owner: usize,
    pub(crate) ticket: Ticket,
    /// Cores on which something that came before it is left.
    cores: AtomicUsize,
}

impl Barrier {
    pub(crate) fn new(scope: &Arc<Scope>, owner: usize, ticket: Ticket, cores: usize) -> Arc<Self> {
        Arc::new(Self {
            scope: Arc::clone(scope),
            owner,
            ticket,
            cores: AtomicUsize::new(cores),
        })
    }

    /// On one core, all that came before it is through. True for the last one.
    pub(crate) fn core_is_through(&self) -> bool {
        // What the cores did before is seen by who answers the barrier after the last one.
        self.cores.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// The barriers of the target, by scope.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    scopes: BTreeMap<Arc<Scope>, Line>,
    /// Scopes whose first barrier is in force.
    active: usize,
    /// Scopes whose first barrier waits for a place among them, in order.
    turn: VecDeque<Arc<Scope>>,
}

/// The barriers of one scope, in order.
#[derive(Debug, Default)]
struct Line {
    barriers: VecDeque<Arc<Barrier>>,
    /// The first one is in force.
    active: bool,
}

/// What follows from the end of a barrier.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// It was in force: the cores are to be told.
    pub(crate) was_active: bool,
    /// Those in force from now on.
    pub(crate) next: Vec<Arc<Barrier>>,
}

impl Registry {
    /// One more barrier. Returns those that are in force from now on.
    pub(crate) fn enter(&mut self, barrier: &Arc<Barrier>) -> Vec<Arc<Barrier>> {
        let line = self.scopes.entry(Arc::clone(&barrier.scope)).or_default();
        line.barriers.push_back(Arc::clone(barrier));
        if line.barriers.len() == 1 {
            self.turn.push_back(Arc::clone(&barrier.scope));
        }
        self.fill()
    }

    /// A barrier is over, or its command is gone.
    pub(crate) fn leave(&mut self, barrier: &Arc<Barrier>) -> Ended {
        let Some(line) = self.scopes.get_mut(&barrier.scope) else {
            return Ended::default();
        };
        let Some(place) = line.barriers.iter().position(|b| Arc::ptr_eq(b, barrier)) else {
            return Ended::default();
        };
        line.barriers.remove(place);
        let was_active = place == 0 && std::mem::take(&mut line.active);
        if was_active {
            self.active -= 1;
        }
        if line.barriers.is_empty() {
            self.scopes.remove(&barrier.scope);
            self.turn.retain(|scope| *scope != barrier.scope);
        } else if was_active {
            self.turn.push_back(Arc::clone(&barrier.scope));
        }
        Ended {
            was_active,
            next: self.fill(),
        }
    }

    /// Puts barriers in force while there is room.
    fn fill(&mut self) -> Vec<Arc<Barrier>> {
        let mut next = Vec::new();
        while self.active < BARRIERS_ACTIVE_MAX
            && let Some(scope) = self.turn.pop_front()
        {
            if let Some(line) = self.scopes.get_mut(&scope) {
                line.active = true;
                self.active += 1;
                next.extend(line.barriers.front().cloned());
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::SlabKey;

    fn scope(name: &str) -> Arc<Scope> {
        Arc::new(Scope {
            tenant: name.into(),
            host: None,
        })
    }

    fn barrier(scope: &Arc<Scope>, slot: u16) -> Arc<Barrier> {
        let connection = SlabKey {
            index: 0,
            generation: 0,
        };
        Barrier::new(scope, 0, Ticket { connection, slot }, 1)
    }

    fn slots(barriers: &[Arc<Barrier>]) -> Vec<u16> {
        barriers.iter().map(|b| b.ticket.slot).collect()
    }

    #[test]
    fn barriers_of_a_tenant_follow_each_other_and_tenants_do_not_wait() {
        let (a, b) = (scope("a"), scope("b"));
        let mut registry = Registry::default();
        let first = barrier(&a, 1);
        let second = barrier(&a, 2);
        let third = barrier(&a, 3);
        assert_eq!(slots(&registry.enter(&first)), [1]);
        assert!(registry.enter(&second).is_empty() && registry.enter(&third).is_empty());
        assert_eq!(slots(&registry.enter(&barrier(&b, 9))), [9]);
        // One that never was in force goes without anybody noticing.
        let gone = registry.leave(&second);
        assert!(!gone.was_active && gone.next.is_empty());
        let ended = registry.leave(&first);
        assert!(ended.was_active);
        assert_eq!(slots(&ended.next), [3]);
        assert!(!registry.leave(&first).was_active, "it is over already");
        assert!(registry.leave(&third).was_active);
        assert!(!registry.scopes.contains_key(&a));
    }

    #[test]
    fn more_tenants_than_may_at_once_wait_their_turn() {
        let mut registry = Registry::default();
        let all: Vec<_> = (0..BARRIERS_ACTIVE_MAX + 2)
            .map(|index| barrier(&scope(&index.to_string()), 0))
            .collect();
        let active: usize = all.iter().map(|b| registry.enter(b).len()).sum();
        assert_eq!(active, BARRIERS_ACTIVE_MAX);
        let last = &all[BARRIERS_ACTIVE_MAX + 1];
        assert!(!registry.leave(last).was_active, "it waited");
        let next = registry.leave(&all[0]).next;
        assert!(Arc::ptr_eq(&next[0], &all[BARRIERS_ACTIVE_MAX]));
        for barrier in &all[1..=BARRIERS_ACTIVE_MAX] {
            assert!(registry.leave(barrier).was_active);
        }
        assert!(registry.scopes.is_empty() && registry.turn.is_empty());
        assert_eq!(registry.active, 0);
    }
}
