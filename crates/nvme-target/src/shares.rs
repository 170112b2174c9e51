//! Shares of a core's limited resources: payload buffers, send lists and extent tables.
//!
//! A connection, host, tenant or the class `Throughput` may hold a multiple of the free amount, and
//! always one (dynamic thresholds, as in shared-buffer switches): one holder leaves a part free,
//! many holders leave less each, and none is shut out. Hosts without a tenant share by network,
//! because a host chooses its name. Discovery has a part of its own, and I/O queues leave a part
//! for admin commands and keep-alives. Connections before Connect have no share: they hold only a
//! send list for a moment. Commands executed without a buffer (Verify, Write Zeroes, Deallocate)
//! share as many bytes of work as the buffers have. Invariant: a connection that has ended counts
//! for nothing.

use crate::limits::Limits;
use crate::stats::CoreStats;
use reactor::BufferPool;
use reactor::address::network;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use switch::Class;
use switch::light_hosts::Host;

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Unknown: Connect has not succeeded yet.
    #[default]
    Fresh,
    /// The admin queue of a discovery controller: any peer can have one.
    Discovery,
    /// The admin queue of a subsystem's controller.
    Control,
    /// An I/O queue.
    Data,
}

/// Reciprocal of two parts: [`Purpose::Discovery`] has at most 1/8 of the buffers' bytes, and
/// [`Purpose::Data`] leaves 1/8 of the send lists, 128 of 1,024, to admin queues.
pub(crate) const RESERVE_PART: usize = 8;

/// Reciprocal of a reserve of each resource. While more than 1/16 is free (64 of 1,024 send lists),
/// a host that holds nothing may take one even if its tenant or network has used up its share.
/// [`Purpose::Discovery`] leaves 1/16 of the send lists.
const BEYOND_PART: usize = 16;

/// Reciprocal of the part of the send lists that only [`Purpose::Fresh`] may take: 1/64, 16 of
/// 1,024. Connections before Connect give them back at once.
const FRESH_PART: usize = 64;

/// Reciprocal of the largest work that a command without a buffer counts as: 1/4 of the pool's
/// bytes, so that it fits in addition to other commands.
pub(crate) const WORK_PART: usize = 4;

/// Holdings of one party on a core.
#[derive(Debug, Default)]
struct Account {
    /// The recent demand of a host, with a number that is unique on the core; 0 for unknown hosts.
    host: Cell<Host>,
    /// Bytes of payload buffers.
    bytes: Cell<u64>,
    /// Bytes that devices work on for commands without a buffer.
    work: Cell<u64>,
    /// Send lists.
    lists: Cell<u64>,
    /// Extent tables.
    tables: Cell<u64>,
}

/// A used-up share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// The share of all discovery connections.
    Discovery,
    /// The share of the connection.
    Connection,
    /// The share of the host.
    Host,
    /// The share of the host's tenant, or of its network without a tenant.
    Tenant,
    /// The share of all queues of class `Throughput`.
    Throughput,
}

impl Share {
    /// Counts a command that waits for its share of the buffers.
    pub(crate) fn count(self, stats: &mut CoreStats) {
        stats.share_waits += 1;
        match self {
            Self::Discovery => {}
            Self::Connection => stats.connection_share_waits += 1,
            Self::Host => stats.host_share_waits += 1,
            Self::Tenant => stats.tenant_share_waits += 1,
            Self::Throughput => stats.throughput_share_waits += 1,
        }
    }
}

/// Accounts to which a connection's holdings are charged.
#[derive(Debug)]
pub(crate) struct Parties {
    purpose: Purpose,
    /// All parties of the core together.
    all: Rc<Account>,
    /// The host; for [`Purpose::Discovery`], the connection.
    host: Rc<Account>,
    /// The host's tenant, or its network if it has none.
    group: Rc<Account>,
    /// All queues of class `Throughput`; `None` for other connections.
    throughput: Option<Rc<Account>>,
    /// All of discovery; `None` for other connections.
    discovery: Option<Rc<Account>>,
}

impl Parties {
    fn accounts(&self) -> impl Iterator<Item = &Account> {
        [&self.all, &self.host, &self.group]
            .into_iter()
            .chain(&self.throughput)
            .chain(&self.discovery)
            .map(|account| &**account)
    }

    /// Checks that each party may take `more` in addition to its holding (`has`), leaving `free`.
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

    /// Returns true if the host holds nothing and may take `more`, leaving `free`: its tenant or
    /// network is within its share, or `plenty` is free. The holding of its class does not matter.
    fn may_begin(
        &self,
        has: impl Fn(&Account) -> u64,
        more: u64,
        (free, plenty): (u64, bool),
        limits: &Limits,
    ) -> bool {
        let share = limits.tenant_buffer_share;
        has(&self.host) == 0 && (plenty || within(has(&self.group), more, free, share))
    }

