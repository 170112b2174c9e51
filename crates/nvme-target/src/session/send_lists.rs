//! Send lists of a core, shared by its connections.

use crate::limits::Limits;
use crate::shares::Parties;
use base::SlabKey;
use reactor::{SendList, SendListPool};
use std::collections::VecDeque;
use switch::Class;
use transport::ListSource;

/// Send lists of a core, up to a maximum.
#[derive(Debug)]
pub(crate) struct ListPool {
    lists: SendListPool,
    used: usize,
    max: usize,
    /// Connections that wait for a list, in order, each with its class.
    pub(crate) waiting: VecDeque<(Option<Class>, SlabKey)>,
    /// Number of waiting connections that must retry before the core may sleep, because a list was
    /// returned.
    untried: usize,
}

impl ListPool {
    /// Returns a pool of at most `max` lists.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            lists: SendListPool::default(),
            used: 0,
            max,
            waiting: VecDeque::new(),
            untried: 0,
        }
    }

    /// Takes an empty list for a connection of these parties; `None` if all lists that they may
    /// have are in use.
    #[inline]
    pub(crate) fn take(&mut self, parties: &Parties, limits: &Limits) -> Option<Box<SendList>> {
        let left = self.max - self.used;
        if left == 0 || !parties.may_take_list(left, self.max, limits) {
            return None;
        }
        parties.take_lists(1);
        self.used += 1;
        Some(self.lists.take())
    }

    /// Returns the number of lists in use.
    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// Takes back a list from a connection of these parties.
    #[inline]
    pub(crate) fn give_back(&mut self, list: Box<SendList>, parties: &Parties) {
        parties.give_back_lists(1);
        self.used -= 1;
        self.lists.give_back(list);
        self.untried = self.waiting.len();
    }

    /// Returns true if connections that wait for a list must retry.
    pub(crate) fn has_to_look(&self) -> bool {
        self.untried > 0
    }

    /// Returns the next connection that must retry. Connections that wait again go to the back.
    pub(crate) fn next_to_try(&mut self) -> Option<(Option<Class>, SlabKey)> {
        self.untried = self.untried.checked_sub(1)?;
        self.waiting.pop_front()
    }
}

/// The send lists of a core, as seen by a connection of these parties.
#[derive(Debug)]
pub(crate) struct SharedLists<'a> {
    pub(crate) pool: &'a mut ListPool,
    pub(crate) parties: &'a Parties,
    pub(crate) limits: &'a Limits,
}

impl ListSource for SharedLists<'_> {
    #[inline]
    fn take(&mut self) -> Option<Box<SendList>> {
        self.pool.take(self.parties, self.limits)
    }

    #[inline]
    fn give_back(&mut self, list: Box<SendList>) {
        self.pool.give_back(list, self.parties);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::{Accounts, Purpose};
    use std::net::IpAddr;

    fn from(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn lists_are_limited_and_come_back() {
        let (mut pool, limits) = (ListPool::new(1), Limits::default());
        let mut accounts = Accounts::default();
        let host = ("a", from(1));
        let data = accounts.parties(Purpose::Data, host, None, None);
        let control = accounts.parties(Purpose::Control, host, None, None);
        let list = pool.take(&data, &limits).expect("the first");
        assert!(pool.take(&control, &limits).is_none());
        pool.give_back(list, &data);
        assert!(pool.take(&accounts.fresh(), &limits).is_some());
    }

    #[test]
    fn nobody_takes_the_lists_that_are_for_others() {
        let (mut pool, limits) = (ListPool::new(64), Limits::default());
        let mut accounts = Accounts::default();
        let all = |pool: &mut ListPool, parties: &Parties| {
            let lists = std::iter::from_fn(|| pool.take(parties, &limits));
            lists.collect::<Vec<_>>()
        };
        let mut anyones = Vec::new();
        for last in 101..106 {
            let anyone = accounts.discovery(from(last));
            anyones.push((all(&mut pool, &anyone), anyone));
        }
        let taken: usize = anyones.iter().map(|(lists, _)| lists.len()).sum();
        let mut queues = Vec::new();
        for (last, host) in (1..).zip(["a", "b", "c", "d"]) {
            let data = accounts.parties(Purpose::Data, (host, from(last)), None, None);
            queues.extend(all(&mut pool, &data));
        }
        assert_eq!((taken, queues.len()), (32, 24));
        let mut admin = 0;
        for (last, host) in (5..).zip(["e", "f", "g", "h"]) {
            let control = accounts.parties(Purpose::Control, (host, from(last)), None, None);
            admin += all(&mut pool, &control).len();
        }
        // One list is left for Connect.
        assert_eq!(admin, 7);
        let late = accounts.discovery(from(109));
        assert_eq!(all(&mut pool, &late).len(), 0);
        assert_eq!(all(&mut pool, &accounts.fresh()).len(), 1);
        for (lists, anyone) in anyones {
            for list in lists {
                pool.give_back(list, &anyone);
            }
        }
        assert_eq!(all(&mut pool, &late).len(), 21);
    }

    /// Regression: after a list was returned, the core slept when the first 64 waiting connections
    /// could not use it, although the next one could.
    #[test]
    fn each_that_waits_is_asked_before_a_core_sleeps() {
        let (mut pool, limits) = (ListPool::new(64), Limits::default());
        let fresh = Accounts::default().fresh();
        let list = pool.take(&fresh, &limits).expect("the first");
        let key = |index| SlabKey {
            index,
            generation: 0,
        };
        pool.waiting
            .extend((0..200).map(|index| (None, key(index))));
        assert!(!pool.has_to_look());
        pool.give_back(list, &fresh);
        for index in 0..200 {
            assert!(pool.has_to_look(), "{index} is not asked");
            let asked = pool.next_to_try().expect("it waits");
            assert_eq!(asked.1, key(index));
            pool.waiting.push_back(asked);
        }
        assert!(!pool.has_to_look() && pool.next_to_try().is_none());
    }
}
