//! Which hosts ask a core for little, and how much of what others ask for one turn may take beside
//! them.
//!
//! A turn of a core is as long as what arrived for it, so a host that keeps deep queues full makes
//! every other host wait for all of them. Beside a host that asks for little, one receive from a
//! host that asks for much brings as many commands as fit into a caravan, and a turn takes one such
//! receive: the light host waits for one caravan at most, as a `Latency` request waits for one of
//! `Throughput`. Where all hosts ask for much, or there is only one, nothing is held back.
//!
//! One [`LightHosts`] for each core of a target, told of every receive that brought commands. Must
//! never: hold a host back for its own light queues; or beside a host from which nothing came for
//! [`LIGHT_HOST_WINDOW`].

use crate::limits::{CARAVAN_BYTES, CONTROL_QUANTUM_BYTES, LIGHT_HOST_WINDOW, LIGHT_RECEIVE_BYTES};
use base::Time;
use std::num::NonZeroUsize;

/// Commands that one receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Number of commands.
    pub commands: u64,
    /// Bytes of data that they move.
    pub data_bytes: u64,
    /// Bytes received: capsules, with the data inside of them.
    pub received_bytes: u64,
}

impl Asked {
    /// Returns true if the receive asks for so little that it can delay another host by no more
    /// than a fraction of a caravan.
    #[inline]
    const fn is_light(self) -> bool {
        self.data_bytes <= LIGHT_RECEIVE_BYTES
    }

    /// Returns true if the receive asks for as much as a host that is held back gets in one.
    #[inline]
    const fn is_heavy(self) -> bool {
        self.data_bytes >= CARAVAN_BYTES / 2
    }

    /// Returns the bytes that a receive takes to bring about a caravan of such commands: one
    /// command at least.
    fn quantum(self) -> NonZeroUsize {
        let commands = self.commands.max(1);
        let data = (self.data_bytes / commands).max(1);
        let capsule = (self.received_bytes / commands).max(1);
        let bytes = (CARAVAN_BYTES / data).max(1).saturating_mul(capsule);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        NonZeroUsize::new(bytes).unwrap_or(NonZeroUsize::MIN)
    }
}

/// Hosts that asked a core for little, lately.
#[derive(Clone, Copy, Debug, Default)]
pub struct LightHosts {
    /// The last two different ones, the latest first, each with the time at which it asked: enough
    /// to know whether there is one beside any given host.
    latest: [Option<(u64, Time)>; 2],
}

impl LightHosts {
    /// Notes what a receive of the host with this number brought. Returns the quantum of the next
    /// receives on that connection, in bytes; `None` for no quantum.
    #[inline]
    pub fn asked(&mut self, host: u64, asked: Asked, now: Time) -> Option<NonZeroUsize> {
        if asked.commands == 0 {
            // A new queue, of which nothing is known either.
            return self.control_quantum(host, now);
        }
        if asked.is_light() {
            self.note(host, now);
            return None;
        }
        let held_back = asked.is_heavy() && self.any_beside(host, now);
        held_back.then(|| asked.quantum())
    }

    /// Returns the quantum of receives on a connection of the host that is no I/O queue, or none
    /// yet: such commands and connections are work for the core, of which nothing is known before.
    #[inline]
    #[must_use]
    pub fn control_quantum(&self, host: u64, now: Time) -> Option<NonZeroUsize> {
        let quantum = NonZeroUsize::new(CONTROL_QUANTUM_BYTES)?;
        self.any_beside(host, now).then_some(quantum)
    }

    /// Returns true if a host other than this one asked for little within [`LIGHT_HOST_WINDOW`].
    #[inline]
    fn any_beside(&self, host: u64, now: Time) -> bool {
        let lately =
            |&(other, at): &(u64, Time)| other != host && now.since(at) < LIGHT_HOST_WINDOW;
        self.latest.iter().flatten().any(lately)
    }

    #[inline]
    fn note(&mut self, host: u64, now: Time) {
        if self.latest[0].is_some_and(|(latest, _)| latest != host) {
            self.latest[1] = self.latest[0];
        }
        self.latest[0] = Some((host, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Nanos;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const LIGHT: Asked = Asked {
        commands: 1,
        data_bytes: 4096,
        received_bytes: 72,
    };

    fn reads(commands: u64) -> Asked {
        Asked {
            commands,
            data_bytes: commands * 4096,
            received_bytes: commands * 72,
        }
    }

    #[test]
    fn a_deep_queue_brings_a_caravan_at_a_time_beside_a_light_host() {
        let mut hosts = LightHosts::default();
        let now = Time(1_000_000);
        assert_eq!(hosts.asked(1, reads(128), now), None);
        assert_eq!(hosts.asked(2, LIGHT, now), None);
        let quantum = hosts.asked(1, reads(128), now).map(NonZeroUsize::get);
        assert_eq!(quantum, Some(16 * 72));
        // It stays so while receives bring just that.
        assert_eq!(
            hosts.asked(1, reads(16), now).map(NonZeroUsize::get),
            quantum
        );
        // A queue that has just been connected is not trusted with more.
        let nothing = Asked {
            commands: 0,
            data_bytes: 0,
            received_bytes: 1096,
        };
        let quantum = hosts.asked(3, nothing, now).map(NonZeroUsize::get);
        assert_eq!(quantum, Some(CONTROL_QUANTUM_BYTES));
        assert!(!hosts.any_beside(2, now), "asking for nothing is not light");
        // The light host's own bulk is not held back for its own sake.
        assert_eq!(hosts.asked(2, reads(128), now), None);
        assert_eq!(hosts.asked(1, reads(128), now + LIGHT_HOST_WINDOW), None);
    }

    #[test]
    fn a_command_larger_than_a_caravan_comes_alone() {
        let mut hosts = LightHosts::default();
        let now = Time(1_000_000);
        hosts.asked(2, LIGHT, now);
        let large = Asked {
            commands: 8,
            data_bytes: 8 << 20,
            received_bytes: 8 * 72,
        };
        assert_eq!(hosts.asked(1, large, now).map(NonZeroUsize::get), Some(72));
    }

    proptest! {
        /// Against the obvious account: the time at which each host was light last.
        #[test]
        fn a_host_is_held_back_only_beside_another_light_one(
            steps in prop::collection::vec((0_u64..4, 1_u64..200, 0_u64..2_000_000), 1..200)
        ) {
            let mut hosts = LightHosts::default();
            let mut light = BTreeMap::new();
            let mut now = Time(1_000_000_000);
            for (host, commands, later) in steps {
                now = now + Nanos(later);
                let asked = reads(commands);
                let beside = light.iter().any(|(&other, &at): (&u64, &Time)| {
                    other != host && now.since(at) < LIGHT_HOST_WINDOW
                });
                let quantum = hosts.asked(host, asked, now);
                if asked.data_bytes <= LIGHT_RECEIVE_BYTES {
                    light.insert(host, now);
                    prop_assert_eq!(quantum, None);
                } else {
                    let heavy = asked.data_bytes >= CARAVAN_BYTES / 2;
                    prop_assert_eq!(quantum.is_some(), heavy && beside);
                    prop_assert!(quantum.is_none_or(|bytes| bytes.get() % 72 == 0));
                }
            }
        }
    }
}
