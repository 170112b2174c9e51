//! The limits on connections of all cores together, and of those from one address or, of IPv6, one
//! /64.
//!
//! Each connection owns a [`ConnectionPermit`] for as long as anything of it is left, also while it
//! moves between cores. Permits are taken and returned when connections come and go, never by I/O.

use crate::network::network;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Permits for connections, shared by all cores.
#[derive(Debug)]
pub(crate) struct Permits {
    taken: Arc<Mutex<Taken>>,
    limit: usize,
    /// Of these, for connections from one address.
    per_address: usize,
}

/// Permits that connections have.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    // Each change is an addition or a subtraction in two places, which cannot panic between them.
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Permission to have one connection; returned when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    taken: Arc<Mutex<Taken>>,
    from: IpAddr,
}

/// The limit that keeps a connection out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitRefused {
    /// That of all connections.
    All,
    /// That of connections from one address.
    Address,
}

impl Permits {
    /// Permits for at most `limit` connections, of which `per_address` from one address.
    pub(crate) fn new(limit: usize, per_address: usize) -> Self {
        Self {
            taken: Arc::default(),
            limit,
            per_address,
        }
    }

    /// Returns a permit for one more connection from an address.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn take(&self, from: IpAddr) -> Result<ConnectionPermit, PermitRefused> {
        let from = network(from);
        let mut taken = lock(&self.taken);
        if taken.all >= self.limit {
            return Err(PermitRefused::All);
        }
        let here = taken.by_address.entry(from).or_default();
        if *here >= self.per_address {
            return Err(PermitRefused::Address);
        }
        *here += 1;
        taken.all += 1;
        drop(taken);
        Ok(ConnectionPermit {
            taken: Arc::clone(&self.taken),
            from,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        taken.all -= 1;
        let here = taken.by_address.get_mut(&self.from);
        let here = here.expect("an address is known while it has a permit");
        *here -= 1;
        if *here == 0 {
            taken.by_address.remove(&self.from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One address could have all connections, once it had got each of them through Connect.
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

    /// A machine has all addresses of its /64, and could have all connections by taking one after
    /// the other.
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
}
