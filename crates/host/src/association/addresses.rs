//! The addresses of a controller and the order in which connection attempts use them.

use crate::options::ConnectOptions;
use std::net::{Ipv4Addr, SocketAddr};

/// The addresses of a controller, in the order of connection attempts.
#[derive(Debug)]
pub(super) struct Addresses {
    /// Never empty.
    all: Vec<SocketAddr>,
    /// Index of the address for the next attempt.
    next: usize,
    /// Address of the last attempt.
    current: SocketAddr,
}

impl Default for Addresses {
    fn default() -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Self {
            all: vec![nowhere],
            next: 0,
            current: nowhere,
        }
    }
}

impl Addresses {
    pub(super) fn new(options: &ConnectOptions) -> Self {
        let mut all = vec![options.address];
        all.extend(&options.further_addresses);
        Self {
            all,
            next: 0,
            current: options.address,
        }
    }

    pub(super) const fn current(&self) -> SocketAddr {
        self.current
    }

    /// Returns the address for the next attempt: the first one again after the last.
    pub(super) fn next(&mut self) -> SocketAddr {
        let place = self.next % self.all.len();
        self.next = place + 1;
        self.current = self.all[place];
        self.current
    }

    /// Returns true if an address was not tried since the round began.
    pub(super) const fn has_further(&self) -> bool {
        self.next < self.all.len()
    }

    pub(super) const fn begin_round(&mut self) {
        self.next = 0;
    }

    pub(super) const fn end_round(&mut self) {
        self.next = self.all.len();
    }

    /// Replaces the addresses by those that the name resolved to. If they differ, the first one is
    /// tried next.
    pub(super) fn replace(&mut self, found: Vec<SocketAddr>) {
        if !found.is_empty() && found != self.all {
            self.all = found;
            self.next = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_tried_once_in_a_round_and_new_ones_from_the_first_on() {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut addresses = Addresses::default();
        addresses.replace(vec![at(1), at(2)]);
        assert_eq!((addresses.next(), addresses.has_further()), (at(1), true));
        addresses.replace(vec![at(1), at(2)]);
        assert_eq!((addresses.next(), addresses.has_further()), (at(2), false));
        assert_eq!(addresses.current(), at(2));
        assert_eq!(addresses.next(), at(1), "whoever tries on without a round");
        addresses.replace(vec![at(3)]);
        assert_eq!(addresses.current(), at(1));
        assert_eq!((addresses.next(), addresses.has_further()), (at(3), false));
        addresses.begin_round();
        assert!(addresses.has_further());
        addresses.end_round();
        assert!(!addresses.has_further());
        addresses.replace(Vec::new());
        assert_eq!(addresses.next(), at(3));
    }
}
