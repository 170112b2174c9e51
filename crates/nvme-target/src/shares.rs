//! Shares of what a core has few of: payload buffers and send lists.
//!
//! A connection, host, tenant or the class `Throughput` may hold so many times what is left free,
//! and always something: one that takes all it can leaves a part, many leave less each, and none is
//! shut out (dynamic thresholds, as switches share their buffers). A host that has nothing may have
//! one, however much others of its tenant and class hold. Anonymous connections, which are those to
//! discovery and those before Connect, have a small part for all of them together;
//! a part is kept from I/O queues, so that admin commands and keep-alives find something.
//!
//! Commands that have a device work without a buffer (Verify, Write Zeroes, a deallocation) take
//! nothing that is few, but fill the device's queue: they share as many bytes as the buffers have.
//! Must never: count what a connection holds beyond its end.

use crate::limits::Limits;
use crate::stats::CoreStats;
use reactor::BufferPool;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use switch::Class;
use switch::light_hosts::Host;

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Discovery, or not known yet: any peer can have one.
    #[default]
    Anonymous,
    /// The admin queue of a subsystem's controller.
    Control,
    /// An I/O queue.
    Data,
}

/// The part of the buffers that is for [`Purpose::Anonymous`] at most, and the part of the send lists
/// that [`Purpose::Data`] leaves: one in so many.
pub(crate) const RESERVE_PART: usize = 8;

/// The part of the buffers that data in capsules leaves that goes beyond its share: one in so many.
/// Several hosts that each have their share leave more.
const BEYOND_PART: usize = 16;

/// A command without a buffer counts as no more work than one in so many parts of the pool, so that
/// it fits beside others.
pub(crate) const WORK_PART: usize = 4;

/// Holdings of one party on a core.
#[derive(Debug, Default)]
struct Account {
    /// The demand of a host lately, with a number that no other account of the core ever has; 0 for
    /// those of unknown hosts.
    host: Cell<Host>,
    /// Bytes of payload buffers.
    bytes: Cell<u64>,
    /// Bytes that commands without a buffer for them have devices work on.
    work: Cell<u64>,
    /// Send lists.
    lists: Cell<u64>,
}

/// A share that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// That of discovery and of connections before Connect.
    Anonymous,
    /// The connection's own.
    Connection,
    /// Its host's.
    Host,
    /// Its host's tenant's.
    Tenant,
    /// That of all queues of class `Throughput`.
    Throughput,
}

impl Share {
    /// Counts a command that waits for its share of the buffers.
    pub(crate) fn count(self, stats: &mut CoreStats) {
        stats.share_waits += 1;
        match self {
            Self::Anonymous => {}
            Self::Connection => stats.connection_share_waits += 1,
            Self::Host => stats.host_share_waits += 1,
            Self::Tenant => stats.tenant_share_waits += 1,
            Self::Throughput => stats.throughput_share_waits += 1,
        }
    }
}

/// Parties that a connection's holdings count for.
#[derive(Debug)]
pub(crate) struct Parties {
    purpose: Purpose,
    /// All parties of the core together.
    all: Rc<Account>,
    /// The host; for [`Purpose::Anonymous`], all such connections together.
    host: Rc<Account>,
    /// The tenant that the host is.
    tenant: Option<Rc<Account>>,
    /// All queues of class `Throughput`, where the connection is one.
    throughput: Option<Rc<Account>>,
}

impl Parties {
    fn accounts(&self) -> impl Iterator<Item = &Account> {
        let others = [&self.tenant, &self.throughput].into_iter().flatten();
        [&self.all, &self.host]
            .into_iter()
            .chain(others)
            .map(|account| &**account)
    }

    /// Checks that each party may have `more` beside what it `has`, so that `free` is left.
    fn check(
        &self,
        has: impl Fn(&Account) -> u64,
        more: u64,
        free: u64,
        limits: &Limits,
    ) -> Result<(), Share> {
        let mut shares = self.shares(limits);
        let full = shares.find(|(account, share, _)| !within(has(account), more, free, *share));
        full.map_or(Ok(()), |(.., share)| Err(share))
    }

    /// Each account with its share, of what is limited by shares.
    fn shares(&self, limits: &Limits) -> impl Iterator<Item = (&Account, u32, Share)> {
        let host = Some((&*self.host, limits.host_buffer_share, Share::Host));
        let tenant = self.tenant.as_deref();
        let tenant = tenant.map(|a| (a, limits.tenant_buffer_share, Share::Tenant));
        let class = self.throughput.as_deref();
        let class = class.map(|a| (a, limits.throughput_buffer_share, Share::Throughput));
        [host, tenant, class].into_iter().flatten()
    }

