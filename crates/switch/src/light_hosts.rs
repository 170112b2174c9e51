//! Light hosts request little data from a core; while one is active, heavy hosts get a receive
//! quantum.
//!
//! A turn processes everything that has arrived, so a host with deep queues delays all others.
//! Alongside a light host, a receive from a heavy host therefore takes at most one caravan of
//! commands, and a turn takes one such receive: the light host waits for at most one caravan, as a
//! `Latency` request does for `Throughput`. With heavy hosts only, or a single host, there is no
//! quantum. A host is judged by all its recent requests, so light queues do not make a host with
//! deep queues light. One [`LightHosts`] per core of a target. Invariant: a host is never limited
//! for its own light queues, for a heavy host, or for one idle for [`LIGHT_HOST_WINDOW`].

use crate::limits::{
    CARAVAN_BYTES, CONTROL_QUANTUM_BYTES, LIGHT_HOST_BULK_FACTOR, LIGHT_HOST_BYTES,
    LIGHT_HOST_WINDOW, LIGHT_RECEIVE_BYTES,
};
use base::Time;
use std::num::NonZeroUsize;

/// The commands of one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Number of commands.
    pub commands: u64,
    /// Data bytes that they transfer.
    pub data_bytes: u64,
    /// Bytes received: capsules, including in-capsule data.
    pub received_bytes: u64,
}

impl Asked {
    /// Returns true if the receive is so small that it delays another host by at most a fraction of
    /// a caravan.
    #[inline]
    const fn is_light(self) -> bool {
        self.data_bytes <= LIGHT_RECEIVE_BYTES
    }

    /// Returns true if the receive is as large as the quantum of a limited host.
    #[inline]
    const fn is_heavy(self) -> bool {
        self.data_bytes >= CARAVAN_BYTES / 2
    }

    /// Returns the number of received bytes that carry about a caravan of such commands: at least
    /// one command.
    fn quantum(self) -> NonZeroUsize {
        let commands = self.commands.max(1);
        let data = (self.data_bytes / commands).max(1);
        let capsule = (self.received_bytes / commands).max(1);
        let bytes = (CARAVAN_BYTES / data).max(1).saturating_mul(capsule);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        NonZeroUsize::new(bytes).unwrap_or(NonZeroUsize::MIN)
    }
}

/// A host, and its recent requests to a core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// Number of the host, unique on the core.
    number: u64,
    /// Requested data bytes, bulk multiplied by [`LIGHT_HOST_BULK_FACTOR`]; decays by
    /// [`LIGHT_HOST_BYTES`] per [`LIGHT_HOST_WINDOW`].
    bytes: u64,
    /// Time of its last request.
    at: Time,
}

impl Host {
    /// Creates the state of a host without requests; `number` must be unique.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self {
            number,
            bytes: 0,
            at: Time::ZERO,
        }
    }

    /// Counts the commands of a receive.
    #[inline]
    fn count(&mut self, asked: Asked, now: Time) {
        // Capped, so that a host becomes light again after at most two windows.
        let most = 2 * LIGHT_HOST_BYTES;
        let passed = now.since(self.at).0.min(2 * LIGHT_HOST_WINDOW.0);
        let forgotten = passed * LIGHT_HOST_BYTES / LIGHT_HOST_WINDOW.0;
        let factor = match asked.is_light() {
            true => 1,
            false => LIGHT_HOST_BULK_FACTOR,
        };
        let bytes = asked.data_bytes.saturating_mul(factor);
        self.bytes = self.bytes.saturating_sub(forgotten);
        self.bytes = self.bytes.saturating_add(bytes).min(most);
        self.at = now;
    }

    /// Returns true if it is heavy: no other host is limited for its sake.
    #[inline]
    const fn asks_for_much(&self) -> bool {
        self.bytes > LIGHT_HOST_BYTES
    }
}

/// The light hosts that were recently active on a core.
#[derive(Clone, Copy, Debug, Default)]
pub struct LightHosts {
    /// The last two different light hosts, latest first, each with its last request time: enough to
    /// know whether any host has a light one alongside it. When one of them becomes heavy, only the
    /// other is known until a third requests again.
    latest: [Option<(u64, Time)>; 2],
}

