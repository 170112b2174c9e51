//! The one place through which every change goes.
//!
//! [`Control`] owns the configuration in force and the dataplane. A change is checked against the
//! model as a whole, then carried out action by action, and the model follows the dataplane step
//! by step: an action that fails is in neither, unless the dataplane says that it could not undo it.
//!
//! Calls block while the dataplane works; the HTTP interface makes them on threads that may.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::{JoinError, spawn_blocking};

use crate::ana::{AnaGroup, after_restart};
use crate::dataplane::DataPlane;
use crate::folders;
use crate::host_keys::{AddedKeys, KnownKeys, now};
use crate::snapshot::Snapshot;
use crate::state::{State, StateError, StateFile};
use config::ApplyError;
use config::action::Action;
use config::diff::{FixedWhileRunning, build};
use config::limits::HOSTS_MAX;
use config::merge::{self, Contradiction, Difference, differences, merge};
use config::schema::{Configuration, Device, NQN_EXPECTED, check_nqn};
use config::{self, ConfigError};
use secure::HostKeys;
use target::Target;

/// The configuration in force, and the dataplane it is in force in.
pub struct Control {
    plane: Arc<dyn DataPlane>,
    /// Held while a change is made, so that changes happen one after the other.
    change: Mutex<Changes>,
    /// Held for moments only: reading it never waits for the dataplane.
    model: Mutex<Arc<Configuration>>,
    /// The process was told to end, and finishes what is under way.
    draining: AtomicBool,
    /// Another process is taking the target over.
    leaving: AtomicBool,
    /// Held by the caller of a change on the control plane's runtime: others wait for it there, and
    /// occupy no thread that reads need meanwhile.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// State of changes beside the model.
#[derive(Debug)]
struct Changes {
    /// The configuration file, or the flags, as last put in force.
    file: Configuration,
    /// The file that keeps changes; without one the end of the process forgets them.
    store: Option<StateFile>,
    /// A person was told that changes are forgotten.
    warned: bool,
    /// Keys of hosts that the interface added.
    host_keys: AddedKeys,
    /// States of ANA groups, as they were set.
    ana: Vec<AnaGroup>,
}

/// The reason for which a change was not made.
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
    /// The file and the interface have changed the same thing; nothing was touched.
    #[error(
        "{0}; let them agree (`switchyard config diff` shows the interface's changes, `switchyard \
         config save FILE` writes what is in force, `switchyard config apply FILE` undoes them)"
    )]
    Contradiction(#[from] Contradiction),
    /// The process was told to end; nothing was touched.
    #[error("the target is ending; make the change when it serves again")]
    Draining,
    /// The change could not be remembered; nothing was touched.
    #[error(transparent)]
    State(#[from] StateError),
    /// The dataplane failed on the way.
    #[error("{error}{}", rest(remaining))]
    Plane {
        /// The reason for which the action failed.
        error: ApplyError,
        /// The actions that were carried out before it and could not be undone; they are in
        /// force. Empty means that the configuration in force is the one before; hosts may have
        /// noticed what was done and undone.
        remaining: Vec<Action>,
    },
}

fn rest(remaining: &[Action]) -> String {
    match remaining.len() {
        0 => String::new(),
        count => format!(" ({count} earlier changes could not be undone and are in force)"),
    }
}

impl Changes {
    /// What the state file keeps beside the configurations.
    fn kept(&self) -> (&AddedKeys, &[AnaGroup]) {
        (&self.host_keys, &self.ana)
    }

    /// Tells a person once that changes are forgotten.
    fn warn_of_forgetting(&mut self) {
        if self.store.is_none() && !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(
                "this change and later ones are forgotten when the process ends; start it with \
                 --state FILE to keep them"
            );
        }
    }
}

impl Control {
    /// A control plane with the listeners of `in_force`, which shares nothing yet.
    fn new(file: &Configuration, in_force: &Configuration, plane: Arc<dyn DataPlane>) -> Self {
        let changes = Changes {
            file: file.clone(),
            store: None,
            warned: false,
            host_keys: AddedKeys::default(),
            ana: Vec::new(),
        };
        Self {
            plane,
            change: Mutex::new(changes),
            model: Mutex::new(Arc::new(in_force.emptied())),
            draining: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            turn: Arc::default(),
        }
    }

    /// A control plane over `plane`, which shares nothing yet, with `configuration` put in force
    /// by the same actions as every later change. Changes are forgotten when the process ends.
    ///
    /// # Errors
    /// A bad configuration, or an action that the dataplane refused.
    pub fn start(
        configuration: &Configuration,
        plane: Arc<dyn DataPlane>,
    ) -> Result<Self, ChangeError> {
        Self::resume(configuration, plane, None)
    }