    /// Returns true if one more of `max` send lists may be taken, of which `left` are left.
    pub(crate) fn may_take_list(&self, left: usize, max: usize, limits: &Limits) -> bool {
        let kept = match self.purpose {
            // Many that come at once are answered in one turn.
            Purpose::Anonymous => return self.host.lists.get() < max.div_ceil(2) as u64,
            Purpose::Control => 0,
            Purpose::Data => max / RESERVE_PART,
        };
        let Some(free) = left.checked_sub(kept + 1) else {
            return false;
        };
        // Where half of them are free, no party has more than is free.
        if left > max / 2 + kept || self.host.lists.get() == 0 {
            return true;
        }
        let has = |account: &Account| account.lists.get();
        self.check(has, 1, free as u64, limits).is_ok()
    }

    /// Counts lists that a connection took.
    pub(crate) fn take_lists(&self, lists: usize) {
        for Account { lists: held, .. } in self.accounts() {
            held.set(held.get() + lists as u64);
        }
    }

    /// Counts lists that a connection gave back.
    pub(crate) fn give_back_lists(&self, lists: usize) {
        for Account { lists: held, .. } in self.accounts() {
            held.set(held.get() - lists as u64);
        }
    }

    fn take_bytes(&self, bytes: u64) {
        for Account { bytes: held, .. } in self.accounts() {
            held.set(held.get() + bytes);
        }
    }

    fn give_back_bytes(&self, bytes: u64) {
        for Account { bytes: held, .. } in self.accounts() {
            held.set(held.get() - bytes);
        }
    }

    fn begin_work(&self, bytes: u64) {
        for Account { work, .. } in self.accounts() {
            work.set(work.get() + bytes);
        }
    }

    fn end_work(&self, bytes: u64) {
        for Account { work, .. } in self.accounts() {
            work.set(work.get() - bytes);
        }
    }
}

/// Returns true if a party that holds `held` may have `more`, so that `free` is left: one always.
fn within(held: u64, more: u64, free: u64, share: u32) -> bool {
    held == 0 || held + more <= free.saturating_mul(u64::from(share))
}

/// Returns the bytes that a buffer for `bytes` takes, the smallest that is large enough, as the pool
/// gives it out, and those that are free beside it; `None` where none is.
fn room(bytes: usize, pool: &BufferPool) -> Option<(u64, u64)> {
    let mut sizes = pool.usage();
    let (size, ..) = sizes.find(|&(size, free, _)| size >= bytes && free > 0)?;
    let (all, used) = pool.bytes();
    Some((size as u64, (all - used - size) as u64))
}

/// A party with an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    /// HOSTNQN and HOSTID.
    Host(String, [u8; 16]),
    /// By its name.
    Tenant(Arc<str>),
}

/// The accounts of a core.
#[derive(Debug)]
pub(crate) struct Accounts {
    anonymous: Rc<Parties>,
    unowned: Rc<Parties>,
    all: Rc<Account>,
    throughput: Rc<Account>,
    known: BTreeMap<Party, Weak<Account>>,
    /// Accounts opened so far.
    opened: u64,
}

impl Default for Accounts {
    fn default() -> Self {
        let all = Rc::default();
        let of = |purpose| {
            Rc::new(Parties {
                purpose,
                all: Rc::clone(&all),
                host: Rc::default(),
                tenant: None,
                throughput: None,
            })
        };
        Self {
            anonymous: of(Purpose::Anonymous),
            unowned: of(Purpose::Control),
            all,
            throughput: Rc::default(),
            known: BTreeMap::new(),
            opened: 0,
        }
    }
}

impl Accounts {
    /// Returns the parties of anonymous connections.
    pub(crate) fn anonymous(&self) -> Rc<Parties> {
        Rc::clone(&self.anonymous)
    }

    /// Returns the parties of connections that are gone.
    pub(crate) fn unowned(&self) -> Rc<Parties> {
        Rc::clone(&self.unowned)
    }

    /// For a connection of a host that is known, and may be a tenant; of an I/O queue's class.
    /// Control path: allocates.
    pub(crate) fn parties(
        &mut self,
        purpose: Purpose,
        (nqn, id): (&str, [u8; 16]),
        tenant: Option<&Arc<str>>,
        class: Option<Class>,
    ) -> Rc<Parties> {
        self.known.retain(|_, account| account.strong_count() > 0);
        let host = self.account(Party::Host(nqn.to_owned(), id));
        let tenant = tenant.map(|name| self.account(Party::Tenant(Arc::clone(name))));
        let throughput = class == Some(Class::Throughput);
        Rc::new(Parties {
            purpose,
            all: Rc::clone(&self.all),
            host,
            tenant,
            throughput: throughput.then(|| Rc::clone(&self.throughput)),
        })
    }

    fn account(&mut self, party: Party) -> Rc<Account> {
        if let Some(account) = self.known.get(&party).and_then(Weak::upgrade) {
            return account;
        }
        self.opened += 1;
        let account = Rc::new(Account {
            host: Cell::new(Host::new(self.opened)),
            ..Account::default()
        });
        self.known.insert(party, Rc::downgrade(&account));
        account
    }
}

