//! Who holds how much of what a core has few of: payload buffers and send lists.
//!
//! A connection or host may hold so many times what is left free, and always something: one that
//! takes all it can leaves a part, many leave less each, and nobody is shut out (dynamic
//! thresholds, as switches share their buffers). What anybody may use without being known, discovery
//! and connections before Connect, has a small part for all of them together; a part is kept from
//! I/O queues, so that admin commands and keep-alives find something. Must never: count what a
//! connection holds beyond its end.

use crate::limits::Limits;
use reactor::BufferPool;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// What a connection is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Discovery, or not known yet: anybody can have one.
    #[default]
    Anyone,
    /// The admin queue of a subsystem's controller.
    Control,
    /// An I/O queue.
    Data,
}

/// The part of the buffers that is for [`Purpose::Anyone`] at most, and the part of the send lists
/// that [`Purpose::Data`] leaves: one in so many.
pub(crate) const RESERVE_PART: usize = 8;

/// Bytes of buffers that a host holds on a core.
pub(crate) type Account = Rc<Cell<u64>>;

/// The accounts of a core.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    anyone: Account,
    hosts: BTreeMap<(String, [u8; 16]), Weak<Cell<u64>>>,
}

impl Accounts {
    /// The account of all that nobody is known to have.
    pub(crate) fn anyone(&self) -> Account {
        Rc::clone(&self.anyone)
    }

    /// The account of a host. Control path: allocates.
    pub(crate) fn host(&mut self, nqn: &str, id: [u8; 16]) -> Account {
        self.hosts.retain(|_, account| account.strong_count() > 0);
        let key = (nqn.to_owned(), id);
        if let Some(account) = self.hosts.get(&key).and_then(Weak::upgrade) {
            return account;
        }
        let account = Account::default();
        self.hosts.insert(key, Rc::downgrade(&account));
        account
    }
}

/// What one connection holds.
#[derive(Debug)]
pub(crate) struct Holding {
    purpose: Purpose,
    bytes: u64,
    account: Account,
}

impl Holding {
    pub(crate) const fn new(account: Account) -> Self {
        Self {
            purpose: Purpose::Anyone,
            bytes: 0,
            account,
        }
    }

    /// It is known whose the connection is: what it holds is theirs.
    pub(crate) fn belongs_to(&mut self, purpose: Purpose, account: Account) {
        self.account.set(self.account.get() - self.bytes);
        account.set(account.get() + self.bytes);
        (self.purpose, self.account) = (purpose, account);
    }

    /// Whether it may take a buffer for so many bytes, of what is left beside it.
    pub(crate) fn may_take(&self, bytes: usize, pool: &BufferPool, limits: &Limits) -> bool {
        // The smallest that is large enough, as the pool gives it out.
        let mut large = pool
            .usage()
            .filter(|&(size, free, _)| size >= bytes && free > 0);
        let Some((size, ..)) = large.next() else {
            // Not for lack of a share: it waits with everybody else.
            return true;
        };
        let (bytes, all) = (size as u64, self.account.get());
        let sizes = pool.usage();
        let free = sizes.map(|(size, free, _)| size as u64 * free as u64);
        let free = free.sum::<u64>() - bytes;
        let within = |held: u64, share: u32| {
            held == 0 || held + bytes <= free.saturating_mul(u64::from(share))
        };
        match self.purpose {
            // As many parts less one are free beside what they have.
            Purpose::Anyone => all == 0 || all + bytes <= free / (RESERVE_PART as u64 - 1),
            Purpose::Control | Purpose::Data => {
                within(self.bytes, limits.connection_buffer_share)
                    && within(all, limits.host_buffer_share)
            }
        }
    }

    pub(crate) fn take(&mut self, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.account.set(self.account.get() + u64::from(bytes));
    }

    pub(crate) fn give_back(&mut self, bytes: u32) {
        self.bytes -= u64::from(bytes);
        self.account.set(self.account.get() - u64::from(bytes));
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.account.set(self.account.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::{Buffer, BufferClass};

    fn fill(holding: &mut Holding, pool: &BufferPool, limits: &Limits) -> Vec<Buffer> {
        let mut taken = Vec::new();
        while holding.may_take(4096, pool, limits)
            && let Some(buffer) = pool.take(4096)
        {
            holding.take(4096);
            taken.push(buffer);
        }
        taken
    }

    #[test]
    fn who_takes_all_it_can_leaves_something_and_an_end_gives_everything_back() {
        let pool = BufferPool::new(&[BufferClass {
            bytes: 4096,
            count: 800,
        }]);
        let pool = pool.expect("3 MiB");
        let limits = Limits {
            connection_buffer_share: 1,
            host_buffer_share: 3,
            ..Limits::default()
        };
        let mut accounts = Accounts::default();
        let greedy = |accounts: &mut Accounts, name: &str| {
            let mut holding = Holding::new(accounts.anyone());
            holding.belongs_to(Purpose::Data, accounts.host(name, [1; 16]));
            holding
        };
        let mut first = greedy(&mut accounts, "a");
        let mut second = greedy(&mut accounts, "a");
        let held = [
            fill(&mut first, &pool, &limits),
            fill(&mut second, &pool, &limits),
        ];
        // One connection has half, and its host at most three quarters.
        assert_eq!(held.each_ref().map(Vec::len), [400, 200]);
        let mut other = greedy(&mut accounts, "b");
        assert_eq!(fill(&mut other, &pool, &limits).len(), 100);
        // Its buffers are free again here: 200 are.
        // All that are nobody have an eighth together.
        let mut anyone = Holding::new(accounts.anyone());
        let mut another = Holding::new(accounts.anyone());
        let few = fill(&mut anyone, &pool, &limits);
        assert_eq!(few.len(), 25);
        assert!(!another.may_take(4096, &pool, &limits));
        drop((held, few, first, second, anyone));
        assert_eq!((accounts.anyone.get(), accounts.hosts.len()), (0, 2));
        assert_eq!(accounts.host("a", [1; 16]).get(), 0);
        another.take(4096);
        assert_eq!(accounts.anyone.get(), 4096);
    }
}
