//! The controllers of a back end's process, for the process that takes its place.
//!
//! A killed process leaves writes at the target, which may be carried out late. The next process holds
//! its own writes until the target has ended the controllers that sent them.

use super::inflight::Inflight;
use super::served_disk::ServedDisk;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vhost::vhost_user::{Error, Result};

/// The most controllers of one process: the present one, and those of lost connections.
pub(super) const CONTROLLERS_MAX: usize = 16;

/// Controllers by which a process sends writes to its device's target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writers {
    /// The host's identifier.
    pub host_id: [u8; 16],
    /// Identifier (CNTLID), and the incarnation of the target's process; at most 16, of which the last
    /// ones count.
    pub controllers: Vec<(u16, u64)>,
}

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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
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

    fn lock(&self) -> MutexGuard<'_, State> {
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
    fn keep_in(&self, record: Inflight) {
        let mut state = self.lock();
        record.leave_writers(self.process, &state.writers);
        (state.record, state.next) = (Some(record), None);
    }

    /// Notes that the controllers of another process are being ended, which `record` has. Returns false
    /// where they are already.
    fn begin_end(&self, process: u64, record: Inflight) -> Result<bool> {
        let mut state = self.lock();
        let before = *state.ending.get_or_insert(process);
        if before != process {
            return Err(Error::InvalidOperation(
                "the writes of another machine's last back end are still being ended; connect again",
            ));
        }
        let begins = state.next.replace(record).is_none();
        state.record = None;
        Ok(begins)
    }

    /// The controllers of the other process have ended.
    fn have_ended(&self) {
        let mut state = self.lock();
        state.ending = None;
        let next = state.next.take();
        drop(state);
        if let Some(record) = next {
            self.keep_in(record);
        }
    }

    /// The machine's requests are all answered: another process has nothing to end.
    pub(super) fn strike_out(&self) {
        if let Some(record) = self.lock().record.take() {
            record.leave_writers(self.process, &Writers::default());
        }
    }
}

/// Takes the machine over that this record belongs to. Where another process left controllers in it,
/// writes are held until these have ended.
pub(super) fn take_over(shared: &Arc<ServedDisk>, record: Inflight) -> Result<()> {
    if shared.succession.is_none() {
        return Ok(());
    }
    let own = &shared.writers;
    let (process, mut left) = record.left_writers();
    if left.host_id == own.lock().writers.host_id {
        // One of which the identifier was given out anew has ended.
        let ours = own.lock().writers.controllers.clone();
        left.controllers
            .retain(|controller| !ours.contains(controller));
    }
    if process == own.process || left.controllers.is_empty() {
        own.keep_in(record);
        return Ok(());
    }
    if !own.begin_end(process, record)? {
        return Ok(());
    }
    shared.hold_writes(1);
    let disk = Arc::clone(shared);
    let end = move || {
        let succession = disk.succession.as_ref().expect("asked above");
        if succession.end(&left, &|| disk.end_by().is_some()) {
            disk.writers.have_ended();
            disk.write_is_over();
        }
    };
    let thread = std::thread::Builder::new().name("vhost/take-over".to_owned());
    if let Err(error) = thread.spawn(end) {
        let mut state = own.lock();
        (state.ending, state.next) = (None, None);
        drop(state);
        shared.write_is_over();
        return Err(Error::ReqHandlerError(error));
    }
    Ok(())
}