    /// Returns each account with its share, for resources limited by shares.
    fn shares(&self, limits: &Limits) -> impl Iterator<Item = (&Account, u32, Share)> {
        let host = match self.discovery {
            Some(_) => (limits.connection_buffer_share, Share::Connection),
            None => (limits.host_buffer_share, Share::Host),
        };
        let host = (&*self.host, host.0, host.1);
        let group = (&*self.group, limits.tenant_buffer_share, Share::Tenant);
        let class = self.throughput.as_deref();
        let class = class.map(|a| (a, limits.throughput_buffer_share, Share::Throughput));
        [host, group].into_iter().chain(class)
    }

    /// Checks that a discovery connection may take `more` of the `part` for all discovery. While
    /// `plenty` is free in total, a network that holds nothing may take one beyond that part.
    fn check_part(
        &self,
        all: &Account,
        has: impl Fn(&Account) -> u64,
        (more, part, plenty): (u64, u64, bool),
        limits: &Limits,
    ) -> Result<(), Share> {
        let held = has(all);
        if has(&self.group) == 0 && (plenty || held == 0) {
            return Ok(());
        }
        let free = part.checked_sub(held + more).ok_or(Share::Discovery)?;
        let plenty = free >= part / BEYOND_PART as u64;
        if self.may_begin(&has, more, (free, plenty), limits) {
            return Ok(());
        }
        self.check(has, more, free, limits)
    }

    /// Returns true if a list may be taken while `left` of `max` send lists are free.
    pub(crate) fn may_take_list(&self, left: usize, max: usize, limits: &Limits) -> bool {
        let kept = match self.purpose {
            Purpose::Fresh => return left > 0,
            Purpose::Control => max / FRESH_PART,
            Purpose::Discovery => max / BEYOND_PART,
            Purpose::Data => max / RESERVE_PART,
        };
        let Some(free) = left.checked_sub(kept + 1) else {
            return false;
        };
        let (has, free) = (|account: &Account| account.lists.get(), free as u64);
        // A large number of admin queues must leave some of the lists reserved for admin queues,
        // too.
        let plenty = left > max / RESERVE_PART + max / BEYOND_PART;
        if let Some(all) = &self.discovery {
            let part = (1, max.div_ceil(2) as u64, plenty);
            return self.check_part(all, has, part, limits).is_ok();
        }
        // While more than half is free, no party holds more than the free number.
        if left > max / 2 + kept {
            return true;
        }
        self.may_begin(has, 1, (free, plenty), limits) || self.check(has, 1, free, limits).is_ok()
    }

    /// Counts lists that a connection took.
    pub(crate) fn take_lists(&self, lists: usize) {
        self.count(|account| &account.lists, lists as u64);
    }

    /// Counts lists that a connection gave back.
    pub(crate) fn give_back_lists(&self, lists: usize) {
        self.discount(|account| &account.lists, lists as u64);
    }

    /// Adds `more` to the account of each party.
    fn count(&self, of: impl Fn(&Account) -> &Cell<u64>, more: u64) {
        for held in self.accounts().map(of) {
            held.set(held.get() + more);
        }
    }

    /// Subtracts `less` from the account of each party.
    fn discount(&self, of: impl Fn(&Account) -> &Cell<u64>, less: u64) {
        for held in self.accounts().map(of) {
            debug_assert!(held.get() >= less, "a party gives back what it took");
            held.set(held.get() - less);
        }
    }

    /// Counts what a connection holds.
    fn count_all(&self, (bytes, work, tables): (u64, u64, u64)) {
        self.count(|account| &account.bytes, bytes);
        self.count(|account| &account.work, work);
        self.count(|account| &account.tables, tables);
    }

    fn discount_all(&self, (bytes, work, tables): (u64, u64, u64)) {
        self.discount(|account| &account.bytes, bytes);
        self.discount(|account| &account.work, work);
        self.discount(|account| &account.tables, tables);
    }
}

/// Returns true if a party that holds `held` may take `more`, leaving `free`; a first one is always
/// allowed.
fn within(held: u64, more: u64, free: u64, share: u32) -> bool {
    held == 0 || held + more <= free.saturating_mul(u64::from(share))
}

/// Free buffers that are large enough for a request; smaller ones are useless to any request of
/// this size.
struct Room {
    /// Size in bytes of the smallest free buffer, which the pool would hand out.
    bytes: u64,
    /// Bytes that remain free without that buffer.
    free: u64,
    /// More than 1/[`BEYOND_PART`] is free: of the number of these buffers, or of their bytes if
    /// small ones are used up and large ones replace them.
    plenty: bool,
}

