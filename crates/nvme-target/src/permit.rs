//! Limits across all cores: the number of connections, in total, per address (IPv6: per /64) and
//! per tenant, and the entries of their queues.
//!
//! Each connection owns a [`ConnectionPermit`] until it has ended completely, even while it moves
//! between cores. Permits change at the begin, Connect and end of a connection, never by I/O.

use crate::limits::{Limits, is_reserved};
use crate::stats::CoreStats;
use reactor::address::network;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts the permitted connections of all cores against their limits.
#[derive(Debug)]
pub(crate) struct Permits {
    taken: Arc<Mutex<Taken>>,
    limit: usize,
    /// Limit of connections from one address.
    per_address: usize,
}

/// Number of connections and entries of their queues.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    connections: usize,
    entries: usize,
}

impl Count {
    fn subtract(&mut self, other: Self) {
        self.connections -= other.connections;
        self.entries -= other.entries;
    }
}

/// Permits in use.
#[derive(Debug, Default)]
struct Taken {
    all: Count,
    by_address: BTreeMap<IpAddr, Count>,
    /// By tenant: permits of hosts with a tenant, counted from Connect on.
    by_tenant: BTreeMap<Arc<str>, Count>,
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    // Each change adds or subtracts in a few places and cannot panic between them.
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Permission to have one connection; returned when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    taken: Arc<Mutex<Taken>>,
    from: IpAddr,
    /// Entries of the queue; 0 before Connect.
    entries: usize,
    tenant: Option<Arc<str>>,
}

/// The limit that refuses a connection, or its Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitRefused {
    /// The limit of all connections.
    All,
    /// The limit of connections from one address.
    Address,
    /// The limit of connections of one tenant.
    Tenant,
    /// The limit of queue entries, in total or of one address or tenant.
    Entries,
}

impl PermitRefused {
    /// Counts a connection or Connect refused by this limit.
    pub(crate) fn count(self, stats: &mut CoreStats) {
        match self {
            Self::All => {}
            Self::Address => stats.refused_per_address += 1,
            Self::Tenant => stats.connects_refused_per_tenant += 1,
            Self::Entries => stats.connects_refused_entries += 1,
        }
    }
}

impl Permits {
    /// Creates permits for at most `limit` connections, at most `per_address` of them from one
    /// address.
    pub(crate) fn new(limit: usize, per_address: usize) -> Self {
        Self {
            taken: Arc::default(),
            limit,
            per_address,
        }
    }

    /// Returns a permit for another connection from an address.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn take(&self, from: IpAddr) -> Result<ConnectionPermit, PermitRefused> {
        let from = network(from);
        let mut taken = lock(&self.taken);
        if taken.all.connections >= self.limit {
            return Err(PermitRefused::All);
        }
        let all = taken.all.connections + 1;
        let here = taken.by_address.get(&from).map_or(0, |it| it.connections) + 1;
        if here > self.per_address || is_reserved(self.limit, all, here) {
            return Err(PermitRefused::Address);
        }
        taken.by_address.entry(from).or_default().connections = here;
        taken.all.connections = all;
        drop(taken);
        Ok(ConnectionPermit {
            taken: Arc::clone(&self.taken),
            from,
            entries: 0,
            tenant: None,
        })
    }

    /// Returns the number of entries of all queues together.
    pub(crate) fn entries(&self) -> usize {
        lock(&self.taken).all.entries
    }
}

impl ConnectionPermit {
    /// Counts the connection as a queue with `entries` entries, of a host that may have a tenant.
    /// Called once per connection.
    ///
    /// # Errors
    /// The limit that is reached; then nothing has changed.
    pub(crate) fn enter(
        &mut self,
        entries: usize,
        tenant: Option<&Arc<str>>,
        limits: &Limits,
    ) -> Result<(), PermitRefused> {
        assert!(
            self.entries == 0 && self.tenant.is_none(),
            "a connection becomes a queue once"
        );
        let mut taken = lock(&self.taken);
        let here = taken.by_address.get(&self.from).copied();
        let theirs = taken.joined(tenant, entries, limits)?;
        let (all, after) = (limits.all_queue_entries, taken.all.entries + entries);
        let here = here.unwrap_or_default().entries + entries;
        let most = here.max(theirs.entries);
        if after > all || most > all - all / 4 || is_reserved(all, after, most) {
            return Err(PermitRefused::Entries);
        }
        taken.all.entries = after;
        taken.by_address.entry(self.from).or_default().entries += entries;
        taken.join(tenant, theirs);
        drop(taken);
        self.entries = entries;
        self.tenant = tenant.cloned();
        Ok(())
    }

