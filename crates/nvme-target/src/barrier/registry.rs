//! Barriers: their scopes, and the one of each scope that is in force.
//!
//! A [`Scope`] has the commands of a tenant, from all of its hosts; for hosts without a tenant, those
//! of the host alone. The [`Registry`] is shared by all cores and gives every scope's barriers
//! one order: a barrier is in force from when the one before it has ended, so two of them never
//! wait for each other. What a core does about one that is in force is in
//! [`core_barriers`](crate::barrier::core) (docs/decisions/0015-barrier.md).
//!
//! Must never: have two barriers of a scope in force; keep a barrier without its command.

use crate::limits::BARRIERS_ACTIVE_MAX;
use crate::network::network;
use crate::qos::access::{DEFAULT_TENANT, HostTenants};
use crate::request::Ticket;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The commands that a barrier orders: those of a tenant, or of one host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    /// First in the order: two scopes mostly differ here, which is quick to see.
    digest: u64,
    tenant: Arc<str>,
    /// Hosts that are no tenant have nothing to do with each other.
    host: Option<(String, [u8; 16])>,
}

impl Scope {
    fn new(tenant: &Arc<str>, host: Option<(String, [u8; 16])>) -> Self {
        let mut hasher = DefaultHasher::new();
        (tenant, &host).hash(&mut hasher);
        Self {
            digest: hasher.finish(),
            tenant: Arc::clone(tenant),
            host,
        }
    }

    /// Returns true for the scope of one host, which hosts can make by naming themselves.
    const fn is_of_one_host(&self) -> bool {
        self.host.is_some()
    }
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
    pub(crate) fn of(tenants: &HostTenants, host_nqn: &str, host_id: [u8; 16]) -> Self {
        let mut made: BTreeMap<Arc<str>, Arc<Scope>> = BTreeMap::new();
        let mut scope = |tenant: Option<&Arc<str>>| {
            let tenant = tenant?;
            let alone = (**tenant == *DEFAULT_TENANT).then(|| (host_nqn.to_owned(), host_id));
            let scope = made
                .entry(Arc::clone(tenant))
                .or_insert_with(|| Arc::new(Scope::new(tenant, alone)));
            Some(Arc::clone(scope))
        };
        Self {
            named: tenants
                .named()
                .map(|(nsid, name)| (nsid, scope(name)))
                .collect(),
            unnamed: scope(tenants.unnamed()),
        }
    }

    /// Returns the scope of commands to a namespace; `None` for a host without a tenant there.
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
    /// Network of its host.
    pub(crate) from: IpAddr,
    /// Cores on which something that came before it is left.
    cores: AtomicUsize,
}

impl Barrier {
    pub(crate) fn new(
        scope: &Arc<Scope>,
        owner: usize,
        ticket: Ticket,
        from: IpAddr,
        cores: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            scope: Arc::clone(scope),
            owner,
            ticket,
            from: network(from),
            cores: AtomicUsize::new(cores),
        })
    }

    /// On one core, all that came before it is through. True for the last one.
    pub(crate) fn core_is_through(&self) -> bool {
        // The core that answers the barrier sees what the cores did before the last one.
        self.cores.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// The barriers of the target, by scope.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Barriers in force of hosts of one network that are no tenant, at most.
    per_address: usize,
    scopes: BTreeMap<Arc<Scope>, ScopeBarriers>,
    /// Number of scopes with a barrier in force.
    active: usize,
    /// Numbers of them that are of single hosts, by network.
    of_address: BTreeMap<IpAddr, usize>,
    /// Scopes with a first barrier that waits for a place among them, in order.
    turn: VecDeque<Arc<Scope>>,
}

/// The barriers of one scope, in order.
#[derive(Debug, Default)]
struct ScopeBarriers {
    barriers: VecDeque<Arc<Barrier>>,
    /// The first one is in force.
    active: bool,
}