/// Buffers that one connection holds.
#[derive(Debug)]
pub(crate) struct Holding {
    bytes: u64,
    work: u64,
    parties: Rc<Parties>,
}

impl Holding {
    pub(crate) const fn new(parties: Rc<Parties>) -> Self {
        Self {
            bytes: 0,
            work: 0,
            parties,
        }
    }

    /// Returns what the core keeps of the host's demand: of number 0 while it is unknown.
    pub(crate) fn host(&self) -> &Cell<Host> {
        &self.parties.host.host
    }

    /// The parties of the connection are known: its holdings count for them.
    pub(crate) fn belongs_to(&mut self, parties: Rc<Parties>) {
        self.parties.give_back_bytes(self.bytes);
        self.parties.end_work(self.work);
        parties.take_bytes(self.bytes);
        parties.begin_work(self.work);
        self.parties = parties;
    }

    /// Checks that it may take a buffer for `bytes`, of what is left beside it.
    ///
    /// # Errors
    /// The share that is used up.
    pub(crate) fn may_take(
        &self,
        bytes: usize,
        pool: &BufferPool,
        limits: &Limits,
    ) -> Result<(), Share> {
        let Some((bytes, free)) = room(bytes, pool) else {
            // Not for lack of a share: it waits with all others.
            return Ok(());
        };
        if self.parties.purpose == Purpose::Anonymous {
            let all = self.parties.host.bytes.get();
            // As many parts less one are free beside what they have.
            let may = all == 0 || all + bytes <= free / (RESERVE_PART as u64 - 1);
            return may.then_some(()).ok_or(Share::Anonymous);
        }
        if self.parties.host.bytes.get() == 0 {
            return Ok(());
        }
        if !within(self.bytes, bytes, free, limits.connection_buffer_share) {
            return Err(Share::Connection);
        }
        let has = |account: &Account| account.bytes.get();
        self.parties.check(has, bytes, free, limits)
    }

    /// Returns true if enough of the pool is free for a buffer of `bytes` that is beyond the share:
    /// for data in a capsule behind which other data has to arrive.
    pub(crate) fn may_exceed(bytes: usize, pool: &BufferPool) -> bool {
        let (all, _) = pool.bytes();
        room(bytes, pool).is_none_or(|(_, free)| free >= (all / BEYOND_PART) as u64)
    }

    /// Checks that a command without a buffer may have a device work on `bytes` more: as much is
    /// shared of that as the pool has.
    ///
    /// # Errors
    /// The share that is used up.
    pub(crate) fn may_work(
        &self,
        bytes: u64,
        pool: &BufferPool,
        limits: &Limits,
    ) -> Result<(), Share> {
        let parties = &self.parties;
        if parties.host.work.get() == 0 {
            return Ok(());
        }
        let (all, _) = pool.bytes();
        let free = (all as u64).saturating_sub(parties.all.work.get() + bytes);
        parties.check(|account| account.work.get(), bytes, free, limits)
    }

    pub(crate) fn begin_work(&mut self, bytes: u64) {
        self.work += bytes;
        self.parties.begin_work(bytes);
    }

    pub(crate) fn end_work(&mut self, bytes: u64) {
        self.work -= bytes;
        self.parties.end_work(bytes);
    }

    pub(crate) fn take(&mut self, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.parties.take_bytes(u64::from(bytes));
    }

