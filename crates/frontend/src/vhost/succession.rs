//! The controllers of a back end's process, for the process that takes its place.
//!
//! A killed process leaves writes at the target, which may be carried out late. The next process holds
//! its own writes until the target has ended the controllers that sent them.

use super::inflight::{Inflight, Writers};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vhost::vhost_user::{Error, Result};

/// Told of the controllers of this process.
pub type NoteWriters = Box<dyn Fn(&Writers) + Send + Sync>;

/// The way to the controllers behind a device.
pub trait Succession: Send + Sync + fmt::Debug {
    /// Calls `note` with the controllers of this process: now, and before anything is sent to another
    /// one. `note` does not block.
    fn watch(&self, note: NoteWriters);

    /// Ends the controllers of another process, which is gone. Returns true when none of their commands
    /// can change anything any more, and false once `is_over` returns true. Takes its time.
    fn end(&self, left: &Writers, is_over: &dyn Fn() -> bool) -> bool;
}

/// The controllers of this process, as they are kept with the record of a machine's requests.
#[derive(Debug)]
pub(super) struct OwnWriters {
    /// Tells this server from others; drawn.
    process: u64,
    state: Mutex<SuccessionState>,
}

#[derive(Debug, Default)]
struct SuccessionState {
    writers: Writers,
    /// The record that has them.
    record: Option<Inflight>,
    /// The other process of which the controllers are being ended.
    ending: Option<u64>,
    /// The record that has its controllers until then, and those of this process afterwards.
    next: Option<Inflight>,
}

impl OwnWriters {
    pub(super) fn new() -> Self {
        Self {
            process: RandomState::new().hash_one(()),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SuccessionState> {
        // Each change is whole before the lock is released.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These are the controllers of this process from now on.
    pub(super) fn note(&self, writers: &Writers) {
        let mut state = self.lock();
        state.writers.clone_from(writers);
        if let Some(record) = &state.record {
            record.leave_writers(self.process, writers);
        }
    }

    /// Keeps the controllers in the record of a machine's requests from now on.
    pub(super) fn keep_in(&self, record: Inflight) {
        let mut state = self.lock();
        record.leave_writers(self.process, &state.writers);
        (state.record, state.next) = (Some(record), None);
    }

    /// Notes that the controllers of another process are being ended, which `record` has. Returns false
    /// where they are already.
    pub(super) fn begin_end(&self, process: u64, record: Inflight) -> Result<bool> {
        let mut state = self.lock();
        let before = *state.ending.get_or_insert(process);
        if before != process {
            return Err(Error::InvalidOperation(
                "writes of a previous virtual machine are still being cancelled; connect again",
            ));
        }
        let begins = state.next.replace(record).is_none();
        state.record = None;
        Ok(begins)
    }

    /// The controllers of the other process have ended.
    pub(super) fn have_ended(&self) {
        let mut state = self.lock();
        state.ending = None;
        let next = state.next.take();
        drop(state);
        if let Some(record) = next {
            self.keep_in(record);
        }
    }

    /// The controllers of the other process could not be ended: they are ended with the next record.
    pub(super) fn give_up_end(&self) {
        let mut state = self.lock();
        (state.ending, state.next) = (None, None);
    }

    /// Returns the number of the other process that left controllers in a record, and those of them that
    /// may still be there; `None` where there are none.
    pub(super) fn left_by_another(&self, record: &Inflight) -> Option<(u64, Writers)> {
        let (process, mut left) = record.left_writers();
        let own = self.lock();
        if left.host_id == own.writers.host_id {
            // One of which the identifier was given out anew has ended.
            let ours = &own.writers.controllers;
            left.controllers
                .retain(|controller| !ours.contains(controller));
        }
        (process != self.process && !left.controllers.is_empty()).then_some((process, left))
    }

    /// The machine's requests are all answered: another process has nothing to end.
    pub(super) fn strike_out(&self) {
        if let Some(record) = self.lock().record.take() {
            record.leave_writers(self.process, &Writers::default());
        }
    }
}
