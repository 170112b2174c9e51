//! Counters of a core's switch, by class.
//!
//! Plain numbers that only their core updates. It periodically publishes a copy under a lock that
//! it only tries to take, so a reader of a snapshot never delays a core.

use crate::stats::counters;
use base::Time;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use switch::limits::LOAD_RESET;
use switch::{Class, PerClass, class_scheduler, doorbell};

counters! {
    /// Counters of one core's switch.
    pub struct SwitchStats {
        /// Steps of application steering: each core steers its own queues.
        steering_steps => Counter "steering_steps",
        /// Queues that thread scaling moved to the core.
        scaled_in => Counter "core_scaled_in",
        /// Queues that thread scaling moved away from the core.
        scaled_out => Counter "core_scaled_out",
        /// Arrivals of `Latency` commands while such commands were sparse, so that concurrent sends
        /// were larger.
        sparse_arrivals => Counter "core_sparse_arrivals",
        ;
        /// Counters by class. An I/O queue whose host named no class counts as
        /// [`Class::DEFAULT`](switch::Class::DEFAULT).
        #[serde(with = "by_class")]
        classes: PerClass<ClassStats>,
    }
}

counters! {
    /// Counters of one core's switch for one class.
    pub struct ClassStats {
        /// Open I/O queues of the class.
        queues => Gauge "class_queues",
        /// Data of received but incomplete commands, in bytes. Commands that are answered
        /// immediately from memory never count.
        outstanding_bytes => Gauge "class_outstanding_bytes",
        /// Moving average of the outstanding bytes: `L_c` or `T_c` of blk-switch §3.3.
        load_bytes => Gauge "class_load_bytes",
        /// Queues that application steering moved to the core.
        moved_in => Counter "class_moves_in",
        /// Queues that application steering moved away from the core.
        moved_out => Counter "class_moves_out",
        ;
        /// Caravans sent. `[i10 §2.3, §2.4]`
        #[serde(with = "caravans")]
        caravans: doorbell::DoorbellCounters,
        /// Service of received data while `Latency` work was active.
        receive: ServiceStats,
        /// Service of output while `Latency` work was active.
        send: ServiceStats,
    }
}

counters! {
    /// Prioritised service of one class in one direction.
    pub struct ServiceStats {
        /// Quanta served while `Latency` work was active.
        quanta => Counter "class_quanta",
        /// Bytes served while `Latency` work was active.
        bytes => Counter "class_served_bytes",
        /// Times that a class of higher priority took over while this class had more to do.
        preemptions => Counter "class_preemptions",
        /// Quanta served out of turn to meet the class's floor.
        floor_turns => Counter "class_floor_turns",
    }
}

impl ServiceStats {
    /// Returns a class's part of a scheduler's counters.
    pub(crate) fn of(counters: &class_scheduler::ClassSchedulerCounters, class: Class) -> Self {
        Self {
            quanta: counters.quanta[class],
            bytes: counters.bytes[class],
            preemptions: counters.preemptions[class],
            floor_turns: counters.floor_grants[class],
        }
    }
}

/// Counters that are summed over cores.
trait Total {
    fn add(&mut self, other: &Self);
}

impl Total for PerClass<ClassStats> {
    fn add(&mut self, other: &Self) {
        for (class, stats) in self.iter_mut() {
            stats.add(&other[class]);
        }
    }
}

impl Total for doorbell::DoorbellCounters {
    fn add(&mut self, other: &Self) {
        self.merge(other);
    }
}

/// A table with an entry for each class, keyed by the class's name.
mod by_class {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;
    use switch::PerClass;

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        table: &PerClass<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            table
                .iter()
                .map(|(class, value)| (class.to_string(), value)),
        )
    }

    pub(super) fn deserialize<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PerClass<T>, D::Error> {
        let mut named = BTreeMap::<String, T>::deserialize(deserializer)?;
        Ok(PerClass::from_fn(|class| {
            named.remove(&class.to_string()).unwrap_or_default()
        }))
    }
}

/// Counters of a doorbell: rings by reason, and caravan sizes with the bounds of their buckets.
mod caravans {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;
    use switch::caravan::SizeHistogram;
    use switch::doorbell::{DoorbellCounters as Counters, Reason};