impl Room {
    /// Returns the room for a buffer of `bytes`; `None` if no such buffer is free.
    fn of(bytes: usize, pool: &BufferPool) -> Option<Self> {
        let mut taken = None;
        let (mut free, mut free_bytes, mut all, mut all_bytes) = (0, 0, 0, 0);
        let sizes = pool.classes().zip(pool.usage());
        for (class, (size, unused, _)) in sizes.filter(|(class, _)| class.bytes >= bytes) {
            if unused > 0 {
                taken.get_or_insert(size);
            }
            free += unused;
            free_bytes += size * unused;
            all += class.count;
            all_bytes += size * class.count;
        }
        let taken = taken?;
        Some(Self {
            bytes: taken as u64,
            free: (free_bytes - taken) as u64,
            plenty: free > all / BEYOND_PART || free_bytes > all_bytes / BEYOND_PART,
        })
    }
}

/// An owner of an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    /// By HOSTNQN alone, because a host may use any number of HOSTIDs.
    Host(String),
    /// By its name.
    Tenant(Arc<str>),
    /// Hosts without a tenant, by the [network] of their address.
    Network(IpAddr),
    /// Connections to discovery, by the [network] of their address.
    Discovery(IpAddr),
}

/// The accounts of a core.
#[derive(Debug)]
pub(crate) struct Accounts {
    fresh: Rc<Parties>,
    unowned: Rc<Parties>,
    all: Rc<Account>,
    throughput: Rc<Account>,
    discovery: Rc<Account>,
    known: BTreeMap<Party, Weak<Account>>,
    /// Number of accounts opened since the start.
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
                group: Rc::default(),
                throughput: None,
                discovery: None,
            })
        };
        Self {
            fresh: of(Purpose::Fresh),
            unowned: of(Purpose::Control),
            all,
            throughput: Rc::default(),
            discovery: Rc::default(),
            known: BTreeMap::new(),
            opened: 0,
        }
    }
}

impl Accounts {
    /// Returns the parties of connections before Connect.
    pub(crate) fn fresh(&self) -> Rc<Parties> {
        Rc::clone(&self.fresh)
    }

    /// Returns the parties of a discovery connection from this address. Control path: allocates.
    pub(crate) fn discovery(&mut self, from: IpAddr) -> Rc<Parties> {
        self.known.retain(|_, account| account.strong_count() > 0);
        Rc::new(Parties {
            purpose: Purpose::Discovery,
            all: Rc::clone(&self.all),
            host: Rc::default(),
            group: self.account(Party::Discovery(network(from))),
            throughput: None,
            discovery: Some(Rc::clone(&self.discovery)),
        })
    }

    /// Returns the parties of connections that have ended.
    pub(crate) fn unowned(&self) -> Rc<Parties> {
        Rc::clone(&self.unowned)
    }

    /// Returns the bytes that devices work on for commands without a buffer.
    pub(crate) fn work_bytes(&self) -> u64 {
        self.all.work.get()
    }

    /// Returns the number of extent tables in use.
    pub(crate) fn tables(&self) -> u64 {
        self.all.tables.get()
    }

