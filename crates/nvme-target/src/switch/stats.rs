//! Counters of the switch of a core, by class: for people and for metrics.
//!
//! Plain numbers that their core alone counts. Now and then it publishes a copy, under a lock that
//! it only ever tries: a reader of a snapshot never holds a core up.

use base::Time;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use switch::limits::LOAD_RESET;
use switch::{Class, PerClass, class_scheduler, doorbell};

/// Counters of one core's switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchStats {
    /// Counters by class. An I/O queue without a named class counts as
    /// [`Class::DEFAULT`](switch::Class::DEFAULT).
    pub classes: PerClass<ClassStats>,
    /// Steps of application steering: each core steers its own queues.
    pub steering_steps: u64,
    /// Queues that thread scaling brought here from another core.
    pub scaled_in: u64,
    /// Queues that thread scaling took from here to another core.
    pub scaled_out: u64,
    /// Times that `Latency` commands came while these were sparse ([`switch::latency_activity`]).
    pub sparse_arrivals: u64,
}

/// Counters of one core's switch for one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// I/O queues open now.
    pub queues: u64,
    /// Bytes of data of commands that were received and not carried out yet. What memory answers
    /// at once never counts.
    pub outstanding_bytes: u64,
    /// `L_c` or `T_c`: the moving average of the bytes outstanding. `[blk-switch §3.3]`
    pub load_bytes: u64,
    /// Caravans that left, why, and how many answers and R2Ts they carried. `[i10 §2.3, §2.4]`
    pub caravans: doorbell::DoorbellCounters,
    /// Service of what arrived, while `Latency` work was near.
    pub receive: ServiceStats,
    /// Service of what was to be sent, while `Latency` work was near.
    pub send: ServiceStats,
    /// Queues that application steering brought here from another core.
    pub moved_in: u64,
    /// Queues that application steering took from here to another core.
    pub moved_out: u64,
}

/// Prioritised service of one class in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceStats {
    /// Grants that were served.
    pub quanta: u64,
    /// Bytes served.
    pub bytes: u64,
    /// Times that the class had more to do when one before it took over.
    pub preemptions: u64,
    /// Grants out of turn, because the floor owed them.
    pub floor_turns: u64,
}

impl ServiceStats {
    /// A class's part of what a scheduler counted.
    pub(crate) fn of(counters: &class_scheduler::ClassSchedulerCounters, class: Class) -> Self {
        Self {
            quanta: counters.quanta[class],
            bytes: counters.bytes[class],
            preemptions: counters.preemptions[class],
            floor_turns: counters.floor_grants[class],
        }
    }

    /// Adds another core's numbers.
    pub fn add(&mut self, other: &Self) {
        self.quanta += other.quanta;
        self.bytes += other.bytes;
        self.preemptions += other.preemptions;
        self.floor_turns += other.floor_turns;
    }
}

impl ClassStats {
    /// Adds another core's numbers.
    pub fn add(&mut self, other: &Self) {
        self.queues += other.queues;
        self.outstanding_bytes += other.outstanding_bytes;
        self.load_bytes += other.load_bytes;
        self.caravans.merge(&other.caravans);
        self.receive.add(&other.receive);
        self.send.add(&other.send);
        self.moved_in += other.moved_in;
        self.moved_out += other.moved_out;
    }
}

impl SwitchStats {
    /// Adds another core's numbers.
    pub fn add(&mut self, other: &Self) {
        for (class, stats) in self.classes.iter_mut() {
            stats.add(&other.classes[class]);
        }
        self.steering_steps += other.steering_steps;
        self.scaled_in += other.scaled_in;
        self.scaled_out += other.scaled_out;
        self.sparse_arrivals += other.sparse_arrivals;
    }
}

/// One core's published copy.
#[derive(Debug, Default)]
pub(crate) struct SharedSwitchStats(Mutex<SwitchStats>);

impl SharedSwitchStats {
    /// Publishes, unless a reader has it: then the next time does. Returns true if it did.
    pub(crate) fn publish(&self, stats: &SwitchStats) -> bool {
        match self.0.try_lock() {
            Ok(mut published) => *published = *stats,
            // Plain numbers: whatever a panicking reader left is what we wrote.
            Err(TryLockError::Poisoned(poisoned)) => *poisoned.into_inner() = *stats,
            Err(TryLockError::WouldBlock) => return false,
        }
        true
    }

    pub(crate) fn load(&self) -> SwitchStats {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Load of each class on one core, published for the others: on cache lines of its own.
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

    /// The loads in bytes; none of a core that has not said anything for [`LOAD_RESET`]. The
    /// numbers may be of different steps: they only hint.
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
