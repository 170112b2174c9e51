//! The addresses at which a controller may be, and which of them are tried next.

use crate::options::ConnectOptions;
use std::net::{Ipv4Addr, SocketAddr};

/// The addresses of a controller, in the order in which they are tried.
#[derive(Debug)]
pub(super) struct Addresses {
    /// Never empty.
    all: Vec<SocketAddr>,
    /// Place of the next one to be tried.
    next: usize,
    /// The one that was tried last.
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

    /// Returns the next one to be tried: the first one again after the last.
    pub(super) fn next(&mut self) -> SocketAddr {
        let place = self.next % self.all.len();
        self.next = place + 1;
        self.current = self.all[place];
        self.current
    }

    /// Returns true if the last one was not tried since the round began.
    pub(super) const fn has_further(&self) -> bool {
        self.next < self.all.len()
    }

    pub(super) const fn begin_round(&mut self) {
        self.next = 0;
    }

    pub(super) const fn end_round(&mut self) {
        self.next = self.all.len();
    }

    /// The name has these addresses now: if others than before, the first one is tried next.
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
