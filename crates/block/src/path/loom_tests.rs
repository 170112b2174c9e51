//! The election, hand-over, take-over and wake-up of the losers, in the orders that loom's memory
//! model allows with [`SWITCHES`] preemptions. Not modelled: the dispatcher's bell. Run by
//! `scripts/test --all`.

use super::done::Done;
use super::inbox::Inbox;
use super::queue::{Bell, Entry, Look, SharedQueue};
use super::stats::PathStats;
use crate::request::Operation;
use base::units::Lba;
use base::{Nanos, Time};
use loom::sync::Notify;
use reactor::{Region, Wake};
use std::sync::Arc;
use switch::path::{PathRules, Properties, QueueKind, Runner};

/// The sleep of a thread under loom, which reports a thread that is never woken.
pub(crate) struct Sleep(Notify);

impl Sleep {
    pub(crate) fn new() -> Self {
        Self(Notify::new())
    }

    pub(crate) fn wait(&self) {
        self.0.wait();
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sleep")
    }
}

impl Wake for Sleep {
    fn wake(&self) {
        self.0.notify();
    }
}

const READ: Properties = Properties {
    reads: true,
    awaited: true,
};

const NOW: Time = Time(1);

/// Preemptions in one order; more take minutes.
const SWITCHES: usize = 3;

fn queue() -> Arc<SharedQueue> {
    let (bell, stats) = (Arc::new(Bell::default()), Arc::new(PathStats::new()));
    let rules = PathRules::default();
    Arc::new(SharedQueue::new(QueueKind::Temporal, 0, rules, bell, stats))
}

struct Submitter {
    inbox: Arc<Inbox>,
    sleep: Arc<Sleep>,
}

impl Submitter {
    fn new() -> Self {
        let sleep = Arc::new(Sleep::new());
        let waker = Arc::clone(&sleep) as Arc<dyn Wake>;
        let region = Region::new(4096).expect("a page");
        Self {
            inbox: Arc::new(Inbox::new(2, region, waker)),
            sleep,
        }
    }

    fn entry(&self, slot: u32) -> Entry {
        Entry {
            inbox: Arc::clone(&self.inbox),
            slot,
            properties: READ,
            operation: Operation::Read,
            lba: Lba(slot.into()),
            blocks: 1,
            data: None,
        }
    }

    /// Sleeps until one of its requests is complete.
    fn wait_for_one(&self) -> u32 {
        loop {
            self.inbox.sleeper.awake();
            if let Some(done) = self.inbox.take() {
                return done.slot;
            }
            if self.inbox.may_sleep() {
                self.sleep.wait();
            }
        }
    }

    /// Sleeps until its request is complete, or it must run the queue, which it then does to the
    /// end.
    fn wait(&self, queue: &SharedQueue, leaves: bool) -> Done {
        loop {
            self.inbox.sleeper.awake();
            if self.inbox.take_handed(0)
                && let Some(term) = queue.begin_handed(NOW)
            {
                run(queue, term, leaves);
            }
            if let Some(done) = self.inbox.take() {
                return done;
            }
            if self.inbox.may_sleep() {
                self.sleep.wait();
            }
        }
    }
}

/// Runs a queue until it is empty; with `leaves` it ends after its first batch, even if requests
/// wait.
fn run(queue: &SharedQueue, term: super::queue::Term, leaves: bool) {
    let mut first = true;
    let mut batch = Vec::new();
    while queue.take_batch(term, first, Runner::Submitter, NOW, &mut batch) == Look::Batch {
        first = false;
        for entry in batch.drain(..) {
            entry.finish(Ok(()), None);
        }
        if leaves {
            return queue.leave(term, NOW);
        }
    }
}

fn submit(queue: &SharedQueue, slot: u32, leaves: bool) {
    let submitter = Submitter::new();
    if let Some(term) = queue.put(submitter.entry(slot), NOW) {
        run(queue, term, leaves);
    }
    assert_eq!(submitter.wait(queue, leaves).slot, slot);
    queue.withdraw(&submitter.inbox, NOW);
}

fn builder() -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(SWITCHES);
    builder
}

fn check(leaves: bool) {
    builder().check(move || {
        let queue = queue();
        let threads: Vec<_> = (0..2)
            .map(|slot| {
                let queue = Arc::clone(&queue);
                loom::thread::spawn(move || submit(&queue, slot, leaves))
            })
            .collect();
        submit(&queue, 2, leaves);
        for thread in threads {
            thread.join().expect("it does not panic");
        }
    });
}

#[test]
fn loom_whoever_loses_the_election_is_woken_when_its_request_is_over() {
    check(false);
}

#[test]
fn loom_a_runner_that_leaves_hands_the_queue_to_one_that_waits() {
    check(true);
}

/// The deposed runner may have taken a batch or none; each request completes once.
#[test]
fn loom_a_runner_that_is_deposed_takes_no_batch_and_its_requests_are_over() {
    builder().check(|| {
        let queue = queue();
        let first = Arc::clone(&queue);
        let thread = loom::thread::spawn(move || submit(&first, 0, false));
        let submitter = Submitter::new();
        let late = NOW + PathRules::default().handover + Nanos(1);
        if let Some(term) = queue.put(submitter.entry(1), NOW) {
            run(&queue, term, false);
        } else if let Some(term) = queue.take_over(late) {
            run(&queue, term, false);
        }
        assert_eq!(submitter.wait(&queue, false).slot, 1);
        queue.withdraw(&submitter.inbox, NOW);
        thread.join().expect("it does not panic");
    });
}

/// Two runners complete requests of a submitter, then one more in a reused slot: the submitter
/// receives each of them once and whole, whenever it falls asleep.
#[test]
fn loom_a_submitter_gets_each_of_its_requests_once() {
    builder().check(|| {
        let submitter = Submitter::new();
        let threads: Vec<_> = (0..2)
            .map(|slot| {
                let entry = submitter.entry(slot);
                loom::thread::spawn(move || entry.finish(Ok(()), None))
            })
            .collect();
        let mut taken = [submitter.wait_for_one(), submitter.wait_for_one()];
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
        submitter.entry(2).finish(Ok(()), None);
        assert_eq!(submitter.wait_for_one(), 2);
        assert_eq!(submitter.inbox.len(), 0);
        for thread in threads {
            thread.join().expect("it does not panic");
        }
    });
}
