//! The addresses of a controller and the order in which connection attempts use them.

use crate::options::ConnectOptions;
use std::net::{Ipv4Addr, SocketAddr};

/// The addresses of a controller, in the order of connection attempts.
#[derive(Debug)]
pub(super) struct Addresses {
    /// Never empty.
    all: Vec<SocketAddr>,
    /// Index of the first address of the round.
    first: usize,
    /// Number of attempts in the round.
    next: usize,
    /// Address of the last attempt.
    current: SocketAddr,
}

impl Default for Addresses {
    fn default() -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Self {
            all: vec![nowhere],
            first: 0,
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
            first: 0,
            next: 0,
            current: options.address,
        }
    }

    pub(super) const fn current(&self) -> SocketAddr {
        self.current
    }

    /// Returns the address for the next attempt: the first one again after the last.
    pub(super) fn next(&mut self) -> SocketAddr {
        let number = self.next % self.all.len();
        self.next = number + 1;
        self.current = self.all[(self.first + number) % self.all.len()];
        self.current
    }

    pub(super) const fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Returns true if an address was not tried since the round began.
    pub(super) const fn has_further(&self) -> bool {
        self.next < self.all.len()
    }

    /// Begins a round behind the address of the last attempt, which did not last.
    pub(super) fn begin_round(&mut self) {
        let last = self.all.iter().position(|&address| address == self.current);
        self.first = last.map_or(0, |last| last + 1);
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
            (self.first, self.next) = (0, 0);
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
        addresses.begin_round();
        assert_eq!([addresses.next(), addresses.next()], [at(2), at(1)]);
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
