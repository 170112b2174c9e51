//! Limits the secrets that a guesser can try, by the network of its address.
//!
//! Only wrong secrets count, and only for their network: nobody can lock a host out that has another
//! address. Invariant: the table is bounded.

use crate::limits::{GUESS_PERIOD, GUESSERS, GUESSES};
use base::Time;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Times of recent wrong secrets by network, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<BTreeMap<IpAddr, VecDeque<Time>>>);

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, VecDeque<Time>>> {
        // A list of times is valid after every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the network may try a secret now.
    pub(crate) fn may_try(&self, network: IpAddr, now: Time) -> bool {
        let attempts = self.lock();
        let recent = attempts.get(&network).into_iter().flatten();
        recent.filter(|&&at| is_recent(at, now)).count() < GUESSES
    }

    /// Counts a wrong secret.
    pub(crate) fn note_wrong(&self, network: IpAddr, now: Time) {
        let mut attempts = self.lock();
        if !attempts.contains_key(&network) && attempts.len() >= GUESSERS {
            attempts.retain(|_, times| times.back().is_some_and(|&at| is_recent(at, now)));
        }
        if !attempts.contains_key(&network) && attempts.len() >= GUESSERS {
            let last = |times: &VecDeque<Time>| times.back().copied();
            let oldest = attempts.iter().min_by_key(|(_, times)| last(times));
            let oldest = oldest.map(|(network, _)| *network);
            oldest.map(|network| attempts.remove(&network));
        }
        let times = attempts.entry(network).or_default();
        if times.len() == GUESSES {
            times.pop_front();
        }
        times.push_back(now);
    }
}

fn is_recent(at: Time, now: Time) -> bool {
    now.since(at) < GUESS_PERIOD
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Nanos;
    use std::net::Ipv4Addr;

    fn network(number: usize) -> IpAddr {
        Ipv4Addr::from_bits(u32::try_from(number).expect("a small number")).into()
    }

    #[test]
    fn ten_wrong_secrets_in_a_minute_are_the_last() {
        let attempts = Attempts::default();
        let at = |seconds| Time::ZERO + Nanos::from_secs(seconds);
        for second in 0..10 {
            assert!(attempts.may_try(network(1), at(second)), "{second}");
            attempts.note_wrong(network(1), at(second));
        }
        assert!(!attempts.may_try(network(1), at(59)));
        assert!(attempts.may_try(network(2), at(59)), "another address");
        assert!(
            attempts.may_try(network(1), at(60)),
            "the first is a minute old"
        );
        attempts.note_wrong(network(1), at(60));
        assert!(!attempts.may_try(network(1), at(60)));
        assert!(attempts.may_try(network(1), at(61)));
    }

    #[test]
    fn the_table_is_bounded() {
        let attempts = Attempts::default();
        for number in 0..3 * GUESSERS {
            attempts.note_wrong(network(number), Time(number as u64));
        }
        let known = attempts.lock();
        assert_eq!(known.len(), GUESSERS);
        assert!(known.contains_key(&network(3 * GUESSERS - 1)), "the newest");
        assert!(!known.contains_key(&network(0)), "the oldest");
    }
}
