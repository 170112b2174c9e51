//! Limits the log lines that peers can cause on a core.
//!
//! Each peer, by its [network](crate::network), may cause a few lines per period, and all peers of
//! a core some more. So a peer that floods neither fills the log nor suppresses lines of other
//! peers. The peer's next line reports the number of suppressed lines.
//!
//! The limit applies to every level except TRACE, which logs every state of each command, for
//! developers. Lines that a peer can repeat have the level WARN, which is shown by default, or
//! above, because hidden lines would use up the budget of visible ones.

use crate::limits::{LOG_LINES_PER_PEER, LOG_LINES_PER_SECOND, LOG_PEER_PERIOD, LOG_PEERS};
use base::{Nanos, Time};
use reactor::address::network;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// Remaining log lines.
#[derive(Debug, Default)]
pub(crate) struct LogBudget {
    all: Lines,
    /// By a hash of the peer's network, with a key of this process. Peers with equal hashes share a
    /// budget, and no peer can choose the one that it shares with.
    peers: Box<[Lines]>,
    hasher: RandomState,
}

/// Lines logged in a period.
#[derive(Clone, Copy, Debug, Default)]
struct Lines {
    /// Number of the period.
    period: u64,
    used: u32,
    suppressed: u64,
}

impl Lines {
    /// Returns true if the period allows another line.
    fn has_room(&mut self, now: Time, period: Nanos, most: u32) -> bool {
        let number = now.0 / period.0;
        if number != self.period {
            self.period = number;
            self.used = 0;
        }
        self.used < most
    }
}

impl LogBudget {
    /// Returns the number of suppressed lines since the peer's last one, if a line is allowed now.
    pub(crate) fn allow(&mut self, peer: IpAddr, now: Time) -> Option<u64> {
        if self.peers.is_empty() {
            self.peers = vec![Lines::default(); LOG_PEERS].into();
        }
        let places = self.peers.len() as u64;
        let place = self.hasher.hash_one(network(peer)) % places;
        let peer = &mut self.peers[usize::try_from(place).expect("a place of a small table")];
        let may = peer.has_room(now, LOG_PEER_PERIOD, LOG_LINES_PER_PEER)
            && self
                .all
                .has_room(now, Nanos::from_secs(1), LOG_LINES_PER_SECOND);
        if !may {
            peer.suppressed += 1;
            return None;
        }
        peer.used += 1;
        self.all.used += 1;
        Some(std::mem::take(&mut peer.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn peer(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn a_flood_of_one_peer_is_logged_in_part() {
        let mut budget = LogBudget::default();
        let logged = |budget: &mut LogBudget, now| {
            let lines = (0..1_000).filter(|_| budget.allow(peer(1), now).is_some());
            lines.count()
        };
        let most = LOG_LINES_PER_PEER as usize;
        assert_eq!(logged(&mut budget, Time(5)), most);
        assert_eq!(logged(&mut budget, Time(5_000_000_000)), 0);
        let suppressed = 2_000 - u64::from(LOG_LINES_PER_PEER);
        assert_eq!(
            budget.allow(peer(1), Time(10_000_000_000)),
            Some(suppressed)
        );
    }

    /// A machine has all addresses of its /64.
    #[test]
    fn addresses_of_one_network_are_one_peer() {
        let mut budget = LogBudget::default();
        let peer = |last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
        let logged = (0..1_000).filter(|&last| budget.allow(peer(last), Time(5)).is_some());
        assert_eq!(logged.count(), LOG_LINES_PER_PEER as usize);
    }

    /// Regression: all peers shared ten lines a second, so one of them could use them up.
    #[test]
    fn who_floods_does_not_keep_others_out() {
        let mut budget = LogBudget::default();
        for _ in 0..1_000 {
            budget.allow(peer(1), Time(5));
        }
        // Some of these may share an entry with the first.
        let others = (2..6).filter(|&number| budget.allow(peer(number), Time(5)).is_some());
        assert!(others.count() >= 1);
    }

    #[test]
    fn all_peers_together_are_bounded() {
        let mut budget = LogBudget::default();
        let logged = (0..10_000).filter(|&number| budget.allow(peer(number), Time(5)).is_some());
        assert_eq!(logged.count(), LOG_LINES_PER_SECOND as usize);
    }
}
