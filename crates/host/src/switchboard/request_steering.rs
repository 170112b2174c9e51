//! Loads of the egresses for request and application steering, readable by every core. `[blk-switch
//! §3.2, §3.3]`
//!
//! Each number is written only by the dataplane thread of its core, and read without ordering: a
//! steering decision is as good as its numbers are recent, and correct with any of them.

use crate::switchboard::limits::TARGETS_MAX;
use base::Time;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use switch::load::ClassLoad;
use switch::request_steering::Loads;
use switch::{Class, PerClass};

/// One core's numbers, on separate cache lines, because it writes them for every request.
#[derive(Debug)]
#[repr(align(128))]
struct CoreNumbers {
    /// Bytes outstanding in the `Throughput` egress to each target.
    throughput: [AtomicU64; TARGETS_MAX],
    /// Requests waiting in the caravan of that egress.
    waiting: [AtomicU32; TARGETS_MAX],
    /// Bytes outstanding in all egresses, by class.
    outstanding: PerClass<AtomicU64>,
    /// Moving average of those bytes, sampled at each arrival.
    average: PerClass<SharedLoad>,
    /// True if the egress to a target has no queue: its requests fail.
    refused: PerClass<[AtomicBool; TARGETS_MAX]>,
}

/// The numbers of all cores of a switchboard.
#[derive(Debug)]
pub(super) struct LoadTable {
    cores: Vec<CoreNumbers>,
    direct: Vec<DirectAccount>,
    /// Largest number of submitters with `Latency` work on a core that may use direct lanes.
    direct_submitters_max: AtomicU32,
}

impl LoadTable {
    pub(super) fn new(cores: usize) -> Self {
        let core = |_| CoreNumbers {
            throughput: [const { AtomicU64::new(0) }; TARGETS_MAX],
            waiting: [const { AtomicU32::new(0) }; TARGETS_MAX],
            outstanding: PerClass::from_fn(|_| AtomicU64::new(0)),
            average: PerClass::from_fn(|_| SharedLoad::default()),
            refused: PerClass::from_fn(|_| [const { AtomicBool::new(false) }; TARGETS_MAX]),
        };
        Self {
            cores: (0..cores).map(core).collect(),
            direct: (0..cores).map(|_| DirectAccount::default()).collect(),
            direct_submitters_max: AtomicU32::new(0),
        }
    }

    /// Sets that number.
    pub(super) fn set_direct_submitters_max(&self, submitters: u32) {
        self.direct_submitters_max
            .store(submitters, Ordering::Relaxed);
    }

    /// Returns the account of a core's submitters with `Latency` work.
    #[inline]
    pub(super) fn direct(&self, core: usize) -> &DirectAccount {
        &self.direct[core]
    }

    /// Returns true if a core has few enough submitters with `Latency` work for direct lanes.
    #[inline]
    pub(super) fn has_few_submitters(&self, core: usize) -> bool {
        self.direct[core].submitters() <= self.direct_submitters_max.load(Ordering::Relaxed)
    }

    /// Returns true if, in addition, no `Throughput` work is outstanding on the core.
    #[inline]
    pub(super) fn is_alone(&self, core: usize) -> bool {
        let throughput = &self.cores[core].outstanding[Class::Throughput];
        self.has_few_submitters(core) && throughput.load(Ordering::Relaxed) == 0
    }

    /// Counts the arrival of a request at the core's egress to a target.
    #[inline]
    pub(super) fn note_came(
        &self,
        core: usize,
        target: usize,
        class: Class,
        bytes: u64,
        now: Time,
    ) {
        let numbers = &self.cores[core];
        let add = |number: &AtomicU64| {
            let new = number.load(Ordering::Relaxed).saturating_add(bytes);
            number.store(new, Ordering::Relaxed);
            new
        };
        let outstanding = add(&numbers.outstanding[class]);
        numbers.average[class].sample(now, outstanding);
        if class.properties().steered {
            add(&numbers.throughput[target]);
        }
    }

