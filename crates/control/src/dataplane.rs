//! The dataplane as [`Control`](crate::Control) uses it.
//!
//! [`Plane`](crate::Plane) implements [`DataPlane`] over a target; tests implement it in memory. A
//! change is an [`Action`] that has happened when `apply` returns, and everything that is known about
//! the cores is one [`Snapshot`].

use crate::action::Action;
use crate::calibration::{CalibrationRequest, CalibrationSnapshot};
use crate::error::ApplyError;
use crate::snapshot::{Snapshot, TenantEvent};
use crate::state::Erasing;
use std::path::PathBuf;

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

    /// Returns what would have to be erased of a device after `action`, so that no namespace sees it
    /// again.
    fn gives_up(&self, action: &Action) -> Option<Erasing> {
        let _ = action;
        None
    }

    /// Returns what is still to be erased.
    fn erasing(&self) -> Vec<Erasing> {
        Vec::new()
    }

    /// Takes what the process before has not erased, before any action. A namespace that is added to
    /// it before [`begin_erasing`](Self::begin_erasing) waits for what it would show.
    fn leave_to_erase(&self, left: Vec<Erasing>) {
        let _ = left;
    }

    /// Begins to erase what the actions before gave up, and returns at once: none of them is undone
    /// from now on.
    fn begin_erasing(&self) {}

    /// Has `erased` called, on a thread that may block, whenever all of a device is erased that was to
    /// be. Called once.
    fn when_erased(&self, erased: Box<dyn Fn() + Send + Sync>) {
        let _ = erased;
    }

    /// Returns the state at this moment. May be called by several threads at a time; must not
    /// disturb I/O.
    fn snapshot(&self) -> Snapshot;

    /// Returns the tenant events after the one of this number (0 for all that are kept), oldest
    /// first. A bounded number is kept; numbers have no gaps but for dropped events. As
    /// [`snapshot`](Self::snapshot) otherwise.
    fn events(&self, after: u64) -> Vec<TenantEvent>;

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