    /// Counts a queue for the tenant of its host, which has authenticated after Connect.
    ///
    /// # Errors
    /// The limit that is reached; then nothing has changed.
    pub(crate) fn join(
        &mut self,
        tenant: Option<&Arc<str>>,
        limits: &Limits,
    ) -> Result<(), PermitRefused> {
        assert!(self.tenant.is_none(), "a queue has one tenant");
        let mut taken = lock(&self.taken);
        let theirs = taken.joined(tenant, self.entries, limits)?;
        let (all, after) = (limits.all_queue_entries, taken.all.entries);
        if theirs.entries > all - all / 4 || is_reserved(all, after, theirs.entries) {
            return Err(PermitRefused::Entries);
        }
        taken.join(tenant, theirs);
        drop(taken);
        self.tenant = tenant.cloned();
        Ok(())
    }
}

impl Taken {
    /// Returns the count of a tenant with a further connection of `entries` entries; nothing without
    /// a tenant.
    fn joined(
        &self,
        tenant: Option<&Arc<str>>,
        entries: usize,
        limits: &Limits,
    ) -> Result<Count, PermitRefused> {
        let Some(tenant) = tenant else {
            return Ok(Count::default());
        };
        let theirs = self.by_tenant.get(tenant).copied().unwrap_or_default();
        let theirs = Count {
            connections: theirs.connections + 1,
            entries: theirs.entries + entries,
        };
        if theirs.connections > limits.connections_per_tenant
            || is_reserved(limits.connections, self.all.connections, theirs.connections)
        {
            return Err(PermitRefused::Tenant);
        }
        Ok(theirs)
    }

    fn join(&mut self, tenant: Option<&Arc<str>>, theirs: Count) {
        if let Some(tenant) = tenant {
            self.by_tenant.insert(Arc::clone(tenant), theirs);
        }
    }
}