    /// Counts the end of a request of the core's egress to a target.
    #[inline]
    pub(super) fn note_over(&self, core: usize, target: usize, class: Class, bytes: u64) {
        let numbers = &self.cores[core];
        let subtract = |number: &AtomicU64| {
            let new = number.load(Ordering::Relaxed).saturating_sub(bytes);
            number.store(new, Ordering::Relaxed);
        };
        subtract(&numbers.outstanding[class]);
        if class.properties().steered {
            subtract(&numbers.throughput[target]);
        }
    }

    /// Sets the number of requests waiting in the caravan of the core's `Throughput` egress to a
    /// target.
    #[inline]
    pub(super) fn note_waiting(&self, core: usize, target: usize, requests: u32) {
        self.cores[core].waiting[target].store(requests, Ordering::Relaxed);
    }

    /// Sets whether the core's egress to a target has no queue for requests of this class.
    pub(super) fn note_refused(&self, core: usize, target: usize, class: Class, refused: bool) {
        self.cores[core].refused[class][target].store(refused, Ordering::Release);
    }

    /// Clears the numbers of the core's removed egress to a target, because the target number may
    /// be reused.
    pub(super) fn forget(&self, core: usize, target: usize) {
        self.note_waiting(core, target, 0);
        for class in Class::ALL {
            self.note_refused(core, target, class, false);
        }
    }

    /// Returns true if requests of this class have no queue there.
    pub(super) fn is_refused(&self, core: usize, target: usize, class: Class) -> bool {
        self.cores[core].refused[class][target].load(Ordering::Acquire)
    }

    /// Returns the average load of a core in bytes, by class, including direct lanes.
    pub(super) fn averages(&self, core: usize, now: Time) -> PerClass<u64> {
        PerClass::from_fn(|class| {
            let shared = self.cores[core].average[class].bytes(now);
            match class {
                Class::Latency => shared + self.direct[core].load_bytes(now),
                Class::Throughput => shared,
            }
        })
    }

    /// Returns the `Latency` bytes outstanding on a core, including direct lanes.
    pub(super) fn latency_bytes(&self, core: usize) -> u64 {
        let shared = self.cores[core].outstanding[Class::Latency].load(Ordering::Relaxed);
        shared + self.direct[core].bytes()
    }

    /// Returns the numbers of the egresses to one target, for request steering.
    pub(super) fn to(&self, target: usize) -> TargetLoads<'_> {
        TargetLoads {
            board: self,
            target,
        }
    }
}

/// The egresses to one target.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetLoads<'a> {
    board: &'a LoadTable,
    target: usize,
}

impl Loads for TargetLoads<'_> {
    fn cores(&self) -> usize {
        self.board.cores.len()
    }

    #[inline]
    fn throughput_bytes(&self, core: usize) -> Option<u64> {
        let numbers = &self.board.cores[core];
        Some(numbers.throughput[self.target].load(Ordering::Relaxed))
    }

    fn latency_bytes(&self, core: usize) -> u64 {
        self.board.latency_bytes(core)
    }

    fn waiting_requests(&self, core: usize) -> u32 {
        self.board.cores[core].waiting[self.target].load(Ordering::Relaxed)
    }
}

/// The account of one core's submitters with `Latency` work, on separate cache lines, because the
/// submitters change it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct DirectAccount {
    /// Submitters with `Latency` work on the core.
    submitters: AtomicU32,
    /// Bytes outstanding in direct lanes.
    bytes: AtomicU64,
    /// Moving average of those bytes.
    average: SharedLoad,
    /// Requests submitted to direct lanes.
    requests: AtomicU64,
}