    #[derive(Default, Deserialize, Serialize)]
    #[serde(default)]
    struct Caravans {
        rings: BTreeMap<String, u64>,
        sizes: Vec<Bucket>,
        requests: u64,
        bytes: u64,
    }

    /// Number of caravans with more requests than the previous bound, and at most this bound.
    #[derive(Deserialize, Serialize)]
    struct Bucket {
        /// The inclusive bound; `None` for the last bucket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        up_to_requests: Option<u64>,
        count: u64,
    }

    pub(super) fn serialize<S: Serializer>(
        counters: &Counters,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let ring = |reason: Reason| (reason.name().to_owned(), counters.rings[reason.index()]);
        let sizes = counters.sizes.buckets().iter().enumerate();
        let caravans = Caravans {
            rings: Reason::ALL.into_iter().map(ring).collect(),
            sizes: sizes
                .map(|(power, &count)| Bucket {
                    up_to_requests: SizeHistogram::bound(power),
                    count,
                })
                .collect(),
            requests: counters.requests,
            bytes: counters.bytes,
        };
        caravans.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Counters, D::Error> {
        let caravans = Caravans::deserialize(deserializer)?;
        let mut counters = Counters {
            requests: caravans.requests,
            bytes: caravans.bytes,
            ..Counters::default()
        };
        for reason in Reason::ALL {
            let rings = caravans.rings.get(reason.name());
            counters.rings[reason.index()] = rings.copied().unwrap_or_default();
        }
        let mut buckets = *counters.sizes.buckets();
        for (bucket, read) in buckets.iter_mut().zip(&caravans.sizes) {
            *bucket = read.count;
        }
        counters.sizes = SizeHistogram::of(buckets);
        Ok(counters)
    }
}

/// One core's published copy.
#[derive(Debug, Default)]
pub(crate) struct SharedSwitchStats(Mutex<SwitchStats>);

impl SharedSwitchStats {
    /// Publishes the counters unless a reader holds the lock. Returns true if it did; otherwise the
    /// caller retries with its next publication.
    pub(crate) fn publish(&self, stats: &SwitchStats) -> bool {
        match self.0.try_lock() {
            Ok(mut published) => *published = *stats,
            // Plain numbers, which a panicking reader cannot leave invalid.
            Err(TryLockError::Poisoned(poisoned)) => *poisoned.into_inner() = *stats,
            Err(TryLockError::WouldBlock) => return false,
        }
        true
    }

    pub(crate) fn load(&self) -> SwitchStats {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Load of each class on one core, published for the other cores, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SharedLoad {
    bytes: PerClass<AtomicU64>,
    /// Time of publication, in nanoseconds of the drivers' clock.
    at: AtomicU64,
}

impl SharedLoad {
    pub(crate) fn publish(&self, now: Time, load: &PerClass<u64>) {
        for (class, &bytes) in load.iter() {
            self.bytes[class].store(bytes, Ordering::Relaxed);
        }
        self.at.store(now.0, Ordering::Relaxed);
    }

    /// Returns the loads in bytes; zero for a core that has published nothing for [`LOAD_RESET`].
    /// The numbers may be from different steps: they are only hints.
    pub(crate) fn load(&self, now: Time) -> PerClass<u64> {
        let at = Time(self.at.load(Ordering::Relaxed));
        let silent = now.since(at) >= LOAD_RESET;
        PerClass::from_fn(|class| {
            let bytes = self.bytes[class].load(Ordering::Relaxed);
            if silent { 0 } else { bytes }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_of_a_silent_core_is_none() {
        let shared = SharedLoad::default();
        let now = Time(5_000_000_000);
        let load = PerClass::from_fn(|_| 7);
        shared.publish(now, &load);
        assert_eq!(shared.load(now), load);
        assert_eq!(shared.load(now + LOAD_RESET), PerClass::default());
    }

    #[test]
    fn a_reader_never_holds_a_core_up_and_cores_add_up() {
        let shared = SharedSwitchStats::default();
        let mut stats = SwitchStats::default();
        stats.classes[Class::Latency].queues = 3;
        let reading = shared.0.lock().expect("nobody panicked");
        assert!(!shared.publish(&stats));
        drop(reading);
        assert!(shared.publish(&stats));
        let mut total = shared.load();
        total.add(&stats);
        assert_eq!(total.classes[Class::Latency].queues, 6);
    }
}