    /// Returns the parties of a connection of a known host from this address, which may have a
    /// tenant, for an I/O queue's class. Control path: allocates.
    pub(crate) fn parties(
        &mut self,
        purpose: Purpose,
        (nqn, from): (&str, IpAddr),
        tenant: Option<&Arc<str>>,
        class: Option<Class>,
    ) -> Rc<Parties> {
        self.known.retain(|_, account| account.strong_count() > 0);
        let host = self.account(Party::Host(nqn.to_owned()));
        let group = match tenant {
            Some(name) => Party::Tenant(Arc::clone(name)),
            None => Party::Network(network(from)),
        };
        let group = self.account(group);
        let throughput = class == Some(Class::Throughput);
        Rc::new(Parties {
            purpose,
            all: Rc::clone(&self.all),
            host,
            group,
            throughput: throughput.then(|| Rc::clone(&self.throughput)),
            discovery: None,
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

/// Buffers and extent tables that one connection holds.
#[derive(Debug)]
pub(crate) struct Holding {
    bytes: u64,
    work: u64,
    tables: u64,
    parties: Rc<Parties>,
}

impl Holding {
    pub(crate) const fn new(parties: Rc<Parties>) -> Self {
        Self {
            bytes: 0,
            work: 0,
            tables: 0,
            parties,
        }
    }

    /// Returns the host's demand as the core records it; its number is 0 while the host is unknown.
    pub(crate) fn host(&self) -> &Cell<Host> {
        &self.parties.host.host
    }

    /// Sets the parties of the connection and moves its holdings to their accounts.
    pub(crate) fn belongs_to(&mut self, parties: Rc<Parties>) {
        self.parties.discount_all(self.all());
        parties.count_all(self.all());
        self.parties = parties;
    }

    const fn all(&self) -> (u64, u64, u64) {
        (self.bytes, self.work, self.tables)
    }

    /// Checks that the connection may take a buffer of `bytes`, given the remaining free buffers.
    ///
    /// # Errors
    /// The share that is used up.
    pub(crate) fn may_take(
        &self,
        bytes: usize,
        pool: &BufferPool,
        limits: &Limits,
    ) -> Result<(), Share> {
        // Without a free buffer the command waits for one, not for a share.
        let room = Room::of(bytes, pool);
        room.map_or(Ok(()), |room| self.may_have(&room, limits))
    }

    /// Checks that the connection may take a buffer for each of `lengths`.
    ///
    /// # Errors
    /// The share that is used up.
    pub(crate) fn may_take_all(
        &self,
        lengths: impl Iterator<Item = usize>,
        pool: &BufferPool,
        limits: &Limits,
    ) -> Result<(), Share> {
        let (mut least, mut bytes) = (usize::MAX, 0);
        for length in lengths {
            let class = pool.classes().find(|class| class.bytes >= length);
            bytes += class.map_or(length, |class| class.bytes) as u64;
            least = least.min(length);
        }
        let room = Room::of(least, pool).and_then(|room| {
            let free = (room.bytes + room.free).checked_sub(bytes)?;
            Some(Room {
                bytes,
                free,
                ..room
            })
        });
        room.map_or(Ok(()), |room| self.may_have(&room, limits))
    }

    fn may_have(&self, room: &Room, limits: &Limits) -> Result<(), Share> {
        let (bytes, free, plenty) = (room.bytes, room.free, room.plenty);
        let has = |account: &Account| account.bytes.get();
        if let Some(all) = &self.parties.discovery {
            // `RESERVE_PART` - 1 times their holding stays free.
            let part = (bytes, free / (RESERVE_PART as u64 - 1), plenty);
            return self.parties.check_part(all, has, part, limits);
        }
        if self.parties.may_begin(has, bytes, (free, plenty), limits) {
            return Ok(());
        }
        if !within(self.bytes, bytes, free, limits.connection_buffer_share) {
            return Err(Share::Connection);
        }
        self.parties.check(has, bytes, free, limits)
    }

    /// Returns true if the connection holds no buffer.
    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Checks that a device may work on `bytes` more for a command without a buffer. The shares are
    /// those of a total equal to the pool's bytes.
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
        let has = |account: &Account| account.work.get();
        let all = pool.bytes().0 as u64;
        let free = all.saturating_sub(parties.all.work.get() + bytes);
        let plenty = free >= all / BEYOND_PART as u64;
        if parties.may_begin(has, bytes, (free, plenty), limits) {
            return Ok(());
        }
        parties.check(has, bytes, free, limits)
    }

    pub(crate) fn begin_work(&mut self, bytes: u64) {
        self.work += bytes;
        self.parties.count(|account| &account.work, bytes);
    }

    pub(crate) fn end_work(&mut self, bytes: u64) {
        self.work -= bytes;
        self.parties.discount(|account| &account.work, bytes);
    }

    pub(crate) fn take(&mut self, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.parties.count(|account| &account.bytes, bytes.into());
    }

    pub(crate) fn give_back(&mut self, bytes: u32) {
        self.bytes -= u64::from(bytes);
        self.parties
            .discount(|account| &account.bytes, bytes.into());
    }

    /// Returns the number of extent tables that the connection holds.
    pub(crate) const fn tables(&self) -> u64 {
        self.tables
    }

    /// Returns true if the connection may take another extent table of the core.
    pub(crate) fn may_take_table(&self, limits: &Limits) -> bool {
        let (parties, tables) = (&self.parties, limits.extent_tables as u64);
        let has = |account: &Account| account.tables.get();
        let Some(free) = tables.checked_sub(has(&parties.all) + 1) else {
            return false;
        };
        let plenty = free >= tables / BEYOND_PART as u64;
        parties.may_begin(has, 1, (free, plenty), limits)
            || parties.check(has, 1, free, limits).is_ok()
    }

    pub(crate) fn take_table(&mut self) {
        self.tables += 1;
        self.parties.count(|account| &account.tables, 1);
    }

    pub(crate) fn give_back_table(&mut self) {
        self.tables -= 1;
        self.parties.discount(|account| &account.tables, 1);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.parties.discount_all(self.all());
    }
}

#[cfg(test)]
mod tests;
