//! A queue shared by submitters: requests, the gate that decides when to send them, and the
//! election of its runner.
//!
//! One lock protects all three, so an arriving request either finds a runner that will check again,
//! or makes its submitter the runner. The lock is held for a few words of work, never while a
//! command is built, sent or awaited.

use super::done::Done;
use super::inbox::Inbox;
use super::stats::PathStats;
use crate::request::{BlockError, Operation};
use base::units::Lba;
use base::{Nanos, Time};
#[cfg(loom)]
use loom::sync::atomic::AtomicU64;
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use reactor::Sleeper;
use std::collections::VecDeque;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use switch::path::{Gate, PathRules, Properties, QueueKind, QueueStep, Runner};

/// Longest time, in hand-over times, for which a runner sleeps on a device without progress while
/// requests wait for it. Longer than the service time of working devices, because a batch that
/// another runner sends in addition to its own shares the device with it.
const SLEEP_HANDOVERS: u64 = 64;

/// Bit of a time that marks the runner as sleeping.
const SLEEPS: u64 = 1;

/// A request in a queue, or in flight for another thread.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) inbox: Arc<Inbox>,
    /// Slot of the request at its submitter.
    pub(super) slot: u32,
    pub(super) properties: Properties,
    pub(super) operation: Operation,
    pub(super) lba: Lba,
    pub(super) blocks: u32,
    /// Offset of its data in the submitter's memory, and its length, in bytes; `None` for requests
    /// without data.
    pub(super) data: Option<(usize, usize)>,
}

impl Entry {
    /// Completes the request at its submitter.
    pub(super) fn finish(&self, result: Result<(), BlockError>, losses: Option<u32>) {
        self.inbox.finish(Done {
            slot: self.slot,
            result,
            losses,
        });
    }
}

/// Wakes the dispatcher.
#[derive(Debug, Default)]
pub(super) struct Bell {
    /// Sleep state of the dispatcher.
    pub(super) sleeper: Sleeper,
    ended: AtomicBool,
    /// True if the dispatcher ended, or its channel to the device is gone and not back.
    unserved: AtomicBool,
    /// Number of resizes of the device.
    resizes: AtomicU32,
}

impl Bell {
    /// Makes the dispatcher end.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.sleeper.wake();
    }

    /// Ends the dispatcher's role: submitters run its queues.
    pub(super) fn stop_serving(&self) {
        self.unserved.store(true, Ordering::Release);
    }

    /// Restores the dispatcher's role; it checks every queue after that.
    pub(super) fn serve_again(&self) {
        self.unserved.store(false, Ordering::Release);
    }

    pub(super) fn is_unserved(&self) -> bool {
        self.unserved.load(Ordering::Acquire)
    }

    /// Records a resize of the device: channels opened before may refer to memory that no longer
    /// belongs to the device.
    pub(super) fn note_resize(&self) {
        self.resizes.fetch_add(1, Ordering::Release);
    }

    pub(super) fn resizes(&self) -> u32 {
        self.resizes.load(Ordering::Acquire)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// The right to run a queue, which ends when the queue is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term(u64);

/// Result of a runner's check of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// A batch was taken.
    Batch,
    /// The runner's term is over.
    Over,
}

/// A queue of a device, shared by its submitters.
#[derive(Debug)]
pub(super) struct SharedQueue {
    pub(super) kind: QueueKind,
    index: usize,
    rules: PathRules,
    state: Mutex<State>,
    /// Number of the current term; changed under the lock.
    term: AtomicU64,
    /// Time at which the runner last ran, in nanoseconds, with the lowest bit clear. For a sleeping
    /// runner: the time of its last progress, with that bit set.
    ran_at: AtomicU64,
    bell: Arc<Bell>,
    stats: Arc<PathStats>,
}

#[derive(Debug)]
struct State {
    gate: Gate,
    requests: VecDeque<Entry>,
}

