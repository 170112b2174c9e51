//! The one place through which every change goes.
//!
//! [`Control`] owns the configuration in force and the dataplane. A change is checked against the
//! model as a whole, then carried out action by action, and the model follows the dataplane step
//! by step: whatever fails, and wherever, both say the same afterwards.
//!
//! Calls block while the dataplane works; the HTTP interface makes them on threads that may.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::action::Action;
use crate::config::{self, ConfigError};
use crate::diff::{FixedWhileRunning, diff};
use crate::model::Configuration;
use crate::plane::{ApplyError, DataPlane, Snapshot, TenantEvent};

/// The configuration in force, and the dataplane it is in force in.
pub struct Control {
    plane: Arc<dyn DataPlane>,
    /// Held while a change is made, so that changes happen one after the other.
    change: Mutex<()>,
    /// Held for moments only: reading it never waits for the dataplane.
    model: Mutex<Arc<Configuration>>,
    /// The process was told to end, and finishes what is under way.
    draining: AtomicBool,
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The change does not fit what is there; nothing was touched.
    #[error(transparent)]
    Refused(#[from] ApplyError),
    /// The result would be a bad configuration; nothing was touched.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The change is one that needs a restart; nothing was touched.
    #[error(transparent)]
    Fixed(#[from] FixedWhileRunning),
    /// The dataplane failed on the way.
    #[error("{error}{}", rest(remaining))]
    Plane {
        /// Why the action that failed did so.
        error: ApplyError,
        /// The actions that were carried out before it and could not be undone; they are in
        /// force. Empty means that everything is as before.
        remaining: Vec<Action>,
    },
}

fn rest(remaining: &[Action]) -> String {
    match remaining.len() {
        0 => String::new(),
        count => format!(" ({count} earlier changes could not be undone and are in force)"),
    }
}

impl Control {
    /// A control plane over `plane`, in which `configuration` is in force already (see
    /// [`Control::start`] for one in which it is not).
    #[must_use]
    pub fn new(configuration: Configuration, plane: Arc<dyn DataPlane>) -> Self {
        let mut configuration = configuration;
        configuration.sort();
        Self {
            plane,
            change: Mutex::new(()),
            model: Mutex::new(Arc::new(configuration)),
            draining: AtomicBool::new(false),
        }
    }

    /// A control plane over `plane`, which shares nothing yet, with `configuration` put in force
    /// by the same actions as every later change.
    ///
    /// # Errors
    /// A bad configuration, or an action that the dataplane refused.
    pub fn start(
        configuration: &Configuration,
        plane: Arc<dyn DataPlane>,
    ) -> Result<Self, ChangeError> {
        let control = Self::new(configuration.emptied(), plane);
        control.replace(configuration)?;
        Ok(control)
    }

    /// The configuration in force.
    #[must_use]
    pub fn configuration(&self) -> Arc<Configuration> {
        Arc::clone(&lock(&self.model))
    }

    /// Says from now on that the process ends; it goes on answering until it has.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether the process ends.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// What happened after the event of this number.
    #[must_use]
    pub fn events(&self, after: u64) -> Vec<TenantEvent> {
        self.plane.events(after)
    }

    /// What the dataplane knows now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.plane.snapshot()
    }

    /// The dataplane, for what is no change of the configuration.
    pub(crate) fn plane(&self) -> &dyn DataPlane {
        &*self.plane
    }

    /// Carries out `actions`, all or (as far as the dataplane allows) none.
    ///
    /// # Errors
    /// Why not; see [`ChangeError`] for what is in force then.
    pub fn change(&self, actions: Vec<Action>) -> Result<(), ChangeError> {
        self.change_with(|_| Ok(actions)).map(drop)
    }

    /// Carries out the actions that `decide` derives from the configuration in force, which does
    /// not change between the two. Returns them.
    ///
    /// # Errors
    /// What `decide` says, or why the actions were not carried out.
    pub fn change_with(
        &self,
        decide: impl FnOnce(&Configuration) -> Result<Vec<Action>, ChangeError>,
    ) -> Result<Vec<Action>, ChangeError> {
        let _one_at_a_time = lock(&self.change);
        let before = self.configuration();
        let actions = decide(&before)?;
        let mut after = Configuration::clone(&before);
        for action in &actions {
            action.apply_to_model(&mut after)?;
        }
        config::validate(&after)?;
        self.carry_out(&actions)?;
        Ok(actions)
    }

    /// Makes `new` the configuration in force. Returns what had to be done.
    ///
    /// # Errors
    /// Why not; see [`ChangeError`] for what is in force then.
    pub fn replace(&self, new: &Configuration) -> Result<Vec<Action>, ChangeError> {
        config::validate(new)?;
        let mut new = new.clone();
        new.sort();
        self.change_with(|before| Ok(diff(before, &new)?))
    }

    /// Makes the TOML file at `path` the configuration in force. Returns what had to be done.
    ///
    /// # Errors
    /// Why not; see [`ChangeError`] for what is in force then.
    pub fn replace_from_file(&self, path: &Path) -> Result<Vec<Action>, ChangeError> {
        let new = config::load(path)?;
        self.replace(&new)
    }

    /// Applies each action to the dataplane and, when it holds there, to the model.
    fn carry_out(&self, actions: &[Action]) -> Result<(), ChangeError> {
        let mut done: Vec<(&Action, Option<Action>)> = Vec::new();
        for action in actions {
            let before = self.configuration();
            if let Err(error) = self.plane.apply(action) {
                let remaining = self.undo(done);
                return Err(ChangeError::Plane { error, remaining });
            }
            self.commit(action);
            done.push((action, action.inverse(&before)));
        }
        Ok(())
    }

    /// Undoes what was done, last first, as far as it goes. Returns what stays.
    fn undo(&self, mut done: Vec<(&Action, Option<Action>)>) -> Vec<Action> {
        while let Some((_, inverse)) = done.last() {
            let Some(inverse) = inverse else { break };
            if self.plane.apply(inverse).is_err() {
                break;
            }
            self.commit(inverse);
            done.pop();
        }
        done.into_iter().map(|(action, _)| action.clone()).collect()
    }

    fn commit(&self, action: &Action) {
        let mut model = lock(&self.model);
        action
            .apply_to_model(Arc::make_mut(&mut model))
            .expect("tried on a copy of the model before, or undoes what was just done to it");
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("configuration", &self.configuration())
            .finish_non_exhaustive()
    }
}

/// The model is whole between any two statements that can panic, so a poisoned lock is as good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