/// Subtracts connections from the count of an address or tenant, and drops the count with its last
/// one.
fn forget<K: Ord>(counts: &mut BTreeMap<K, Count>, of: &K, gone: Count) {
    let count = counts.get_mut(of);
    let count = count.expect("one with a permit is known");
    count.subtract(gone);
    if count.connections == 0 {
        assert!(count.entries == 0, "entries go with their connections");
        counts.remove(of);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let gone = Count {
            connections: 1,
            entries: self.entries,
        };
        let mut taken = lock(&self.taken);
        taken.all.subtract(gone);
        forget(&mut taken.by_address, &self.from, gone);
        if let Some(tenant) = &self.tenant {
            forget(&mut taken.by_tenant, tenant, gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections_per_tenant: usize, all_queue_entries: usize) -> Limits {
        Limits {
            connections_per_tenant,
            all_queue_entries,
            ..Limits::default()
        }
    }

    /// Regression: one address could have all connections, after each of them had completed
    /// Connect.
    #[test]
    fn permits_are_limited_and_come_back() {
        let permits = Permits::new(4, 3);
        let from = |last: u8| permits.take(IpAddr::from([192, 0, 2, last]));
        let first = from(1).expect("one of three");
        let _others = [from(1), from(1)].map(|permit| permit.expect("one of three"));
        assert_eq!(from(1).err(), Some(PermitRefused::Address));
        let elsewhere = from(2).expect("the last one");
        assert_eq!(from(2).err(), Some(PermitRefused::All));
        assert_eq!(from(3).err(), Some(PermitRefused::All));
        drop(first);
        drop(from(1).expect("it is free again"));
        drop(elsewhere);
        assert_eq!(lock(&permits.taken).by_address.len(), 1);
    }

    /// Regression: two addresses, and two tenants, could have all connections.
    #[test]
    fn the_last_connections_are_for_those_who_have_few() {
        let permits = Permits::new(512, 384);
        let from = |last: u8| permits.take(IpAddr::from([192, 0, 2, last]));
        let mut all: Vec<_> = (0..384).map(|_| from(1).expect("its share")).collect();
        all.extend((384..480).map(|_| from(2).expect("not of the reserve")));
        assert_eq!(from(2).err(), Some(PermitRefused::Address));
        let few: Vec<_> = (3..19).flat_map(|last| [from(last), from(last)]).collect();
        assert!(few.iter().all(Result::is_ok));
        assert_eq!(from(3).err(), Some(PermitRefused::All));
        drop(few);
        from(3).and(from(3)).unwrap();

        let limits = Limits {
            connections: 512,
            ..Limits::default()
        };
        let [many, few] = ["many", "few"].map(Arc::<str>::from);
        let enter = |of: &mut ConnectionPermit, tenant| of.enter(2, Some(tenant), &limits);
        for permit in &mut all {
            assert_eq!(enter(permit, &many), Ok(()), "not of the reserve");
        }
        let mut more = from(3).expect("its address has few");
        assert_eq!(enter(&mut more, &many), Err(PermitRefused::Tenant));
        assert_eq!(enter(&mut more, &few), Ok(()));
    }

    /// Regression: queues of hosts at two addresses could have all entries.
    #[test]
    fn the_last_entries_are_for_those_who_have_few() {
        let (permits, limits) = (Permits::new(99, 99), limits(99, 512));
        let enter = |last, entries| {
            let mut permit = from(&permits, last);
            permit.enter(entries, None, &limits).map(|()| permit)
        };
        let _many = [(1, 384), (2, 96)]
            .map(|(last, entries)| enter(last, entries).expect("not of the reserve"));
        assert_eq!(enter(2, 1).err(), Some(PermitRefused::Entries));
        let _few: Vec<_> = (3..19)
            .map(|last| enter(last, 2).expect("it has few"))
            .collect();
        assert_eq!(enter(19, 1).err(), Some(PermitRefused::Entries));
    }

    /// A machine has all addresses of its /64, and could otherwise have all connections by using
    /// one after another.
    #[test]
    fn addresses_of_one_network_share_permits() {
        let permits = Permits::new(4, 1);
        let from = |address: &str| permits.take(address.parse().expect("an address"));
        let first = from("2001:db8::1").expect("the first of its network");
        assert_eq!(from("2001:db8::2").err(), Some(PermitRefused::Address));
        let _other = from("2001:db8:0:1::1").expect("another network");
        let _mapped = from("::ffff:192.0.2.1").expect("another network");
        assert_eq!(from("192.0.2.1").err(), Some(PermitRefused::Address));
        drop(first);
        drop(from("2001:db8::2").expect("it is free again"));
    }

    fn from(permits: &Permits, last: u8) -> ConnectionPermit {
        let permit = permits.take(IpAddr::from([192, 0, 2, last]));
        permit.expect("there are many")
    }

    /// Regression: a tenant with two addresses could have all connections.
    #[test]
    fn a_tenant_leaves_connections_for_others() {
        let (permits, limits) = (Permits::new(99, 99), limits(3, 1 << 20));
        let [greedy, quiet] = ["greedy", "quiet"].map(Arc::<str>::from);
        let mut theirs: Vec<_> = (0..4).map(|n| from(&permits, n % 2)).collect();
        let mut enter = |n: usize| theirs[n].enter(32, Some(&greedy), &limits);
        assert_eq!([0, 1, 2].map(&mut enter), [Ok(()); 3]);
        assert_eq!(enter(3), Err(PermitRefused::Tenant));
        for tenant in [None, Some(&quiet)] {
            assert_eq!(from(&permits, 1).enter(32, tenant, &limits), Ok(()));
        }
        theirs.remove(0);
        assert_eq!(theirs[2].enter(32, Some(&greedy), &limits), Ok(()));
        drop(theirs);
        assert!(lock(&permits.taken).by_tenant.is_empty());
        assert_eq!(permits.entries(), 0);
    }

    /// Regression: the memory of deep queues was limited only by their number.
    #[test]
    fn entries_of_queues_are_limited_and_come_back() {
        let (permits, limits) = (Permits::new(99, 99), limits(99, 400));
        let tenant = Arc::from("tenant");
        let enter = |last, entries, tenant| {
            let mut permit = from(&permits, last);
            permit.enter(entries, tenant, &limits).map(|()| permit)
        };
        let first = enter(1, 200, None).expect("an address has 300");
        assert_eq!(enter(1, 101, None).err(), Some(PermitRefused::Entries));
        let rest = enter(1, 100, None).expect("an address has 300");
        assert_eq!(enter(2, 101, None).err(), Some(PermitRefused::Entries));
        drop((first, rest));
        let _here = enter(2, 200, Some(&tenant)).expect("a tenant has 300");
        let elsewhere = enter(3, 101, Some(&tenant));
        assert_eq!(elsewhere.err(), Some(PermitRefused::Entries));
        let _elsewhere = enter(3, 100, Some(&tenant)).expect("a tenant has 300");
        assert_eq!(permits.entries(), 300);
    }

    #[test]
    fn a_network_is_an_ipv4_address_or_a_64_bit_prefix() {
        let of = |address: &str| network(address.parse().expect("an address")).to_string();
        assert_eq!(of("192.0.2.1"), "192.0.2.1");
        assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(of("2001:db8:0:1:2:3:4:5"), "2001:db8:0:1::");
        assert_eq!(of("2001:db8:0:2::1"), "2001:db8:0:2::");
    }
}