    /// The same, with what `store` remembers: `configuration`, which the file or the flags say
    /// now, together with what the interface changed before. Changes are remembered there.
    ///
    /// # Errors
    /// As [`start`](Self::start); a state that cannot be read or written; and what the file and
    /// the interface both changed.
    pub fn resume(
        configuration: &Configuration,
        plane: Arc<dyn DataPlane>,
        store: Option<StateFile>,
    ) -> Result<Self, ChangeError> {
        let mut remembered = store.as_ref().map(StateFile::load).transpose()?.flatten();
        if let Some(state) = &mut remembered {
            state.ana = after_restart(std::mem::take(&mut state.ana));
        }
        Self::resume_from(configuration, plane, store, remembered)
    }

    /// The same with a state that was `remembered` elsewhere: by the process before.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub(crate) fn resume_from(
        configuration: &Configuration,
        plane: Arc<dyn DataPlane>,
        store: Option<StateFile>,
        remembered: Option<State>,
    ) -> Result<Self, ChangeError> {
        config::validate(configuration)?;
        let mut file = configuration.clone();
        file.sort();
        let (in_force, to_zero, host_keys, ana, reservations) = match remembered {
            Some(state) => (
                merge(&state.file, &state.in_force, &file)?,
                state.to_zero,
                state.host_keys,
                state.ana,
                state.reservations,
            ),
            None => {
                let keys = AddedKeys::default();
                (file.clone(), Vec::new(), keys, Vec::new(), Vec::new())
            }
        };
        config::validate(&in_force)?;
        // What is at a path may have changed since.
        check_folders(&file, in_force.devices.iter())?;
        let control = Self::new(&file, &in_force, plane);
        control.plane.set_to_zero(to_zero);
        control.plane.set_added_keys(&host_keys);
        control.plane.set_ana_before(&ana);
        control.plane.set_reservations_before(reservations);
        control.carry_out(&file, &build(&in_force))?;
        control.plane.settle();
        control.assert_in_force(&in_force);
        if let Some(store) = &store {
            let kept = (&host_keys, &ana[..]);
            let of_plane = (
                &control.plane.to_zero()[..],
                &control.plane.reservations()[..],
            );
            store.save(&file, &in_force, of_plane, kept)?;
        }
        let mut changes = lock(&control.change);
        (changes.store, changes.host_keys, changes.ana) = (store, host_keys, ana);
        drop(changes);
        Ok(control)
    }

    /// Returns the changes by the interface since the file was put in force, and the path of the
    /// state file. Waits for a change under way.
    #[must_use]
    pub fn changes(&self) -> (Vec<Difference>, Option<PathBuf>) {
        let changes = lock(&self.change);
        let store = changes.store.as_ref();
        let path = store.map(|store| store.path().to_owned());
        (differences(&changes.file, &self.configuration()), path)
    }

    /// The configuration in force.
    #[must_use]
    pub fn configuration(&self) -> Arc<Configuration> {
        Arc::clone(&lock(&self.model))
    }

    /// Says from now on that the process ends, and refuses changes; it goes on answering until it
    /// has.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Returns true once the process was told to end.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Refuses changes from now on, or allows them again: another process takes the target over.
    /// Returns the state that it continues with, and the lock of the state file.
    pub(crate) fn set_leaving(&self, leaving: bool) -> State {
        let changes = lock(&self.change);
        self.leaving.store(leaving, Ordering::Relaxed);
        State {
            file: changes.file.clone(),
            in_force: Configuration::clone(&self.configuration()),
            to_zero: self.plane.to_zero(),
            host_keys: changes.host_keys.clone(),
            ana: changes.ana.clone(),
            reservations: self.plane.reservations(),
        }
    }

    /// Returns the lock of the state file for the process that takes the target over; `None` without
    /// a state file.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn share_store(&self) -> io::Result<Option<File>> {
        let changes = lock(&self.change);
        changes.store.as_ref().map(StateFile::share).transpose()
    }

    /// Returns a snapshot of the dataplane.
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
        let mut changes = self.begin()?;
        let before = self.configuration();
        let actions = decide(&before)?;
        check_folders(&changes.file, added(&actions))?;
        if !actions.is_empty() {
            changes.warn_of_forgetting();
        }
        self.carry_out_durably(&changes, &changes.file, &actions)?;
        Ok(actions)
    }

    /// Begins a change, once those before it are made.
    fn begin(&self) -> Result<MutexGuard<'_, Changes>, ChangeError> {
        let changes = lock(&self.change);
        if self.is_draining() || self.leaving.load(Ordering::Relaxed) {
            // Cores that have ended take no part in it, and the state file would keep it.
            return Err(ChangeError::Draining);
        }
        Ok(changes)
    }

    /// Remembers what will be in force, with `file` as its origin, and carries it out: an
    /// acknowledged change is remembered, and one that cannot be remembered is not made.
    fn carry_out_durably(
        &self,
        changes: &Changes,
        file: &Configuration,
        actions: &[Action],
    ) -> Result<(), ChangeError> {
        let before = self.configuration();
        let mut after = Configuration::clone(&before);
        for action in actions {
            action.apply_to_model(&mut after)?;
        }
        config::validate(&after)?;
        assert!(
            after.is_sorted() && file.is_sorted(),
            "names are looked up by halving, and equal configurations compare as equal"
        );
        if after == *before && *file == changes.file {
            return self.carry_out(file, actions);
        }
        for action in actions {
            // Before the state file says that the range is shown: the next start must not zero a
            // range that hosts have written.
            let zeroed = self.plane.zero_before(action);
            zeroed.map_err(|error| ChangeError::Plane {
                error,
                remaining: Vec::new(),
            })?;
        }
        // The ranges that this change gives up follow when it is made: if it fails, they hold live
        // data.
        let to_zero = self.plane.to_zero();
        if let Some(store) = &changes.store {
            let of_plane = (&to_zero[..], &self.plane.reservations()[..]);
            store.save(file, &after, of_plane, changes.kept())?;
        }
        let done = self.carry_out(file, actions);
        self.plane.settle();
        if done.is_ok() {
            self.assert_in_force(&after);
        }
        let Some(store) = &changes.store else {
            return done;
        };
        if done.is_err()
            && let Err(error) = self.save(store, &changes.file, changes.kept())
        {
            tracing::error!("{error}; it says that a change was made which was not");
        }
        if done.is_ok()
            && self.plane.to_zero() != to_zero
            && let Err(error) = self.save(store, file, changes.kept())
        {
            tracing::error!(
                "{error}; unless a later change is written to it, a namespace that was made smaller \
                 and grows after a restart shows its old content again"
            );
        }
        done
    }

    fn save(
        &self,
        store: &StateFile,
        file: &Configuration,
        kept: (&AddedKeys, &[AnaGroup]),
    ) -> Result<(), StateError> {
        let of_plane = (&self.plane.to_zero()[..], &self.plane.reservations()[..]);
        store.save(file, &self.configuration(), of_plane, kept)
    }

    /// Lets hosts of `target`, which the plane is over, request reservations that survive a restart,
    /// if there is a state file. Call it before hosts can connect.
    pub fn offer_persistence(self: &Arc<Self>, target: &Target) {
        if lock(&self.change).store.is_none() {
            return;
        }
        let control = Arc::downgrade(self);
        target.keep_reservations(move || {
            let control = control.upgrade();
            control.map_or(Err("the target is ending".to_owned()), |it| {
                it.keep_reservations()
            })
        });
    }

    /// Writes the reservations that persist to the state file, if there is one.
    pub(crate) fn keep_reservations(&self) -> Result<(), String> {
        let changes = lock(&self.change);
        if self.leaving.load(Ordering::Relaxed) {
            // The successor has the state already.
            return Err("another process is taking the target over".to_owned());
        }
        let store = changes.store.as_ref();
        let saved = store.map(|store| self.save(store, &changes.file, changes.kept()));
        saved.unwrap_or(Ok(())).map_err(|error| error.to_string())
    }

    /// Returns the keys of hosts: those of files, by NQN, and those that the interface added.
    pub(crate) fn host_keys(&self) -> (BTreeMap<String, KnownKeys>, AddedKeys) {
        let added = lock(&self.change).host_keys.clone();
        (self.plane.keys_of_files(), added)
    }

    /// Replaces the keys that the interface added to a host; `None` removes them.
    ///
    /// # Errors
    /// A name that no host can have, too many hosts, or nothing to remove; a state that cannot be
    /// written.
    pub(crate) fn set_host_keys(
        &self,
        nqn: &str,
        keys: Option<HostKeys>,
    ) -> Result<(), ChangeError> {
        let mut changes = self.begin()?;
        let mut added = changes.host_keys.clone();
        match keys {
            Some(keys) => {
                if let Err(why) = check_nqn(nqn) {
                    return Err(ApplyError::invalid(format!("{nqn:?} {why}"), NQN_EXPECTED).into());
                }
                let since_unix_ms = now();
                let known = KnownKeys {
                    keys,
                    since_unix_ms,
                };
                added.0.insert(nqn.to_owned(), known);
                if added.0.len() > HOSTS_MAX {
                    let message = format!("there are keys of {HOSTS_MAX} hosts already");
                    return Err(
                        ApplyError::conflict(message, "remove those of another host").into(),
                    );
                }
            }
            None => {
                if added.0.remove(nqn).is_none() {
                    return Err(ApplyError::not_found(
                        format!("the interface has added no keys to host {nqn:?}"),
                        "those of files are removed there; list all by GET /v1/hosts",
                    )
                    .into());
                }
            }
        }
        changes.warn_of_forgetting();
        if let Some(store) = &changes.store {
            self.save(store, &changes.file, (&added, &changes.ana))?;
        }
        self.plane.set_added_keys(&added);
        changes.host_keys = added;
        Ok(())
    }

    /// Returns the states of ANA groups that were set while running.
    #[must_use]
    pub fn ana(&self) -> Vec<AnaGroup> {
        lock(&self.change).ana.clone()
    }

    /// Sets the state of an ANA group. When it returns, no command of the group is executed if the
    /// state refuses them.
    ///
    /// # Errors
    /// An unknown subsystem, a group out of range, an epoch below the one that was set, a core or
    /// device that did not follow in time; a state that cannot be written.
    pub fn set_ana(&self, set: AnaGroup) -> Result<(), ChangeError> {
        let mut changes = self.begin()?;
        let configuration = self.configuration();
        if configuration.subsystem(&set.nqn).is_none() {
            return Err(ApplyError::no_subsystem(&set.nqn).into());
        }
        let mut ana = changes.ana.clone();
        ana.retain(|it| configuration.subsystem(&it.nqn).is_some());
        let place = ana.binary_search_by(|it| (&it.nqn, it.group).cmp(&(&set.nqn, set.group)));
        match place {
            Ok(index) if set.epoch < ana[index].epoch => {
                let message = format!(
                    "epoch {} of ANA group {} is over: epoch {} has begun",
                    set.epoch, set.group, ana[index].epoch
                );
                let what_to_do = "let the owner of the latest epoch set the state";
                return Err(ApplyError::conflict(message, what_to_do).into());
            }
            Ok(index) => ana[index] = set.clone(),
            Err(index) => ana.insert(index, set.clone()),
        }
        changes.warn_of_forgetting();
        // Before it is in force: a later start must not serve what another target serves by then.
        if let Some(store) = &changes.store {
            self.save(store, &changes.file, (&changes.host_keys, &ana))?;
        }
        if let Err(error) = self.plane.set_ana(&set) {
            if let Some(store) = &changes.store
                && let Err(error) = self.save(store, &changes.file, changes.kept())
            {
                tracing::error!("{error}; it says that an ANA state was set which was not");
            }
            let remaining = Vec::new();
            return Err(ChangeError::Plane { error, remaining });
        }
        changes.ana = ana;
        Ok(())
    }

    /// # Panics
    /// If the configuration in force is another one than what is remembered: the next start would
    /// undo a change, or make one that no one asked for.
    fn assert_in_force(&self, remembered: &Configuration) {
        let in_force = self.configuration();
        assert!(*in_force == *remembered, "what is remembered is in force");
    }

    /// Runs `work` on a thread that may block, once the callers before have made their changes: until
    /// then it takes no thread. Once begun, it is finished even if its caller goes away.
    pub(crate) async fn in_turn<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let work = move || {
            let _turn = turn;
            work(&self)
        };
        spawn_blocking(work).await
    }

    /// Returns the actions that would make `new` the configuration in force, and carries none out.
    ///
    /// # Errors
    /// The reason for which [`replace`](Self::replace) would refuse it.
    pub fn plan(&self, new: &Configuration) -> Result<Vec<Action>, ChangeError> {
        let changes = lock(&self.change);
        let actions = actions_between(&self.configuration(), new)?;
        check_folders(&changes.file, added(&actions))?;
        Ok(actions)
    }

    /// Makes `new` the configuration in force. Returns what had to be done.
    ///
    /// # Errors
    /// Why not; see [`ChangeError`] for what is in force then.
    pub fn replace(&self, new: &Configuration) -> Result<Vec<Action>, ChangeError> {
        self.change_with(|before| actions_between(before, new))
    }

    /// Puts what the TOML file at `path` changed since it was last put in force in force, and
    /// leaves what the interface changed. Returns what had to be done.
    ///
    /// # Errors
    /// Why not; see [`ChangeError`] for what is in force then.
    pub fn replace_from_file(&self, path: &Path) -> Result<Vec<Action>, ChangeError> {
        let file = config::load(path)?;
        let mut changes = self.begin()?;
        let before = self.configuration();
        let merged = merge(&changes.file, &before, &file)?;
        let actions = merge::actions(&before, &merged)?;
        self.plane.read_keys_again()?;
        self.carry_out_durably(&changes, &file, &actions)?;
        changes.file = file;
        Ok(actions)
    }

    /// Takes `said` for what the file last put in force says, where it is what the file at `path`
    /// says now: what the interface changes later is then a change of that. Returns true if so.
    ///
    /// # Errors
    /// A file that differs in what needs a restart; a state that cannot be written.
    pub fn note_file(&self, path: &Path, said: &Configuration) -> Result<bool, ChangeError> {
        let mut changes = self.begin()?;
        // Read here: a client's word alone would name devices that are in none of the folders.
        if !config::load(path).is_ok_and(|file| file == *said) {
            return Ok(false);
        }
        merge::actions(&self.configuration(), said)?;
        self.carry_out_durably(&changes, said, &[])?;
        changes.file = said.clone();
        Ok(true)
    }

    /// Applies each action to the dataplane and, when it holds there, to the model.
    fn carry_out(&self, file: &Configuration, actions: &[Action]) -> Result<(), ChangeError> {
        let mut done: Vec<(&Action, Option<Action>)> = Vec::new();
        let begin = self.configuration();
        for action in actions {
            let before = self.configuration();
            // At the start, which opens devices only here. A later change has zeroed them by now.
            let zeroed = self.plane.zero_before(action);
            let apply = |()| self.plane.apply(action, folders_of(file, action));
            if let Err(error) = zeroed.and_then(apply) {
                let remaining = self.undo(file, done);
                assert!(
                    !remaining.is_empty() || self.configuration() == begin,
                    "what is undone leaves nothing behind"
                );
                return Err(ChangeError::Plane { error, remaining });
            }
            self.commit(action);
            done.push((action, action.inverse(&before)));
        }
        Ok(())
    }

    /// Undoes what was done, last first, as far as it goes. Returns what stays.
    fn undo(&self, file: &Configuration, mut done: Vec<(&Action, Option<Action>)>) -> Vec<Action> {
        while let Some((_, inverse)) = done.last() {
            let Some(inverse) = inverse else { break };
            if self
                .plane
                .apply(inverse, folders_of(file, inverse))
                .is_err()
            {
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

/// Returns the actions that turn one configuration into another, which is checked.
pub(crate) fn actions_between(
    before: &Configuration,
    after: &Configuration,
) -> Result<Vec<Action>, ChangeError> {
    config::validate(after)?;
    let mut after = after.clone();
    after.sort();
    Ok(merge::actions(before, &after)?)
}

/// Returns the devices that `actions` add.
fn added(actions: &[Action]) -> impl Iterator<Item = (&String, &Device)> {
    actions.iter().filter_map(|action| match action {
        Action::AddDevice { name, device } => Some((name, device)),
        _ => None,
    })
}

/// Refuses devices with files outside of the folders for those that `file` does not name itself.
fn check_folders<'a>(
    file: &Configuration,
    mut devices: impl Iterator<Item = (&'a String, &'a Device)>,
) -> Result<(), ApplyError> {
    devices.try_for_each(|(name, device)| {
        if names(file, name, device) {
            return Ok(());
        }
        folders::check(device, &file.device_folders)
    })
}

/// Returns the folders in which a device that `action` adds must have its files.
fn folders_of<'a>(file: &'a Configuration, action: &Action) -> Option<&'a [PathBuf]> {
    match action {
        Action::AddDevice { name, device } if !names(file, name, device) => {
            Some(&file.device_folders)
        }
        _ => None,
    }
}

/// Returns true where `file` names the device itself, which may have grown since.
fn names(file: &Configuration, name: &str, device: &Device) -> bool {
    let Some(mut said) = file.devices.get(name).cloned() else {
        return false;
    };
    if let Some(size) = device.kind.size() {
        said.kind.set_size(size);
    }
    said == *device
}

/// The model is whole between any two statements that can panic, so a poisoned lock is as good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
