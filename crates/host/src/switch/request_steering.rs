//! Loads of the egresses for request steering, as every core may read them. `[blk-switch §3.2]`
//!
//! Each number has one writer, the dataplane thread of its core, and is read without any order
//! towards anything else: a steering decision is as good as its numbers are fresh, and right with
//! any of them.

use crate::switch::direct_account::DirectAccount;
use crate::switch::limits::TARGETS_MAX;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use switch::request_steering::Loads;
use switch::{Class, PerClass};

/// One core's numbers; on cache lines of its own, because it writes them for every request.
#[derive(Debug)]
#[repr(align(128))]
struct CoreNumbers {
    /// Bytes outstanding in the `Throughput` egress to each target.
    throughput: [AtomicU64; TARGETS_MAX],
    /// Requests that wait in the caravan of that egress.
    waiting: [AtomicU32; TARGETS_MAX],
    /// Bytes outstanding in all egresses, by class.
    outstanding: PerClass<AtomicU64>,
    /// The egress to a target finds no queue: what it is given fails.
    refused: PerClass<[AtomicBool; TARGETS_MAX]>,
}

/// The numbers of all cores of a switchboard.
#[derive(Debug)]
pub(super) struct LoadTable {
    cores: Vec<CoreNumbers>,
    direct: Vec<DirectAccount>,
    /// Submitters with `Latency` work of a core up to which these may send for themselves.
    direct_submitters_max: AtomicU32,
}

impl LoadTable {
    pub(super) fn new(cores: usize) -> Self {
        let core = |_| CoreNumbers {
            throughput: [const { AtomicU64::new(0) }; TARGETS_MAX],
            waiting: [const { AtomicU32::new(0) }; TARGETS_MAX],
            outstanding: PerClass::from_fn(|_| AtomicU64::new(0)),
            refused: PerClass::from_fn(|_| [const { AtomicBool::new(false) }; TARGETS_MAX]),
        };
        Self {
            cores: (0..cores).map(core).collect(),
            direct: (0..cores).map(|_| DirectAccount::default()).collect(),
            direct_submitters_max: AtomicU32::new(0),
        }
    }

    /// Lets so many submitters of a core send for themselves from now on.
    pub(super) fn set_direct_submitters_max(&self, submitters: u32) {
        self.direct_submitters_max
            .store(submitters, Ordering::Relaxed);
    }

    /// The account of a core's submitters with `Latency` work.
    #[inline]
    pub(super) fn direct(&self, core: usize) -> &DirectAccount {
        &self.direct[core]
    }

    /// Returns true if a core has so few submitters with `Latency` work that they may have lanes of
    /// their own.
    #[inline]
    pub(super) fn has_few_submitters(&self, core: usize) -> bool {
        self.direct[core].submitters() <= self.direct_submitters_max.load(Ordering::Relaxed)
    }

    /// Returns true if these have nothing to share the core with: no `Throughput` work is
    /// outstanding there.
    #[inline]
    pub(super) fn is_alone(&self, core: usize) -> bool {
        let throughput = &self.cores[core].outstanding[Class::Throughput];
        self.has_few_submitters(core) && throughput.load(Ordering::Relaxed) == 0
    }

    /// The core's own account of an egress changed by this request: it left, or came back.
    #[inline]
    pub(super) fn note(&self, core: usize, target: usize, class: Class, bytes: u64, left: bool) {
        let numbers = &self.cores[core];
        let change = |number: &AtomicU64| {
            let old = number.load(Ordering::Relaxed);
            let new = if left {
                old.saturating_add(bytes)
            } else {
                old.saturating_sub(bytes)
            };
            number.store(new, Ordering::Relaxed);
        };
        change(&numbers.outstanding[class]);
        if class.properties().steered {
            change(&numbers.throughput[target]);
        }
    }

    /// So many requests wait in the caravan of the core's `Throughput` egress to a target.
    #[inline]
    pub(super) fn note_waiting(&self, core: usize, target: usize, requests: u32) {
        self.cores[core].waiting[target].store(requests, Ordering::Relaxed);
    }

    /// The core's egress to a target finds no queue for requests of this class, or finds one again.
    pub(super) fn note_refused(&self, core: usize, target: usize, class: Class, refused: bool) {
        self.cores[core].refused[class][target].store(refused, Ordering::Release);
    }

    /// The core has no egress to a target any more: the number may be another one's.
    pub(super) fn forget(&self, core: usize, target: usize) {
        self.note_waiting(core, target, 0);
        for class in Class::ALL {
            self.note_refused(core, target, class, false);
        }
    }

    /// Returns true if requests of this class find no queue there.
    pub(super) fn is_refused(&self, core: usize, target: usize, class: Class) -> bool {
        self.cores[core].refused[class][target].load(Ordering::Acquire)
    }

    /// Bytes outstanding on a core, by class.
    pub(super) fn outstanding(&self, core: usize) -> PerClass<u64> {
        PerClass::from_fn(|class| match class {
            Class::Latency => self.latency_bytes(core),
            Class::Throughput => self.cores[core].outstanding[class].load(Ordering::Relaxed),
        })
    }

    fn latency_bytes(&self, core: usize) -> u64 {
        let shared = self.cores[core].outstanding[Class::Latency].load(Ordering::Relaxed);
        shared + self.direct[core].bytes()
    }

    /// The numbers of the egresses to one target, as steering asks for them.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_and_class_has_its_own_number() {
        let board = LoadTable::new(2);
        board.note(0, 3, Class::Throughput, 65_536, true);
        board.note(0, 3, Class::Latency, 4_096, true);
        board.note(1, 4, Class::Throughput, 10, true);
        assert_eq!(board.to(3).throughput_bytes(0), Some(65_536));
        assert_eq!(board.to(4).throughput_bytes(0), Some(0));
        assert_eq!(board.to(4).throughput_bytes(1), Some(10));
        assert_eq!(board.to(3).latency_bytes(0), 4_096);
        assert_eq!(board.outstanding(0), PerClass::of([4_096, 65_536]));
        board.note(0, 3, Class::Throughput, 65_536, false);
        assert_eq!(board.outstanding(0), PerClass::of([4_096, 0]));
    }

    #[test]
    fn few_submitters_without_throughput_work_beside_them_are_alone() {
        let board = LoadTable::new(2);
        board.direct(0).enter();
        assert!(!board.is_alone(0), "none may send for itself");
        board.set_direct_submitters_max(1);
        assert!(board.is_alone(0));
        board.note(1, 0, Class::Throughput, 512, true);
        assert!(board.is_alone(0), "another core's");
        board.note(0, 0, Class::Throughput, 512, true);
        assert!(!board.is_alone(0));
        board.note(0, 0, Class::Throughput, 512, false);
        assert!(board.is_alone(0));
        board.direct(0).enter();
        assert!(!board.is_alone(0));
        board.direct(0).leave();
        assert!(board.is_alone(0));
    }
}
