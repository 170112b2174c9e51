//! The target's threads in use, published for all threads.
//!
//! The first thread decides ([`switch::thread_scaling`]) and writes; all threads read. The values
//! are only hints: a queue that arrives on an unused thread is served there and passed on.
//! Invariant: no thread waits for these values.

use crate::stats::{PerCore, counters};
use base::Time;
use base::units::CoreId;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use switch::limits::THREAD_SCALING_PERIOD;
use switch::thread_scaling::{self, ThreadLoad, ThreadRange, ThreadScalingCounters};
use switch::{Class, Knobs, PerClass};

counters! {
    /// The threads of a target at one moment.
    pub struct ThreadsSnapshot {
        /// Threads in use; the first N threads are used.
        active => Gauge "threads_active",
        /// Minimum number of threads in use.
        min => Gauge "threads_min",
        /// Maximum number of threads in use.
        max => Gauge "threads_max",
        /// Threads that were taken into use.
        grown => Counter "threads_grown",
        /// Threads that were put to sleep.
        shrunk => Counter "threads_shrunk",
        /// Times that a busy thread moved queues to another thread in use.
        balanced => Counter "threads_balanced",
    }
}

/// State of the threads in use.
#[derive(Debug)]
pub(crate) struct Threads {
    /// The operator named the cores.
    named: AtomicBool,
    active: AtomicUsize,
    grown: AtomicU64,
    shrunk: AtomicU64,
    balanced: AtomicU64,
    each: PerCore<SharedThread>,
    queues: Arc<PerCore<QueueCounts>>,
}

/// Number of I/O queues of one thread, including those moving to it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct QueueCounts(PerClass<AtomicUsize>);

/// An I/O queue in the count of the thread that has or gets it; uncounted when dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    queues: Arc<PerCore<QueueCounts>>,
    thread: usize,
    class: Class,
}

impl Counted {
    /// Moves the queue to another thread's count.
    pub(crate) fn move_to(&mut self, thread: usize) {
        self.add(1, thread);
        self.add(-1, self.thread);
        self.thread = thread;
    }

    fn add(&self, more: isize, thread: usize) {
        let count = &self.queues.of(thread).0[self.class];
        // Adding a negative value wraps around to a smaller count.
        count.fetch_add(more.cast_unsigned(), Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.add(-1, self.thread);
    }
}

/// One thread, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct SharedThread {
    /// The core of the machine that the thread is pinned to.
    core: OnceLock<CoreId>,
    busy_permille: AtomicU32,
    smallest_permille: AtomicU32,
    late: AtomicBool,
    /// Time of publication, in nanoseconds of the drivers' clock.
    at: AtomicU64,
    /// Thread that receives its queues when it is not in use.
    successor: AtomicUsize,
}

