//! A queue that submitters share: requests, the gate that says when they leave, and the election of
//! its runner.
//!
//! One lock protects all three, so an arrival either finds a runner that will look again, or
//! becomes the runner. It is held for a few words of work: never while a command is built, sent or
//! waited for.

use super::inbox::Inbox;
use super::stats::PathStats;
use crate::request::Operation;
use base::units::Lba;
use base::{Time, WakeFlag};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use reactor::Wake;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use switch::path::{Gate, Next, PathRules, Properties, QueueKind, Runner, Taking};

/// A request in a queue, or under way for another thread.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) inbox: Arc<Inbox>,
    /// The submitter's name for it.
    pub(super) slot: u32,
    pub(super) properties: Properties,
    pub(super) operation: Operation,
    pub(super) lba: Lba,
    pub(super) blocks: u32,
    /// Offset of its data in the submitter's memory, and its length, in bytes; `None` for requests
    /// without.
    pub(super) data: Option<(usize, usize)>,
}

/// Wakes the dispatcher.
#[derive(Debug, Default)]
pub(super) struct Bell {
    wake_flag: WakeFlag,
    waker: OnceLock<Arc<dyn Wake>>,
    ended: AtomicBool,
}

impl Bell {
    /// The dispatcher exists now.
    pub(super) fn serve(&self, waker: Arc<dyn Wake>) {
        // Called once, by the dispatcher.
        let _ = self.waker.set(waker);
    }

    /// Wakes the dispatcher, where that is needed.
    pub(super) fn ring(&self) {
        if self.wake_flag.is_needed()
            && let Some(waker) = self.waker.get()
        {
            waker.wake();
        }
    }

    /// Tells the dispatcher to end.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The dispatcher wants to sleep; it may if `idle` finds nothing to do.
    pub(super) fn may_sleep(&self, idle: impl FnOnce() -> bool) -> bool {
        self.wake_flag.may_sleep(idle)
    }

    pub(super) fn awake(&self) {
        self.wake_flag.awake();
    }
}

/// The right to run a queue: ends when the queue was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term(u64);

/// The result of a runner's look at its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// A batch was taken.
    Batch,
    /// The runner's term is over.
    Over,
}

/// A queue of a device.
#[derive(Debug)]
pub(super) struct SharedQueue {
    pub(super) kind: QueueKind,
    index: usize,
    rules: PathRules,
    state: Mutex<State>,
    /// The time at which its runner last ran, in nanoseconds.
    ran_at: AtomicU64,
    bell: Arc<Bell>,
    stats: Arc<PathStats>,
}

#[derive(Debug)]
struct State {
    gate: Gate,
    requests: VecDeque<Entry>,
    term: u64,
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
                term: 0,
            }),
            ran_at: AtomicU64::new(0),
            bell,
            stats,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a request in. Returns a term for the submitter if it has to run the queue.
    pub(super) fn put(&self, entry: Entry, now: Time) -> Option<Term> {
        let mut state = self.lock();
        let next = state.gate.arrive(now, entry.properties);
        state.requests.push_back(entry);
        match next {
            Next::Run(Runner::Submitter) => Some(self.begin(&mut state, now)),
            Next::Run(Runner::Dispatcher) | Next::At(_) => {
                drop(state);
                self.stats.lost();
                self.bell.ring();
                None
            }
            Next::Nothing => {
                self.stats.lost();
                None
            }
        }
    }

    fn begin(&self, state: &mut State, now: Time) -> Term {
        self.stats.won();
        state.gate.begin();
        state.term += 1;
        self.note_run(now);
        Term(state.term)
    }

    /// The runner runs: it is not to be deposed.
    pub(super) fn note_run(&self, now: Time) {
        self.ran_at.store(now.0, Ordering::Relaxed);
    }

    /// The runner sleeps until its device is done: it is not to be deposed for that.
    pub(super) fn note_sleep(&self) {
        self.ran_at.store(u64::MAX, Ordering::Relaxed);
    }

    /// The dispatcher looks whether it has to run the queue.
    pub(super) fn begin_dispatched(&self, now: Time) -> Option<Term> {
        let mut state = self.lock();
        let runs = match state.gate.next(now) {
            Next::Run(Runner::Dispatcher) => true,
            // A submitter handed it over.
            Next::Run(Runner::Submitter) => self.kind == QueueKind::Shadow,
            Next::At(_) | Next::Nothing => false,
        };
        runs.then(|| self.begin(&mut state, now))
    }

    /// A submitter was asked to run the queue.
    pub(super) fn begin_handed(&self, now: Time) -> Option<Term> {
        let mut state = self.lock();
        matches!(state.gate.next(now), Next::Run(_)).then(|| self.begin(&mut state, now))
    }

    /// Takes the queue over from a runner that has not run for the hand-over time although requests
    /// wait.
    pub(super) fn take_over(&self, now: Time) -> Option<Term> {
        if now.since(self.last_run()) <= self.rules.handover {
            return None;
        }
        let mut state = self.lock();
        if now.since(self.last_run()) <= self.rules.handover || state.gate.waiting() == 0 {
            return None;
        }
        if !state.gate.is_running() {
            // A submitter that was to run it ended without a word.
            let runs = state.gate.next(now) == Next::Run(Runner::Submitter);
            return runs.then(|| self.begin(&mut state, now));
        }
        self.stats.taken_over();
        state.term += 1;
        self.note_run(now);
        Some(Term(state.term))
    }

    fn last_run(&self) -> Time {
        Time(self.ran_at.load(Ordering::Relaxed))
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
        self.note_run(now);
        let mut state = self.lock();
        if state.term != term.0 {
            return Look::Over;
        }
        if !first && !state.gate.goes_on(now, runner) {
            let after = state.gate.after(now);
            drop(state);
            if after != Next::Nothing {
                self.bell.ring();
            }
            return Look::Over;
        }
        let State { gate, requests, .. } = &mut *state;
        let mut taking = Taking::new(self.kind, &self.rules);
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

    /// The runner ends its term although requests may wait: the first of their submitters runs the
    /// queue from now on, or the dispatcher where that is its part.
    pub(super) fn leave(&self, term: Term, now: Time) {
        let mut state = self.lock();
        if state.term != term.0 {
            return;
        }
        state.gate.stop();
        self.note_run(now);
        match (state.gate.after(now), state.requests.front()) {
            (Next::Run(Runner::Submitter), Some(entry)) => entry.inbox.hand(self.index),
            (Next::Run(_) | Next::At(_), _) => self.bell.ring(),
            (Next::Nothing, _) => {}
        }
    }

    /// A submitter ends: its requests leave the queue, and it runs it no more.
    pub(super) fn withdraw(&self, inbox: &Arc<Inbox>, now: Time) {
        let mut state = self.lock();
        let State { gate, requests, .. } = &mut *state;
        requests.retain(|entry| {
            let stays = !Arc::ptr_eq(&entry.inbox, inbox);
            if !stays {
                gate.take(entry.properties);
            }
            stays
        });
        // Under the lock: from here on no runner hands the queue to it.
        if inbox.take_handed(self.index) && matches!(gate.next(now), Next::Run(_)) {
            let term = self.begin(&mut state, now);
            drop(state);
            self.leave(term, now);
        }
    }

    /// The time at which the dispatcher has to run the queue.
    pub(super) fn due(&self, now: Time) -> Time {
        match self.lock().gate.next(now) {
            Next::Nothing => Time::NEVER,
            Next::At(time) => time,
            Next::Run(Runner::Submitter) if self.kind != QueueKind::Shadow => Time::NEVER,
            Next::Run(_) => Time::ZERO,
        }
    }
}