impl DirectAccount {
    /// Adds a submitter to the core.
    pub(super) fn enter(&self) {
        self.submitters.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a submitter from the core.
    pub(super) fn leave(&self) {
        self.submitters.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of submitters with `Latency` work on the core.
    pub(super) fn submitters(&self) -> u32 {
        self.submitters.load(Ordering::Relaxed)
    }

    /// Counts a request submitted to a direct lane.
    #[inline]
    pub(super) fn begin(&self, bytes: u64, now: Time) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.average.sample(now, before + bytes);
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of such a request.
    #[inline]
    pub(super) fn end(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes outstanding.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the average load of direct lanes in bytes.
    pub(super) fn load_bytes(&self, now: Time) -> u64 {
        self.average.bytes(now)
    }

    /// Returns the number of requests since the start.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// A load in bytes, sampled as requests come.
///
/// Meant for one writer. If several threads sample it at once, a sample may be lost; the load is
/// then a recent one.
#[derive(Debug, Default)]
pub(super) struct SharedLoad {
    /// [`ClassLoad::to_words`].
    words: [AtomicU64; 2],
}

impl SharedLoad {
    /// Samples the load at the arrival of a request; `outstanding_bytes` are then outstanding.
    #[inline]
    pub(super) fn sample(&self, now: Time, outstanding_bytes: u64) {
        let mut load = self.load();
        load.sample(now, outstanding_bytes);
        for (word, value) in self.words.iter().zip(load.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the average in bytes; 0 after a second without a request.
    pub(super) fn bytes(&self, now: Time) -> u64 {
        self.load().bytes(now)
    }

    #[inline]
    fn load(&self) -> ClassLoad {
        let [scaled, last] = &self.words;
        ClassLoad::from_words([scaled.load(Ordering::Relaxed), last.load(Ordering::Relaxed)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_and_class_has_its_own_number() {
        let board = LoadTable::new(2);
        let now = Time(5_000_000_000);
        board.note_came(0, 3, Class::Throughput, 65_536, now);
        board.note_came(0, 3, Class::Latency, 4_096, now);
        board.note_came(1, 4, Class::Throughput, 10, now);
        assert_eq!(board.to(3).throughput_bytes(0), Some(65_536));
        assert_eq!(board.to(4).throughput_bytes(0), Some(0));
        assert_eq!(board.to(4).throughput_bytes(1), Some(10));
        assert_eq!(board.to(3).latency_bytes(0), 4_096);
        board.note_over(0, 3, Class::Throughput, 65_536);
        assert_eq!(board.to(3).throughput_bytes(0), Some(0));
    }

    #[test]
    fn loads_are_sampled_as_requests_come_and_not_at_a_look() {
        let board = LoadTable::new(1);
        let now = Time(5_000_000_000);
        // Bursts of 16 requests that end before the next sample.
        for _ in 0..10 {
            for _ in 0..16 {
                board.note_came(0, 0, Class::Throughput, 65_536, now);
            }
            for _ in 0..16 {
                board.note_over(0, 0, Class::Throughput, 65_536);
            }
        }
        let load = board.averages(0, now)[Class::Throughput];
        assert!(load > 8 * 65_536 && load <= 16 * 65_536, "{load}");
        assert_eq!(
            board.averages(0, now)[Class::Throughput],
            load,
            "a look changes nothing"
        );
        // A direct lane counts for its core, and its load decays once it has no traffic.
        for _ in 0..40 {
            board.direct(0).begin(4_096, now);
            board.direct(0).end(4_096);
        }
        let latency = board.averages(0, now)[Class::Latency];
        assert!(latency > 4_000 && latency <= 4_096, "{latency}");
        let silent = now + base::Nanos::from_secs(1);
        assert_eq!(board.averages(0, silent), PerClass::of([0, 0]));
    }

    #[test]
    fn few_submitters_without_throughput_work_beside_them_are_alone() {
        let board = LoadTable::new(2);
        board.direct(0).enter();
        assert!(!board.is_alone(0), "none may send for itself");
        board.set_direct_submitters_max(1);
        assert!(board.is_alone(0));
        board.note_came(1, 0, Class::Throughput, 512, Time::ZERO);
        assert!(board.is_alone(0), "another core's");
        board.note_came(0, 0, Class::Throughput, 512, Time::ZERO);
        assert!(!board.is_alone(0));
        board.note_over(0, 0, Class::Throughput, 512);
        assert!(board.is_alone(0));
        board.direct(0).enter();
        assert!(!board.is_alone(0));
        board.direct(0).leave();
        assert!(board.is_alone(0));
    }
}