impl LightHosts {
    /// Records a host's receive. Returns the quantum of the next receives on that connection, in
    /// bytes; `None` for no quantum.
    #[inline]
    pub fn asked(&mut self, host: &mut Host, asked: Asked, now: Time) -> Option<NonZeroUsize> {
        if asked.commands == 0 {
            // A new queue, whose load is not known yet.
            return self.control_quantum(host, now);
        }
        host.count(asked, now);
        if host.asks_for_much() {
            self.forget(host.number);
        } else if asked.is_light() {
            self.note(host.number, now);
        }
        let held_back = asked.is_heavy() && self.any_beside(host.number, now);
        held_back.then(|| asked.quantum())
    }

    /// Returns the quantum of receives on a host's connection that is not an I/O queue, or not yet
    /// one: such commands cause work that is not known in advance.
    #[inline]
    #[must_use]
    pub fn control_quantum(&self, host: &Host, now: Time) -> Option<NonZeroUsize> {
        let quantum = NonZeroUsize::new(CONTROL_QUANTUM_BYTES)?;
        self.any_beside(host.number, now).then_some(quantum)
    }

    /// Returns true if another light host requested within [`LIGHT_HOST_WINDOW`].
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

    /// Removes a host that is no longer light.
    #[inline]
    fn forget(&mut self, host: u64) {
        for place in &mut self.latest {
            *place = place.filter(|&(other, _)| other != host);
        }
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

    /// A core with four hosts, indexed by number.
    struct Core {
        hosts: [Host; 4],
        light: LightHosts,
    }

    impl Core {
        fn new() -> Self {
            Self {
                hosts: [0, 1, 2, 3].map(Host::new),
                light: LightHosts::default(),
            }
        }

        fn asked(&mut self, host: usize, asked: Asked, now: Time) -> Option<usize> {
            let quantum = self.light.asked(&mut self.hosts[host], asked, now);
            quantum.map(NonZeroUsize::get)
        }
    }

    #[test]
    fn a_deep_queue_brings_a_caravan_at_a_time_beside_a_light_host() {
        let mut core = Core::new();
        let now = Time(1_000_000);
        assert_eq!(core.asked(1, reads(128), now), None);
        assert_eq!(core.asked(2, LIGHT, now), None);
        let quantum = core.asked(1, reads(128), now);
        assert_eq!(quantum, Some(16 * 72));
        // The quantum stays while receives carry just that.
        assert_eq!(core.asked(1, reads(16), now), quantum);
        // A newly connected queue gets no more.
        let nothing = Asked {
            commands: 0,
            data_bytes: 0,
            received_bytes: 1096,
        };
        assert_eq!(core.asked(3, nothing, now), Some(CONTROL_QUANTUM_BYTES));
        assert!(
            !core.light.any_beside(2, now),
            "asking for nothing is not light"
        );
        // The light host's own bulk is not limited for its own sake.
        assert_eq!(core.asked(2, reads(16), now), None);
        assert_eq!(core.asked(1, reads(128), now + LIGHT_HOST_WINDOW), None);
    }

    #[test]
    fn a_command_larger_than_a_caravan_comes_alone() {
        let mut core = Core::new();
        let now = Time(1_000_000);
        core.asked(2, LIGHT, now);
        let large = Asked {
            commands: 8,
            data_bytes: 8 << 20,
            received_bytes: 8 * 72,
        };
        assert_eq!(core.asked(1, large, now), Some(72));
    }

    /// One queue with a single read must not make a host with deep queues light: its deep queues
    /// would then be exempt, and all other hosts limited.
    #[test]
    fn a_host_with_a_deep_queue_is_not_light_by_another_queue() {
        let mut core = Core::new();
        let mut now = Time(1_000_000);
        core.asked(2, LIGHT, now);
        assert_eq!(core.asked(2, reads(128), now), None);
        assert_eq!(core.asked(1, reads(128), now), None);
        // Nor while receives of its deep queue happen to carry one command, or just a caravan.
        for round in 0..1_000 {
            now = now + Nanos::from_micros(50);
            let asked = if round % 4 == 0 { reads(16) } else { LIGHT };
            core.asked(2, asked, now);
            assert_eq!(core.asked(1, reads(128), now), None, "round {round}");
        }
        now = now + LIGHT_HOST_WINDOW + LIGHT_HOST_WINDOW;
        core.asked(2, LIGHT, now);
        assert!(core.asked(1, reads(128), now).is_some(), "it rested");
    }

    #[test]
    fn many_light_queues_are_not_a_light_host() {
        let mut core = Core::new();
        let start = Time(1_000_000);
        let mut now = start;
        // 32 of them, each with a read every 160 µs.
        while now.since(start) < LIGHT_HOST_WINDOW + LIGHT_HOST_WINDOW {
            now = now + Nanos::from_micros(5);
            core.asked(2, LIGHT, now);
        }
        assert_eq!(core.asked(1, reads(128), now), None);
    }

    #[test]
    fn a_host_with_a_read_at_a_time_stays_light_although_one_is_large_now_and_then() {
        let mut core = Core::new();
        let mut now = Time(1_000_000);
        for round in 0..5_000 {
            now = now + Nanos::from_micros(20);
            let asked = if round % 500 == 0 { reads(32) } else { LIGHT };
            core.asked(2, asked, now);
            if round > 0 {
                let held_back = core.asked(1, reads(128), now).is_some();
                assert!(held_back, "round {round}");
            }
        }
    }

    /// Returns a host's recent requests, computed from all its requests.
    fn asked_lately(all: &[(Time, u64)]) -> u64 {
        let mut lately = (Time::ZERO, 0_u64);
        for &(at, bytes) in all {
            let forgotten = u128::from(at.since(lately.0).0) * u128::from(LIGHT_HOST_BYTES)
                / u128::from(LIGHT_HOST_WINDOW.0);
            let forgotten = u64::try_from(forgotten).unwrap_or(u64::MAX);
            let left = lately.1.saturating_sub(forgotten) + bytes;
            lately = (at, left.min(2 * LIGHT_HOST_BYTES));
        }
        lately.1
    }

    proptest! {
        /// Comparison with the obvious bookkeeping: all requests of each host, and when it was last
        /// light.
        #[test]
        fn a_host_is_held_back_only_beside_another_light_one(
            steps in prop::collection::vec((0_usize..4, 1_u64..200, 0_u64..2_000_000), 1..200),
            often_light in any::<bool>(),
        ) {
            let mut core = Core::new();
            let mut all = [const { Vec::new() }; 4];
            let mut light: BTreeMap<usize, Time> = BTreeMap::new();
            // Hosts that have requested since one of them ceased to be light.
            let mut since: BTreeMap<usize, Time> = BTreeMap::new();
            let mut now = Time(1_000_000_000);
            for (host, commands, later) in steps {
                now = now + Nanos(later);
                let commands = if often_light { commands.div_ceil(20) } else { commands };
                let asked = reads(commands);
                let small = asked.data_bytes <= LIGHT_RECEIVE_BYTES;
                let factor = if small { 1 } else { LIGHT_HOST_BULK_FACTOR };
                all[host].push((now, asked.data_bytes * factor));
                if asked_lately(&all[host]) > LIGHT_HOST_BYTES {
                    if light.remove(&host).is_some() {
                        since.clear();
                    }
                } else if small {
                    light.insert(host, now);
                    since.insert(host, now);
                }
                let beside = |hosts: &BTreeMap<usize, Time>| hosts.iter().any(|(&other, &at)| {
                    other != host && now.since(at) < LIGHT_HOST_WINDOW
                });
                let heavy = asked.data_bytes >= CARAVAN_BYTES / 2;
                let quantum = core.asked(host, asked, now);
                prop_assert!(quantum.is_none() || heavy && beside(&light));
                prop_assert!(quantum.is_some() || !heavy || !beside(&since));
                prop_assert!(quantum.is_none_or(|bytes| bytes % 72 == 0));
            }
        }
    }
}
