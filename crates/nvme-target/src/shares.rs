//! Shares of a core's limited resources: payload buffers, send lists and tables of extents.
//!
//! A connection, host, tenant or the class `Throughput` may hold a multiple of what is still free, and
//! always one (dynamic thresholds, as in shared-buffer switches): one holder leaves a part free, many
//! holders leave less each, and none is shut out. Hosts without a tenant share what their network may
//! have, because a host chooses its name. Discovery has a part of its own, and a part is kept from I/O
//! queues, so that admin commands and keep-alives find something. Connections before Connect have no
//! share: they hold only a send list for a moment. Commands that a device executes without a buffer
//! (Verify, Write Zeroes, Deallocate) share as many bytes of work as the buffers have. Invariant: a
//! connection that has ended counts for nothing.

use crate::limits::Limits;
use crate::permit::network;
use crate::stats::CoreStats;
use reactor::BufferPool;
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
    /// Not known yet: Connect has not succeeded.
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

/// Reciprocal of the last part of a resource: while 1/16 is free, 64 of 1,024 send lists, a host that
/// has nothing may have one although its tenant or network has its share. [`Purpose::Discovery`] leaves
/// 1/16 of the send lists.
const BEYOND_PART: usize = 16;

/// Reciprocal of the part of the send lists that only [`Purpose::Fresh`] may take: 1/64, 16 of 1,024.
/// Connections before Connect give them back at once.
const FRESH_PART: usize = 64;

/// Reciprocal of the most work that a command without a buffer counts as: 1/4 of the pool's bytes, so
/// that it fits next to other commands.
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
    /// Tables of commands over extents.
    tables: Cell<u64>,
}

/// A share that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// That of all of discovery together.
    Discovery,
    /// The connection's own.
    Connection,
    /// Its host's.
    Host,
    /// Its host's tenant's, or without one its network's.
    Tenant,
    /// That of all queues of class `Throughput`.
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

/// Parties that a connection's holdings count for.
#[derive(Debug)]
pub(crate) struct Parties {
    purpose: Purpose,
    /// All parties of the core together.
    all: Rc<Account>,
    /// The host; for [`Purpose::Discovery`], the connection.
    host: Rc<Account>,
    /// The tenant that the host is, or its network without one.
    group: Rc<Account>,
    /// All queues of class `Throughput`, where the connection is one.
    throughput: Option<Rc<Account>>,
    /// All of discovery, where the connection is to it.
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

    /// Returns true if the host has nothing, and may have `more` whatever its class holds, so that
    /// `free` is left: its tenant or network is within its share, or `plenty` is free.
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

    /// Each account with its share, of what is limited by shares.
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

    /// Checks that a connection to discovery may have `more` of the `part` that is for all of them. A
    /// network that has nothing may have one beyond it while `plenty` is free of all.
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

    /// Returns true if one more of `max` send lists may be taken, of which `left` are left.
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
        // Many admin queues, too, leave something of what is kept for them.
        let plenty = left > max / RESERVE_PART + max / BEYOND_PART;
        if let Some(all) = &self.discovery {
            let part = (1, max.div_ceil(2) as u64, plenty);
            return self.check_part(all, has, part, limits).is_ok();
        }
        // Where half of them are free, no party has more than is free.
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

    /// Adds `more` to each party.
    fn count(&self, of: impl Fn(&Account) -> &Cell<u64>, more: u64) {
        for held in self.accounts().map(of) {
            held.set(held.get() + more);
        }
    }

    /// Subtracts `less` from each party.
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

/// Returns true if a party that holds `held` may have `more`, so that `free` is left: one always.
fn within(held: u64, more: u64, free: u64, share: u32) -> bool {
    held == 0 || held + more <= free.saturating_mul(u64::from(share))
}

/// Room for a buffer, among those that are large enough: others are of no use to neighbours with the
/// same need.
struct Room {
    /// Bytes that the buffer takes, the smallest that is free, as the pool gives it out.
    bytes: u64,
    /// Bytes that are free beside it.
    free: u64,
    /// More than one in [`BEYOND_PART`] is free with it: of their number, or of their bytes where small
    /// ones are used up and large ones stand in for them.
    plenty: bool,
}

impl Room {
    /// Returns the room for a buffer of `bytes`; `None` where no such buffer is free.
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

/// A party with an account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    /// HOSTNQN alone: a host has as many HOSTIDs as it likes.
    Host(String),
    /// By its name.
    Tenant(Arc<str>),
    /// Hosts without a tenant, by the [network] of their addresses.
    Network(IpAddr),
    /// Connections to discovery, by the same.
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

    /// For a connection to discovery, from this address. Control path: allocates.
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

    /// Returns the parties of connections that are gone.
    pub(crate) fn unowned(&self) -> Rc<Parties> {
        Rc::clone(&self.unowned)
    }

    /// Returns the bytes that devices work on for commands without a buffer.
    pub(crate) fn work_bytes(&self) -> u64 {
        self.all.work.get()
    }

    /// Returns the number of tables of extents in use.
    pub(crate) fn tables(&self) -> u64 {
        self.all.tables.get()
    }

    /// For a connection of a host that is known, from this address, and may be a tenant; of an I/O
    /// queue's class. Control path: allocates.
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

/// Buffers and tables that one connection holds.
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

    /// Returns what the core keeps of the host's demand: of number 0 while it is unknown.
    pub(crate) fn host(&self) -> &Cell<Host> {
        &self.parties.host.host
    }

    /// The parties of the connection are known: its holdings count for them.
    pub(crate) fn belongs_to(&mut self, parties: Rc<Parties>) {
        self.parties.discount_all(self.all());
        parties.count_all(self.all());
        self.parties = parties;
    }

    const fn all(&self) -> (u64, u64, u64) {
        (self.bytes, self.work, self.tables)
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
        // Without room it waits with all others, not for lack of a share.
        let room = Room::of(bytes, pool);
        room.map_or(Ok(()), |room| self.may_have(&room, limits))
    }

    /// Checks the same of a buffer for each of `lengths`.
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
            // As many parts less one are free beside what they have.
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

    /// Returns true if it holds no buffer.
    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes == 0
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

    /// Returns the number of tables that it has.
    pub(crate) const fn tables(&self) -> u64 {
        self.tables
    }

    /// Returns true if it may have one more of the core's tables.
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
