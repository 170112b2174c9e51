//! The controllers of a back end's process, recorded for the process that replaces it.
//!
//! A killed process leaves writes at the target, which may be executed late. The next process holds
//! its own writes until the target has ended the controllers that sent them.

use super::inflight::{Inflight, Writers};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vhost::vhost_user::{Error, Result};

/// Callback that receives the controllers of this process.
pub type NoteWriters = Box<dyn Fn(&Writers) + Send + Sync>;

/// Access to the controllers behind a device.
pub trait Succession: Send + Sync + fmt::Debug {
    /// Calls `note` with the controllers of this process: now, and before anything is sent to a
    /// further controller. `note` does not block.
    fn watch(&self, note: NoteWriters);

    /// Ends the controllers of another, ended process. Blocks; returns true once none of their
    /// commands can change anything, and false once `is_over` returns true.
    fn end(&self, left: &Writers, is_over: &dyn Fn() -> bool) -> bool;
}

/// The controllers of this process, as stored in the record of a machine's outstanding requests.
#[derive(Debug)]
pub(super) struct OwnWriters {
    /// Random number that identifies this server.
    process: u64,
    state: Mutex<SuccessionState>,
}

#[derive(Debug, Default)]
struct SuccessionState {
    writers: Writers,
    /// The record that stores them.
    record: Option<Inflight>,
    /// The other process whose controllers are being ended.
    ending: Option<u64>,
    /// The record with the other process's controllers until then, and with those of this process
    /// afterwards.
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
        // Each change is complete before the lock is released.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the current controllers of this process.
    pub(super) fn note(&self, writers: &Writers) {
        let mut state = self.lock();
        state.writers.clone_from(writers);
        if let Some(record) = &state.record {
            record.leave_writers(self.process, writers);
        }
    }

    /// Stores the controllers in the record of a machine's outstanding requests from now on.
    pub(super) fn keep_in(&self, record: Inflight) {
        let mut state = self.lock();
        record.leave_writers(self.process, &state.writers);
        (state.record, state.next) = (Some(record), None);
    }

    /// Records that the controllers of another process, stored in `record`, are being ended.
    /// Returns false if that was already recorded.
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

    /// Records that the controllers of the other process have ended.
    pub(super) fn have_ended(&self) {
        let mut state = self.lock();
        state.ending = None;
        let next = state.next.take();
        drop(state);
        if let Some(record) = next {
            self.keep_in(record);
        }
    }

    /// Records that the controllers of the other process could not be ended; the next record ends
    /// them.
    pub(super) fn give_up_end(&self) {
        let mut state = self.lock();
        (state.ending, state.next) = (None, None);
    }

    /// Returns the number of the other process that stored controllers in a record, and those of
    /// its controllers that may still exist; `None` if there are none.
    pub(super) fn left_by_another(&self, record: &Inflight) -> Option<(u64, Writers)> {
        let (process, mut left) = record.left_writers();
        let own = self.lock();
        if left.host_id == own.writers.host_id {
            // A controller whose identifier was assigned again has ended.
            let ours = &own.writers.controllers;
            left.controllers
                .retain(|controller| !ours.contains(controller));
        }
        (process != self.process && !left.controllers.is_empty()).then_some((process, left))
    }

    /// Records that all requests of the machine are completed: another process has no controllers
    /// to end.
    pub(super) fn strike_out(&self) {
        if let Some(record) = self.lock().record.take() {
            record.leave_writers(self.process, &Writers::default());
        }
    }
}
