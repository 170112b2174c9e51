//! The dataplane as [`Control`](crate::Control) uses it.
//!
//! [`Plane`](crate::Plane) implements [`DataPlane`] over a target; tests implement it in memory. A
//! change is an [`Action`] that has happened when `apply` returns, and everything that is known about
//! the cores is one [`Snapshot`].

use crate::ana::AnaGroup;
use crate::calibration::{CalibrationRequest, CalibrationSnapshot};
use crate::host_keys::{AddedKeys, KnownKeys};
use crate::snapshot::{Snapshot, TargetEvent};
use crate::state::ToZero;
use config::ApplyError;
use config::action::Action;
use std::collections::BTreeMap;
use std::path::PathBuf;
use target::trace::TraceFilter;
use target::{ReservationRecord, Trace};

/// The dataplane: carries out actions, and shows its state.
pub trait DataPlane: Send + Sync + 'static {
    /// Carries out one action on every core, under pause and resume, and returns when it is in
    /// force everywhere. Never called by two threads at a time, and never on a dataplane core.
    ///
    /// A device that is added has its files below one of `folders`, out of which no symbolic link may
    /// lead; `None` where they may be anywhere.
    ///
    /// # Errors
    /// Why nothing has changed: an action that fails leaves the dataplane as it was.
    fn apply(&self, action: &Action, folders: Option<&[PathBuf]>) -> Result<(), ApplyError>;

    /// Zeroes the ranges of [`to_zero`](Self::to_zero) that `action` would show, on stable storage, and
    /// removes them from the list. A device that is not open yet is left out. Blocks while it writes.
    ///
    /// # Errors
    /// A device that cannot be zeroed; the ranges stay in the list.
    fn zero_before(&self, action: &Action) -> Result<(), ApplyError> {
        let _ = action;
        Ok(())
    }

    /// Returns the ranges of devices that namespaces gave up when they were made smaller, and that have
    /// not been zeroed since. No namespace shows any of them.
    fn to_zero(&self) -> Vec<ToZero> {
        Vec::new()
    }

    /// Sets that list, before any action: it is the list that the process before left.
    fn set_to_zero(&self, ranges: Vec<ToZero>) {
        let _ = ranges;
    }

    /// Makes the keys that the interface added to hosts valid for new connections, instead of those
    /// before.
    fn set_added_keys(&self, keys: &AddedKeys) {
        let _ = keys;
    }

    /// Sets the states of ANA groups of subsystems that are added later.
    fn set_ana_before(&self, groups: &[AnaGroup]) {
        let _ = groups;
    }

    /// Sets the state of an ANA group of a subsystem. Before a state that refuses commands, those in
    /// flight finish, and acknowledged writes become durable.
    ///
    /// # Errors
    /// A group out of range, or a core or device that did not follow in time.
    fn set_ana(&self, group: &AnaGroup) -> Result<(), ApplyError> {
        let _ = group;
        let error = "this process has no subsystems";
        Err(ApplyError::failed(error, "use the API of a target"))
    }

    /// Returns the reservations that persist.
    fn reservations(&self) -> Vec<ReservationRecord> {
        Vec::new()
    }

    /// Sets the reservations of namespaces that are added later.
    fn set_reservations_before(&self, records: Vec<ReservationRecord>) {
        let _ = records;
    }

    /// Reads the files with keys of hosts again.
    ///
    /// # Errors
    /// A file that cannot be used; the keys in force stay.
    fn read_keys_again(&self) -> Result<(), ApplyError> {
        Ok(())
    }

    /// Returns the keys of files, by the NQN of their host.
    fn keys_of_files(&self) -> BTreeMap<String, KnownKeys> {
        BTreeMap::new()
    }

    /// Ends a change: adds to that list what its actions gave up, and removes the ranges of devices
    /// that are not open. None of the actions is undone after it.
    fn settle(&self) {}

    /// Returns the state at this moment. May be called by several threads at a time; must not
    /// disturb I/O.
    fn snapshot(&self) -> Snapshot;

    /// Returns the events after the one of this number (0 for all that are kept), oldest
    /// first. A bounded number is kept; numbers have no gaps but for dropped events. As
    /// [`snapshot`](Self::snapshot) otherwise.
    fn events(&self, after: u64) -> Vec<TargetEvent>;

    /// Opens a trace of I/O commands. As [`snapshot`](Self::snapshot) otherwise.
    ///
    /// # Errors
    /// Too many traces are open, a core does not take messages, or there is no target.
    fn trace(&self, filter: TraceFilter) -> Result<Trace, ApplyError> {
        let _ = filter;
        let error = "this process has no I/O commands";
        Err(ApplyError::failed(error, "use the API of a target"))
    }

    /// Begins to calibrate a device again while it serves, and returns at once. What comes out is
    /// in force as soon as it is done. May be called by several threads at a time, as the two below.
    ///
    /// # Errors
    /// When there is no such device, it has no model, or it is being calibrated already.
    fn calibrate(&self, device: &str, request: CalibrationRequest) -> Result<(), ApplyError>;

    /// Returns the progress of a device's last calibration, or its outcome.
    ///
    /// # Errors
    /// When there was none.
    fn calibration(&self, device: &str) -> Result<CalibrationSnapshot, ApplyError>;

    /// Lets a device's calibration end soon without a newer model. One that ended stays as it is.
    ///
    /// # Errors
    /// When there was none.
    fn cancel_calibration(&self, device: &str) -> Result<(), ApplyError>;
}