impl SharedQueue {
    pub(super) fn new(
        kind: QueueKind,
        index: usize,
        rules: PathRules,
        bell: Arc<Bell>,
        stats: Arc<PathStats>,
    ) -> Self {
        Self {
            kind,
            index,
            rules,
            state: Mutex::new(State {
                gate: Gate::new(kind, rules),
                requests: VecDeque::new(),
            }),
            term: AtomicU64::new(0),
            ran_at: AtomicU64::new(0),
            bell,
            stats,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Related changes happen without a panic in between, so poisoning does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. Returns a term if the submitter must run the queue.
    pub(super) fn put(&self, entry: Entry, now: Time) -> Option<Term> {
        let mut state = self.lock();
        let next = state.gate.arrive(now, entry.properties);
        state.requests.push_back(entry);
        self.run(state, next, now)
    }

    /// Executes the next step: returns a term if the calling submitter must run the queue, and
    /// notifies the dispatcher if it must, now or later.
    fn run(&self, mut state: MutexGuard<'_, State>, next: QueueStep, now: Time) -> Option<Term> {
        match next {
            QueueStep::Run(runner) if self.is_for_submitters(runner) => {
                Some(self.begin(&mut state, now))
            }
            QueueStep::Run(_) | QueueStep::At(_) => {
                drop(state);
                self.bell.sleeper.ring();
                None
            }
            QueueStep::Nothing => None,
        }
    }

    /// Makes plugged requests leave. Returns a term if the submitter must run the queue.
    pub(super) fn unplug(&self, now: Time) -> Option<Term> {
        let mut state = self.lock();
        let next = state.gate.unplug(now);
        self.run(state, next, now)
    }

    /// Returns true if submitters have the role of this runner.
    fn is_for_submitters(&self, runner: Runner) -> bool {
        runner == Runner::Submitter || self.bell.is_unserved()
    }

    fn begin(&self, state: &mut State, now: Time) -> Term {
        self.stats.won();
        state.gate.begin();
        self.next_term(now)
    }

    /// Begins a term, under the lock.
    fn next_term(&self, now: Time) -> Term {
        self.ran(now);
        Term(1 + self.term.fetch_add(1, Ordering::Relaxed))
    }

    fn is_over(&self, term: Term) -> bool {
        self.term.load(Ordering::Relaxed) != term.0
    }

    fn ran(&self, now: Time) {
        self.ran_at.store(now.0 & !SLEEPS, Ordering::Relaxed);
    }

    /// Records that the runner of this term runs, so it is not deposed. Returns false if it was
    /// deposed.
    ///
    /// If it is deposed between the two steps, it updates its successor's time once, which delays
    /// the next hand-over by at most one hand-over time.
    pub(super) fn note_run(&self, term: Term, now: Time) -> bool {
        let runs = !self.is_over(term);
        if runs {
            self.ran(now);
        }
        runs
    }

    /// Records that the runner of this term sleeps until its device answers; the last progress was
    /// at `progress`. It is deposed only if that is [long](SLEEP_HANDOVERS) ago.
    pub(super) fn note_sleep(&self, term: Term, progress: Time) {
        if !self.is_over(term) {
            self.ran_at.store(progress.0 | SLEEPS, Ordering::Relaxed);
        }
    }

    /// Returns a term if the dispatcher must run the queue.
    pub(super) fn begin_dispatched(&self, now: Time) -> Option<Term> {
        if self.bell.is_unserved() {
            return None;
        }
        let mut state = self.lock();
        let runs = match state.gate.next(now) {
            QueueStep::Run(Runner::Dispatcher) => true,
            // A submitter handed it over.
            QueueStep::Run(Runner::Submitter) => self.kind == QueueKind::Shadow,
            QueueStep::At(_) | QueueStep::Nothing => false,
        };
        runs.then(|| self.begin(&mut state, now))
    }

    /// Returns a term if a submitter that was asked to run the queue must still do so.
    pub(super) fn begin_handed(&self, now: Time) -> Option<Term> {
        let state = self.lock();
        // The hand-over may have been withdrawn since.
        let next = state.gate.next(now);
        self.run(state, next, now)
    }

    /// Takes the queue over from a runner that has not run for the hand-over time although requests
    /// wait, or that sleeps without progress for [`SLEEP_HANDOVERS`] times as long.
    pub(super) fn take_over(&self, now: Time) -> Option<Term> {
        if !self.is_stuck(now) {
            return None;
        }
        let state = self.lock();
        if !self.is_stuck(now) || state.gate.waiting() == 0 {
            return None;
        }
        if !state.gate.is_running() {
            // The thread that was to run it ended without a notice.
            let next = state.gate.next(now);
            return self.run(state, next, now);
        }
        self.stats.taken_over();
        Some(self.next_term(now))
    }

    fn is_stuck(&self, now: Time) -> bool {
        let ran_at = self.ran_at.load(Ordering::Relaxed);
        let handovers = if ran_at & SLEEPS == 0 {
            1
        } else {
            SLEEP_HANDOVERS
        };
        now.since(Time(ran_at & !SLEEPS)) > Nanos(handovers * self.rules.handover.0)
    }

    /// Takes the next batch; `first` for the first one of a term.
    pub(super) fn take_batch(
        &self,
        term: Term,
        first: bool,
        runner: Runner,
        now: Time,
        batch: &mut Vec<Entry>,
    ) -> Look {
        let mut state = self.lock();
        if !self.note_run(term, now) {
            return Look::Over;
        }
        if !first && !state.gate.goes_on(now, runner) {
            self.pass_on(&state, now);
            return Look::Over;
        }
        let State { gate, requests, .. } = &mut *state;
        let mut taking = gate.taking();
        let mut kept = 0;
        while kept < requests.len() && !taking.is_full() {
            let properties = requests[kept].properties;
            if taking.takes(properties) {
                gate.take(properties);
                batch.extend(requests.remove(kept));
            } else {
                kept += 1;
            }
        }
        Look::Batch
    }

    /// Ends the runner's term although requests may wait: the first of their submitters runs the
    /// queue from now on, or the dispatcher if that is its role.
    pub(super) fn leave(&self, term: Term, now: Time) {
        let mut state = self.lock();
        if !self.note_run(term, now) {
            return;
        }
        state.gate.stop();
        self.pass_on(&state, now);
    }

    /// Notifies the thread that must run the queue next, while no thread runs it.
    fn pass_on(&self, state: &State, now: Time) {
        match (state.gate.after(now), state.requests.front()) {
            (QueueStep::Run(runner), Some(entry)) if self.is_for_submitters(runner) => {
                entry.inbox.hand(self.index);
            }
            (QueueStep::Run(_) | QueueStep::At(_), _) => self.bell.sleeper.ring(),
            (QueueStep::Nothing, _) => {}
        }
    }

    /// The dispatcher cannot send: submitters run its queues.
    pub(super) fn stop_serving(&self) {
        self.bell.stop_serving();
    }

    /// Returns the number of resizes of the device, for all of its queues.
    pub(super) fn resizes(&self) -> u32 {
        self.bell.resizes()
    }

    /// Puts back a request that a runner took and cannot send.
    pub(super) fn put_back(&self, entry: Entry, now: Time) {
        let mut state = self.lock();
        // A runner of the queue checks it again; without one, it is passed on.
        let _ = state.gate.arrive(now, entry.properties);
        state.requests.push_front(entry);
        self.pass_on(&state, now);
    }

    /// Removes and returns the requests of a submitter that ends, or cannot send. It no longer runs
    /// the queue.
    pub(super) fn withdraw(&self, inbox: &Arc<Inbox>, now: Time) -> Vec<Entry> {
        let mut state = self.lock();
        let State { gate, requests, .. } = &mut *state;
        let mut own = Vec::new();
        for _ in 0..requests.len() {
            let entry = requests.pop_front().expect("there are as many");
            if Arc::ptr_eq(&entry.inbox, inbox) {
                gate.take(entry.properties);
                own.push(entry);
            } else {
                requests.push_back(entry);
            }
        }
        // Under the lock: from here on no runner hands the queue to it.
        if inbox.take_handed(self.index) {
            self.pass_on(&state, now);
        }
        own
    }

    /// Returns the time at which the dispatcher must run the queue.
    pub(super) fn due(&self, now: Time) -> Time {
        match self.lock().gate.next(now) {
            _ if self.bell.is_unserved() => Time::NEVER,
            QueueStep::Nothing => Time::NEVER,
            QueueStep::At(time) => time,
            QueueStep::Run(Runner::Submitter) if self.kind != QueueKind::Shadow => Time::NEVER,
            QueueStep::Run(_) => Time::ZERO,
        }
    }
}