impl Threads {
    /// Creates the state with all threads in use, on cores that the operator named.
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            named: AtomicBool::new(true),
            active: AtomicUsize::new(cores),
            grown: AtomicU64::new(0),
            shrunk: AtomicU64::new(0),
            balanced: AtomicU64::new(0),
            each: PerCore::new(cores),
            queues: Arc::new(PerCore::new(cores)),
        }
    }

    /// Sets whether the operator named the cores.
    pub(crate) fn set_named(&self, named: bool) {
        self.named.store(named, Ordering::Relaxed);
    }

    /// Records that a thread is pinned to this core of the machine.
    pub(crate) fn stays_on(&self, thread: usize, core: CoreId) {
        // Set once, during set-up.
        let _ = self.each.of(thread).core.set(core);
    }

    /// Returns the bounds of the number of threads for these knobs.
    pub(crate) fn range(&self, knobs: &Knobs) -> ThreadRange {
        let named = self.named.load(Ordering::Relaxed);
        knobs.target_threads.on(self.each.len(), named)
    }

    /// Returns the number of threads in use: the first N, at least 1.
    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed).max(1)
    }

    /// Publishes a decision.
    pub(crate) fn set_active(&self, active: usize, counters: &ThreadScalingCounters) {
        self.active.store(active, Ordering::Relaxed);
        self.grown.store(counters.grown, Ordering::Relaxed);
        self.shrunk.store(counters.shrunk, Ordering::Relaxed);
        self.balanced.store(counters.balanced, Ordering::Relaxed);
    }

    /// Counts a queue on a thread.
    pub(crate) fn count(&self, class: Class, thread: usize) -> Counted {
        let counted = Counted {
            queues: Arc::clone(&self.queues),
            thread,
            class,
        };
        counted.add(1, thread);
        counted
    }

    /// Returns the thread that is pinned to this core of the machine.
    pub(crate) fn on(&self, core: CoreId) -> Option<usize> {
        let mut cores = self.each.iter().map(|thread| thread.core.get());
        cores.position(|its| its == Some(&core))
    }

    /// Returns the core of the machine that a thread is pinned to; `None` before its set-up.
    pub(crate) fn core_of(&self, thread: usize) -> Option<CoreId> {
        self.each.of(thread).core.get().copied()
    }

    /// Returns the thread in use that should get a new queue; `queue` is its current count.
    pub(crate) fn deal(&self, queue: &Counted) -> usize {
        let counts = self.queues.iter().take(self.active());
        let others = counts.zip(0..).map(|(counts, thread)| {
            let count = |class| {
                let itself = usize::from(thread == queue.thread && class == queue.class);
                let count = counts.0[class].load(Ordering::Relaxed);
                count.saturating_sub(itself)
            };
            PerClass::from_fn(count)
        });
        thread_scaling::deal(queue.class, others).unwrap_or(0)
    }

    /// Returns the thread that gets the queues of an unused thread.
    pub(crate) fn successor(&self, thread: usize) -> usize {
        self.each.of(thread).successor.load(Ordering::Relaxed)
    }

    /// Sets the thread that gets the queues of a thread which leaves use.
    pub(crate) fn set_successor(&self, thread: usize, successor: usize) {
        self.each
            .of(thread)
            .successor
            .store(successor, Ordering::Relaxed);
    }

    /// Publishes the work of a thread in its last period.
    pub(crate) fn publish(&self, thread: usize, now: Time, did: ThreadLoad) {
        let shared = self.each.of(thread);
        let relaxed = Ordering::Relaxed;
        shared.busy_permille.store(did.busy_permille, relaxed);
        let smallest = did.smallest_permille;
        shared.smallest_permille.store(smallest, relaxed);
        shared.late.store(did.late, relaxed);
        shared.at.store(now.0, relaxed);
    }

    /// Returns the work of every thread in its last period; zero for a thread that has published
    /// nothing for longer than a period. The numbers may be from different periods.
    pub(crate) fn did(&self, now: Time) -> impl Iterator<Item = ThreadLoad> {
        self.each.iter().map(move |shared| {
            let at = Time(shared.at.load(Ordering::Relaxed));
            if now.since(at).0 >= 2 * THREAD_SCALING_PERIOD.0 {
                return ThreadLoad::IDLE;
            }
            ThreadLoad {
                busy_permille: shared.busy_permille.load(Ordering::Relaxed),
                smallest_permille: shared.smallest_permille.load(Ordering::Relaxed),
                late: shared.late.load(Ordering::Relaxed),
            }
        })
    }

    pub(crate) fn snapshot(&self, knobs: &Knobs) -> ThreadsSnapshot {
        let range = self.range(knobs);
        ThreadsSnapshot {
            active: self.active() as u64,
            min: range.min as u64,
            max: range.max as u64,
            grown: self.grown.load(Ordering::Relaxed),
            shrunk: self.shrunk.load(Ordering::Relaxed),
            balanced: self.balanced.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_thread_has_nothing_to_do() {
        let threads = Threads::new(2);
        let now = Time(5_000_000_000);
        let did = ThreadLoad {
            busy_permille: 900,
            smallest_permille: 10,
            late: true,
        };
        threads.publish(1, now, did);
        let seen = |now| threads.did(now).collect::<Vec<_>>();
        assert_eq!(seen(now + THREAD_SCALING_PERIOD), [ThreadLoad::IDLE, did]);
        let later = now + THREAD_SCALING_PERIOD + THREAD_SCALING_PERIOD;
        assert_eq!(seen(later), [ThreadLoad::IDLE; 2]);
    }

    #[test]
    fn queues_are_counted_where_they_are_or_go() {
        let threads = Threads::new(2);
        let mut queues: Vec<_> = Class::ALL
            .into_iter()
            .cycle()
            .take(4)
            .map(|class| {
                let mut queue = threads.count(class, 0);
                queue.move_to(threads.deal(&queue));
                queue
            })
            .collect();
        let places: Vec<_> = queues.iter().map(|queue| queue.thread).collect();
        assert_eq!(places, [0, 1, 0, 1]);
        // A queue that leaves frees a place; a queue that stays keeps its count.
        queues.truncate(1);
        let mut queue = threads.count(Class::Throughput, 0);
        assert_eq!(threads.deal(&queue), 1);
        queue.move_to(1);
        queue.move_to(0);
        drop((queues, queue));
        let counts = threads.queues.iter().flat_map(|counts| counts.0.iter());
        assert!(
            counts
                .into_iter()
                .all(|(_, count)| count.load(Ordering::Relaxed) == 0)
        );
    }

    #[test]
    fn a_thread_is_found_by_its_core() {
        let threads = Threads::new(3);
        threads.stays_on(0, CoreId(5));
        threads.stays_on(2, CoreId(0));
        let on = |core| threads.on(CoreId(core));
        assert_eq!((on(5), on(0), on(1)), (Some(0), Some(2), None));
    }

    #[test]
    fn cores_that_were_not_named_are_used_as_needed() {
        let threads = Threads::new(4);
        let range = |min, max| ThreadRange { min, max };
        assert_eq!(threads.range(&Knobs::default()), range(4, 4));
        threads.set_named(false);
        assert_eq!(threads.range(&Knobs::default()), range(1, 4));
    }
}