/// Consequences of the end of a barrier.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// It was in force: the cores are to be told.
    pub(crate) was_active: bool,
    /// Those in force from now on.
    pub(crate) next: Vec<Arc<Barrier>>,
}

impl Registry {
    /// Returns a registry in which hosts of one network that are no tenant have at most so many
    /// barriers in force.
    pub(crate) fn new(per_address: usize) -> Self {
        Self {
            per_address,
            scopes: BTreeMap::new(),
            active: 0,
            of_address: BTreeMap::new(),
            turn: VecDeque::new(),
        }
    }

    /// Returns the number of barriers in force.
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// Returns true for a barrier that is the first of its scope and waits for a place all the same.
    pub(crate) fn wants_place(&self, barrier: &Arc<Barrier>) -> bool {
        let line = self.scopes.get(&barrier.scope);
        let first = line
            .filter(|line| !line.active)
            .map(|line| &line.barriers[0]);
        first.is_some_and(|first| Arc::ptr_eq(first, barrier))
    }

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
            assert!(self.active > 0, "a barrier in force is counted");
            self.active -= 1;
            if barrier.scope.is_of_one_host()
                && let Entry::Occupied(mut count) = self.of_address.entry(barrier.from)
            {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
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

    /// Puts barriers in force while there is room, for them and for those of their address.
    fn fill(&mut self) -> Vec<Arc<Barrier>> {
        let mut next = Vec::new();
        while self.active < BARRIERS_ACTIVE_MAX
            && let Some(place) = self.turn.iter().position(|scope| self.may(scope))
            && let Some(scope) = self.turn.remove(place)
        {
            let line = self.scopes.get_mut(&scope);
            let Some((line, first)) = line.and_then(|line| {
                let first = line.barriers.front().cloned()?;
                Some((line, first))
            }) else {
                continue;
            };
            line.active = true;
            self.active += 1;
            if scope.is_of_one_host() {
                *self.of_address.entry(first.from).or_default() += 1;
            }
            next.push(first);
        }
        next
    }

    /// Returns true if the first barrier of a scope may be in force beside others of its address.
    fn may(&self, scope: &Arc<Scope>) -> bool {
        let line = self.scopes.get(scope);
        let first = line.and_then(|line| line.barriers.front());
        let others = first.and_then(|first| self.of_address.get(&first.from));
        let full = others.is_some_and(|&others| others >= self.per_address);
        !scope.is_of_one_host() || !full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::SlabKey;
    use std::net::Ipv4Addr;

    fn scope(name: &str) -> Arc<Scope> {
        Arc::new(Scope::new(&name.into(), None))
    }

    fn alone(name: &str) -> Arc<Scope> {
        let host = Some((name.to_owned(), [1; 16]));
        Arc::new(Scope::new(&DEFAULT_TENANT.into(), host))
    }

    fn barrier(scope: &Arc<Scope>, slot: u16) -> Arc<Barrier> {
        let connection = SlabKey {
            index: 0,
            generation: 0,
        };
        Barrier::new(scope, 0, Ticket { connection, slot }, FROM, 1)
    }

    fn slots(barriers: &[Arc<Barrier>]) -> Vec<u16> {
        barriers.iter().map(|b| b.ticket.slot).collect()
    }

    const FROM: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Names are the hosts' own: one machine with 64 of them had all places for as long as each of
    /// its barriers may take.
    #[test]
    fn hosts_of_one_address_leave_places_for_others() {
        const PER_ADDRESS: usize = 16;
        let mut registry = Registry::new(PER_ADDRESS);
        let all: Vec<_> = (0..100)
            .map(|n| barrier(&alone(&n.to_string()), 0))
            .collect();
        let active: usize = all.iter().map(|b| registry.enter(b).len()).sum();
        assert_eq!(active, PER_ADDRESS);
        assert!(!registry.wants_place(&all[PER_ADDRESS - 1]));
        assert!(registry.wants_place(&all[PER_ADDRESS]));
        // Tenants, and hosts elsewhere, do not wait behind them.
        assert_eq!(slots(&registry.enter(&barrier(&scope("tenant"), 7))), [7]);
        let connection = SlabKey {
            index: 0,
            generation: 0,
        };
        let ticket = Ticket {
            connection,
            slot: 8,
        };
        let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let other = Barrier::new(&alone("neighbour"), 0, ticket, elsewhere, 1);
        assert_eq!(slots(&registry.enter(&other)), [8]);
        // All of them have their turn.
        let mut ended = 0;
        for barrier in &all {
            assert!(registry.leave(barrier).was_active);
            ended += 1;
        }
        assert_eq!((ended, registry.of_address.len()), (100, 1));
        registry.leave(&other);
        assert!(registry.of_address.is_empty());
    }

    #[test]
    fn an_end_makes_room_for_one_host_of_its_address() {
        let mut registry = Registry::new(2);
        let hosts: Vec<_> = (0..5).map(|n| barrier(&alone(&n.to_string()), n)).collect();
        let mut enter = |barrier: &Arc<Barrier>| slots(&registry.enter(barrier));
        assert_eq!([0, 1, 2, 3].map(|n| enter(&hosts[n]).len()), [1, 1, 0, 0]);
        // A tenant does not count there.
        let tenant = barrier(&scope("tenant"), 9);
        assert_eq!(enter(&tenant), [9]);
        assert!(registry.leave(&tenant).next.is_empty());
        assert_eq!(slots(&registry.leave(&hosts[0]).next), [2]);
        assert!(registry.enter(&hosts[4]).is_empty());
        assert_eq!(registry.active(), 2);
    }

    /// A tenant that gave its turn up and came again had two.
    #[test]
    fn a_tenant_that_comes_again_has_one_turn() {
        let mut registry = Registry::new(1);
        let all: Vec<_> = (0..BARRIERS_ACTIVE_MAX)
            .map(|index| barrier(&scope(&index.to_string()), 0))
            .collect();
        for barrier in &all {
            assert_eq!(registry.enter(barrier).len(), 1);
        }
        let late = barrier(&scope("late"), 1);
        for _ in 0..2 {
            assert!(registry.enter(&late).is_empty());
            assert!(!registry.leave(&late).was_active);
        }
        assert!(registry.enter(&late).is_empty());
        assert_eq!(slots(&registry.leave(&all[0]).next), [1]);
        assert!(registry.leave(&all[1]).next.is_empty());
        assert_eq!(registry.active(), BARRIERS_ACTIVE_MAX - 1);
    }

    /// A machine has all addresses of its /64, and could have a barrier in force from each.
    #[test]
    fn hosts_of_one_network_share_places() {
        let mut registry = Registry::new(1);
        let mut active = |host: &str, from: &str| {
            let ticket = barrier(&alone(host), 0).ticket;
            let from = from.parse().expect("an address");
            let barrier = Barrier::new(&alone(host), 0, ticket, from, 1);
            registry.enter(&barrier).len()
        };
        assert_eq!(active("a", "2001:db8::1"), 1);
        assert_eq!(active("b", "2001:db8::2"), 0);
        assert_eq!(active("c", "2001:db8:0:1::2"), 1);
    }

    #[test]
    fn barriers_of_a_tenant_follow_each_other_and_tenants_do_not_wait() {
        let (a, b) = (scope("a"), scope("b"));
        let mut registry = Registry::new(1);
        let first = barrier(&a, 1);
        let second = barrier(&a, 2);
        let third = barrier(&a, 3);
        assert_eq!(slots(&registry.enter(&first)), [1]);
        assert!(registry.enter(&second).is_empty() && registry.enter(&third).is_empty());
        assert!(
            !registry.wants_place(&second),
            "it waits for the first, not for a place"
        );
        assert_eq!(slots(&registry.enter(&barrier(&b, 9))), [9]);
        // One that never was in force goes without effect.
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
        let mut registry = Registry::new(1);
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