    pub(crate) fn give_back(&mut self, bytes: u32) {
        self.bytes -= u64::from(bytes);
        self.parties.give_back_bytes(u64::from(bytes));
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.parties.give_back_bytes(self.bytes);
        self.parties.end_work(self.work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::{Buffer, BufferClass};

    fn fill(holding: &mut Holding, pool: &BufferPool, limits: &Limits) -> Vec<Buffer> {
        let mut taken = Vec::new();
        while holding.may_take(4096, pool, limits).is_ok()
            && let Some(buffer) = pool.take(4096)
        {
            holding.take(4096);
            taken.push(buffer);
        }
        taken
    }

    fn pool(count: usize) -> BufferPool {
        let class = BufferClass { bytes: 4096, count };
        BufferPool::new(&[class]).expect("some MiB")
    }

    /// The first queue of a host, of a tenant perhaps.
    fn queue(accounts: &mut Accounts, host: &str, tenant: Option<&str>, class: Class) -> Holding {
        let tenant = tenant.map(Arc::from);
        let who = (host, [1; 16]);
        let parties = accounts.parties(Purpose::Data, who, tenant.as_ref(), Some(class));
        let mut holding = Holding::new(accounts.anonymous());
        holding.belongs_to(parties);
        holding
    }

    #[test]
    fn who_takes_all_it_can_leaves_something_and_an_end_gives_everything_back() {
        let pool = pool(800);
        let limits = Limits {
            connection_buffer_share: 1,
            host_buffer_share: 3,
            ..Limits::default()
        };
        let mut accounts = Accounts::default();
        let greedy = |accounts: &mut Accounts, name| queue(accounts, name, None, Class::Latency);
        let mut first = greedy(&mut accounts, "a");
        let mut second = greedy(&mut accounts, "a");
        let held = [
            fill(&mut first, &pool, &limits),
            fill(&mut second, &pool, &limits),
        ];
        // One connection has half, and its host at most three quarters.
        assert_eq!(held.each_ref().map(Vec::len), [400, 200]);
        assert_eq!(first.may_take(4096, &pool, &limits), Err(Share::Connection));
        let third = greedy(&mut accounts, "a");
        assert_eq!(third.may_take(4096, &pool, &limits), Err(Share::Host));
        let mut other = greedy(&mut accounts, "b");
        assert_eq!(fill(&mut other, &pool, &limits).len(), 100);
        // Its buffers are free again here: 200 are.
        // All anonymous connections have an eighth together.
        let mut anyone = Holding::new(accounts.anonymous());
        let mut another = Holding::new(accounts.anonymous());
        let few = fill(&mut anyone, &pool, &limits);
        assert_eq!(few.len(), 25);
        assert_eq!(
            another.may_take(4096, &pool, &limits),
            Err(Share::Anonymous)
        );
        drop((held, few, first, second, anyone));
        assert_eq!(
            (accounts.anonymous.host.bytes.get(), accounts.known.len()),
            (0, 2)
        );
        let again = greedy(&mut accounts, "a");
        assert_eq!(again.parties.host.bytes.get(), 0);
        another.take(4096);
        assert_eq!(accounts.anonymous.host.bytes.get(), 4096);
    }

    /// A tenant of many hosts, each within its share, held everything.
    #[test]
    fn a_tenant_of_many_hosts_leaves_buffers_for_another_tenant() {
        let (pool, limits) = (pool(700), Limits::default());
        let mut accounts = Accounts::default();
        let mut taken = Vec::new();
        for host in 0..30 {
            let name = host.to_string();
            let mut queue = queue(&mut accounts, &name, Some("hostile"), Class::Latency);
            taken.push((fill(&mut queue, &pool, &limits), queue));
        }
        let held: usize = taken.iter().map(|(buffers, _)| buffers.len()).sum();
        // Six sevenths; each of its hosts has something, at least one.
        assert!((600..=630).contains(&held), "{held}");
        let mut neighbour = queue(&mut accounts, "n", Some("quiet"), Class::Latency);
        assert!(fill(&mut neighbour, &pool, &limits).len() >= 40);
    }

    /// Bulk of many hosts, each within its share, held everything.
    #[test]
    fn throughput_queues_leave_buffers_and_lists_for_latency_queues() {
        let (pool, limits) = (pool(800), Limits::default());
        let mut accounts = Accounts::default();
        let mut taken = Vec::new();
        let mut lists = 800;
        for host in 0..40 {
            let name = host.to_string();
            let mut queue = queue(&mut accounts, &name, None, Class::Throughput);
            while queue.parties.may_take_list(lists, 800, &limits) {
                queue.parties.take_lists(1);
                lists -= 1;
            }
            taken.push((fill(&mut queue, &pool, &limits), queue));
        }
        let mut neighbour = queue(&mut accounts, "n", None, Class::Latency);
        assert!(neighbour.parties.may_take_list(lists, 800, &limits));
        assert!(fill(&mut neighbour, &pool, &limits).len() >= 40);
        // The reserve of admin queues is whole, and an eighth of the rest free.
        assert!(lists >= 100 + 700 / 8 - 40, "{lists}");
    }

    #[test]
    fn a_host_leaves_send_lists_for_another_one() {
        let limits = Limits::default();
        let mut accounts = Accounts::default();
        let mut lists = 800;
        let mut take_all = |queue: &Holding| {
            let before = lists;
            while queue.parties.may_take_list(lists, 800, &limits) {
                queue.parties.take_lists(1);
                lists -= 1;
            }
            before - lists
        };
        let hostile = queue(&mut accounts, "h", None, Class::Latency);
        // Four fifths of what admin queues leave.
        assert_eq!(take_all(&hostile), 560);
        let neighbour = queue(&mut accounts, "n", None, Class::Latency);
        assert_eq!(take_all(&neighbour), 112);
        // An admin queue finds some as well.
        let parties = accounts.parties(Purpose::Control, ("n", [1; 16]), None, None);
        assert!(parties.may_take_list(800 - 672, 800, &limits));
        hostile.parties.give_back_lists(560);
        assert_eq!(hostile.parties.host.lists.get(), 0);
    }
}
