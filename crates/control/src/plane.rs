//! The control plane's [`DataPlane`] over a [`Target`].
//!
//! This is where the two meet, because neither crate knows the other: it owns the devices by the
//! names that a configuration gives them, turns each [`Action`] into a call on the target, and the
//! target's snapshot into the control plane's. Never called on a dataplane core.

mod ana;
mod crypt_key;
pub mod devices;
mod keys;
mod recalibration;
mod removal;
mod takeover;
mod tenancy;
#[cfg(test)]
mod tests;
mod usage;
mod view;
mod zeroing;

pub use crypt_key::read as read_crypt_key;

use crate::ana::{AnaGroup, to_wire};
use crate::calibration::{CalibrationRequest, CalibrationSnapshot};
use crate::dataplane::DataPlane;
use crate::host_keys::{self, AddedKeys, KnownKeys};
use crate::snapshot::{
    CacheSnapshot, CoreSnapshot, CoreStats, EraseSnapshot, NamespaceSnapshot, Snapshot,
    SwitchSnapshot, TargetEvent,
};
use crate::state::ToZero;
use block::{Cache, Device};
use config::action::Action;
use config::device_model::DeviceModel;
use config::schema::{
    Configuration, DISCOVERY_NQN, Namespace, Size, Subsystem, TlsMode, is_qualified,
};
use config::{ApplyError, ApplyErrorKind};
use devices::TakenOver;
use keys::{FilesOfAny, Keys};
use qos::TokenPoolRules;
use recalibration::{Recalibrations, Subject};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use target::trace::TraceFilter;
use target::{
    DeviceQos, NamespaceOptions, Referral, ReservationRecord, SubsystemOptions, SubsystemSnapshot,
    Target, TargetError, Trace,
};
use tenancy::{authentication, tenancy};
use transport::key_file::KeyFileError;
use view::{View, whole_blocks};

/// A target, and the devices that it shares.
#[derive(Debug)]
pub struct Plane {
    target: Arc<Target>,
    /// The life of the devices' caches, which are memory of this process: each start is another.
    cache_life: u64,
    /// The processors of the target's threads, in the target's order.
    cores: Vec<u32>,
    started: Instant,
    opened: Mutex<Opened>,
    keys: Keys,
    /// TLS of listeners that have no own.
    tls: TlsMode,
    recalibrations: Recalibrations,
    /// States of ANA groups, for subsystems that are added later.
    ana: Mutex<Vec<AnaGroup>>,
    /// The erase in progress.
    erasing: Mutex<Option<EraseSnapshot>>,
    /// What the process before gives of devices that are not open yet.
    taken_over: Mutex<BTreeMap<String, TakenOver>>,
}

/// Open devices, and the namespaces that use them.
#[derive(Debug, Default)]
struct Opened {
    devices: BTreeMap<String, OpenDevice>,
    users: BTreeMap<(String, u32), User>,
    /// The namespaces that the change in progress resized.
    resized: Vec<(String, u32)>,
    /// Ranges that no namespace may show again before they are zeroed. A device that the change in
    /// progress removes keeps its ranges until the end of that change, which may add it again.
    to_zero: Vec<ToZero>,
}

/// A namespace, which uses a device.
#[derive(Debug)]
struct User {
    /// The device's name.
    device: String,
    ana_group: u32,
    view: Arc<View>,
}

/// A device that is open.
#[derive(Clone, Debug)]
struct OpenDevice {
    device: Arc<dyn Device>,
    /// Names what is on it.
    content: String,
    /// The cache among its layers.
    cache: Option<Cache>,
    /// The device below its layers: the lock of a file goes with it.
    innermost: Weak<dyn Device>,
    /// That device has the lock of a file.
    is_file: bool,
    /// The accounts of its tenants and the model of its file, where it has a model.
    shared: Option<(Arc<DeviceQos>, Arc<DeviceModel>)>,
    /// More than one namespace may use it at a time.
    used_by_many: bool,
    /// The size that the configuration states, in bytes: what "all of the device" means, also
    /// where the device had grown for a change that was undone.
    stated: Option<u64>,
}

impl OpenDevice {
    /// The size that a namespace over it has, in bytes; `None` where the device decides.
    fn size_of_namespace(&self, size: Option<Size>) -> Option<u64> {
        size.map(|size| size.bytes).or(self.stated)
    }
}

impl Plane {
    /// A plane over `target`, which shares nothing yet and runs on `cores`. There are no keys for every
    /// host, and files with keys of hosts are in the current folder.
    #[must_use]
    pub fn new(target: Arc<Target>, cores: Vec<u32>) -> Self {
        Self::with(target, cores, Keys::default())
    }

    /// The same with the files of keys that the configuration names; `config_path` is its own.
    ///
    /// # Errors
    /// What is wrong with which file of keys for every host.
    pub fn with_keys(
        target: Arc<Target>,
        cores: Vec<u32>,
        configuration: &Configuration,
        config_path: Option<&Path>,
    ) -> Result<Self, KeyFileError> {
        let folder = host_keys::folder(configuration, config_path);
        let keys = Keys::new(folder, FilesOfAny::of(configuration))?;
        let tls = configuration.tls;
        Ok(Self {
            tls,
            ..Self::with(target, cores, keys)
        })
    }

    fn with(target: Arc<Target>, cores: Vec<u32>, keys: Keys) -> Self {
        let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
        Self {
            target,
            cache_life: (high ^ low).max(1),
            cores,
            started: Instant::now(),
            opened: Mutex::default(),
            keys,
            tls: TlsMode::Off,
            recalibrations: Recalibrations::default(),
            ana: Mutex::default(),
            erasing: Mutex::default(),
            taken_over: Mutex::default(),
        }
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        // Every change is one insertion or removal, so a poisoned lock is still good.
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self, name: &str) -> Result<OpenDevice, ApplyError> {
        let device = self.opened().devices.get(name).cloned();
        device.ok_or_else(|| {
            ApplyError::not_found(
                format!("there is no device {name:?}"),
                "add the device first",
            )
        })
    }

    fn add_subsystem(&self, subsystem: &Subsystem) -> Result<(), ApplyError> {
        let nqn = &subsystem.nqn;
        let mut namespaces = Vec::new();
        let mut users = Vec::new();
        let mut cached = false;
        for namespace in &subsystem.namespaces {
            let (options, user, has_cache) = self.namespace_options(subsystem, namespace)?;
            namespaces.push(options);
            users.push(((nqn.clone(), namespace.nsid), user));
            cached |= has_cache;
        }
        let options = SubsystemOptions {
            nqn: nqn.clone(),
            serial: subsystem.serial.clone(),
            model: subsystem.model.clone(),
            allow_any_host: subsystem.allow_any_host,
            allowed_hosts: subsystem.allowed_hosts.iter().cloned().collect(),
            authentication: authentication(subsystem.authentication),
            namespaces,
            cache_life: cached.then_some(self.cache_life),
            ana_state: to_wire(subsystem.ana_state),
            ana_groups: self.ana_before(nqn),
        };
        self.target.add_subsystem(options).map_err(refused)?;
        if !is_qualified(nqn) {
            tracing::warn!(
                nqn,
                "this name is no NVMe Qualified Name: some hosts refuse it"
            );
        }
        self.opened().users.extend(users);
        Ok(())
    }

    fn remove_subsystem(&self, nqn: &str) -> Result<(), ApplyError> {
        self.target.remove_subsystem(nqn).map_err(refused)?;
        self.opened().users.retain(|(user, _), _| user != nqn);
        Ok(())
    }

    fn add_namespace(&self, owner: &Subsystem, namespace: &Namespace) -> Result<(), ApplyError> {
        let (options, user, cached) = self.namespace_options(owner, namespace)?;
        if cached {
            // Before a host sees the namespace.
            let life = self.cache_life;
            self.target
                .set_cache_life(&owner.nqn, life)
                .map_err(refused)?;
        }
        self.target
            .add_namespace(&owner.nqn, options)
            .map_err(refused)?;
        let name = (owner.nqn.clone(), namespace.nsid);
        self.opened().users.insert(name, user);
        Ok(())
    }

    /// Returns a namespace as the target takes it and as a user of its device, and true if that has
    /// a cache.
    fn namespace_options(
        &self,
        owner: &Subsystem,
        namespace: &Namespace,
    ) -> Result<(NamespaceOptions, User, bool), ApplyError> {
        let name = &namespace.device;
        let opened = self.device(name)?;
        let bytes = opened.size_of_namespace(namespace.size);
        let device = Arc::clone(&opened.device);
        let view = View::new(device, bytes, opened.used_by_many).map_err(|error| {
            ApplyError::invalid(
                format!("namespace {}: {error}", namespace.nsid),
                "choose a size that the device has",
            )
        })?;
        let view = Arc::new(view);
        let options = NamespaceOptions {
            nsid: namespace.nsid,
            device: Arc::clone(&view) as _,
            uuid: namespace.uuid_or_derived(owner, &opened.content).bytes,
            nguid: namespace.nguid.map_or([0; 16], |nguid| nguid.bytes),
            eui64: namespace.eui64.map_or([0; 8], |eui64| eui64.bytes),
            read_only: namespace.read_only,
            ana_group: namespace.ana_group,
            qos: opened.shared.map(|(qos, _)| qos),
        };
        let device = name.clone();
        let user = User {
            device,
            ana_group: namespace.ana_group,
            view,
        };
        Ok((options, user, opened.cache.is_some()))
    }

    /// The serial number is what a namespace's derived UUID needs to know of its subsystem.
    fn owner(&self, nqn: &str) -> Result<Subsystem, ApplyError> {
        let snapshot = self.target.snapshot();
        let found = snapshot
            .subsystems
            .into_iter()
            .find(|subsystem| subsystem.nqn == nqn);
        let found = found.ok_or_else(|| refused(TargetError::NoSubsystem(nqn.to_owned())))?;
        let mut owner = Subsystem::new(nqn);
        owner.serial = found.serial;
        Ok(owner)
    }

    fn resize_namespace(
        &self,
        nqn: &str,
        nsid: u32,
        size: Option<Size>,
        device_size: Option<Size>,
    ) -> Result<(), ApplyError> {
        let user = (nqn.to_owned(), nsid);
        let found = self.opened().users.get(&user).map(|user| {
            let view = Arc::clone(&user.view);
            (user.device.clone(), view)
        });
        let missing = || {
            refused(TargetError::NoNamespace {
                nqn: nqn.to_owned(),
                nsid,
            })
        };
        let (name, view) = found.ok_or_else(missing)?;
        let mut device = self.device(&name)?;
        device.stated = device_size.map(|size| size.bytes);
        let bytes = device.size_of_namespace(size);
        let blocks = whole_blocks(&*device.device, bytes).map_err(|error| {
            let remedy = "choose a multiple of the device's block size";
            ApplyError::invalid(error.to_string(), remedy)
        })?;
        if device.device.capabilities().read_only && !view.given_up(blocks).is_empty() {
            return Err(ApplyError::invalid(
                format!(
                    "device {name:?} is read-only: the blocks that the namespace gives up cannot be zeroed later"
                ),
                "remove the namespace and add a smaller one",
            ));
        }
        self.target
            .resize_namespace(nqn, nsid, blocks)
            .map_err(refused)?;
        let mut opened = self.opened();
        opened.devices.insert(name, device);
        opened.resized.push(user);
        Ok(())
    }
}

impl DataPlane for Plane {
    fn apply(&self, action: &Action, folders: Option<&[PathBuf]>) -> Result<(), ApplyError> {
        let target = &self.target;
        match action {
            Action::AddDevice { name, device } => {
                let taken_over = self.taken_over(name);
                let opened = open(name, device, folders, taken_over)?;
                self.opened().devices.insert(name.clone(), opened);
                Ok(())
            }
            Action::RemoveDevice { name } => self.remove_device(name),
            Action::AddSubsystem { subsystem } => self.add_subsystem(subsystem),
            Action::RemoveSubsystem { nqn } => self.remove_subsystem(nqn),
            Action::AddNamespace { nqn, namespace } => {
                self.add_namespace(&self.owner(nqn)?, namespace)
            }
            Action::ResizeNamespace {
                nqn,
                nsid,
                size,
                device_size,
            } => self.resize_namespace(nqn, *nsid, *size, *device_size),
            Action::RemoveNamespace { nqn, nsid } => {
                target.remove_namespace(nqn, *nsid).map_err(refused)?;
                self.opened().users.remove(&(nqn.clone(), *nsid));
                Ok(())
            }
            Action::AllowHost { nqn, host } => target.allow_host(nqn, host).map_err(refused),
            Action::DenyHost { nqn, host } => target.deny_host(nqn, host).map_err(refused),
            Action::SetAllowAnyHost { nqn, allow } => {
                target.allow_any_host(nqn, *allow).map_err(refused)
            }
            Action::AddListener { listener } => {
                let tls = listener.tls.unwrap_or(self.tls);
                let added = target.add_listener(to_listener(listener.address, tls));
                added.map(drop).map_err(refused)
            }
            Action::RemoveListener { listener } => {
                target.remove_listener(listener.address).map_err(refused)
            }
            Action::AddReferral { referral } => {
                target.add_referral(to_referral(referral)?).map_err(refused)
            }
            Action::SetTenants {
                tenants,
                default_tenant,
            } => target
                .set_tenants(&tenancy(tenants, *default_tenant))
                .map_err(refused),
            Action::SetAuthentication {
                nqn,
                authentication: required,
            } => target
                .set_authentication(nqn, authentication(*required))
                .map_err(refused),
            Action::SetHosts { hosts } => self.keys.set_hosts(hosts, target),
            Action::TurnKnobs { switch } => target.set_knobs(switch.0).map_err(refused),
            Action::RemoveReferral { referral } => target
                .remove_referral(to_referral(referral)?)
                .map_err(refused),
        }
    }

    fn zero_before(&self, action: &Action) -> Result<(), ApplyError> {
        self.zero_shown_by(action)
    }

    fn to_zero(&self) -> Vec<ToZero> {
        self.opened().to_zero.clone()
    }

    fn set_to_zero(&self, ranges: Vec<ToZero>) {
        self.opened().to_zero = ranges;
    }

    fn set_added_keys(&self, keys: &AddedKeys) {
        self.keys.set_added(keys, &self.target);
    }

    fn set_ana_before(&self, groups: &[AnaGroup]) {
        self.remember_ana(groups);
    }

    fn set_ana(&self, group: &AnaGroup) -> Result<(), ApplyError> {
        self.set_ana_state(group)
    }

    fn reservations(&self) -> Vec<ReservationRecord> {
        self.target.persistent_reservations()
    }

    fn set_reservations_before(&self, records: Vec<ReservationRecord>) {
        self.target.set_reservations(records);
    }

    fn read_keys_again(&self) -> Result<(), ApplyError> {
        self.keys.read_again(&self.target)
    }

    fn keys_of_files(&self) -> BTreeMap<String, KnownKeys> {
        self.keys.of_files()
    }

    fn settle(&self) {
        self.note_given_up();
    }

    fn events(&self, after: u64) -> Vec<TargetEvent> {
        self.target.events(after)
    }

    fn trace(&self, filter: TraceFilter) -> Result<Trace, ApplyError> {
        self.target.trace(filter).map_err(|error| match error {
            TargetError::Invalid(reason) => {
                let what_to_do = "end another `switchyard trace`";
                ApplyError::new(ApplyErrorKind::Conflict, reason, what_to_do)
            }
            other => refused(other),
        })
    }

    fn snapshot(&self) -> Snapshot {
        let snapshot = self.target.snapshot();
        let mut total = CoreStats::default();
        for core in &snapshot.cores {
            total.add(core);
        }
        let cores = self.cores.iter().zip(&snapshot.cores);
        let cores = cores.map(|(&core, &stats)| CoreSnapshot {
            core,
            busy_ns: busy_ns(core),
            stats,
        });
        let listeners = snapshot.listeners.iter();
        let bound: Vec<_> = listeners
            .map(|it| (it.requested, it.bound.address))
            .collect();
        let uptime = self.started.elapsed().as_millis();
        Snapshot {
            uptime_ms: u64::try_from(uptime).unwrap_or(u64::MAX),
            discovery_generation: snapshot.generation,
            connections: (&total).into(),
            usage: usage::usage(&snapshot, &self.cores),
            limited: usage::limited(&snapshot, &total),
            // The interface adds it.
            api_certificate_expiry_s: None,
            oldest_host_key_s: self.keys.oldest_s(),
            erase: self.erasing().clone(),
            cores: cores.collect(),
            threads: snapshot.threads,
            switch: self.switch(&snapshot),
            namespaces: self.namespaces(snapshot.subsystems),
            listen: bound.iter().map(|(_, bound)| *bound).collect(),
            bound,
            devices: snapshot.devices,
            caches: self.caches(),
            controllers: snapshot.controllers,
        }
    }

    fn calibrate(&self, name: &str, request: CalibrationRequest) -> Result<(), ApplyError> {
        let OpenDevice { device, shared, .. } = self.device(name)?;
        let (qos, model) = shared.ok_or_else(|| {
            ApplyError::conflict(format!("device {name:?} has no model, so nothing pays for reads of it"),
                "calibrate it with `switchyard calibrate DEVICE --output FILE` and name the file as \
                 its model",
            )
        })?;
        let subject = Subject {
            name: name.to_owned(),
            device,
            qos,
            model,
        };
        self.recalibrations.start(subject, request)
    }

    fn calibration(&self, device: &str) -> Result<CalibrationSnapshot, ApplyError> {
        self.device(device)?;
        self.recalibrations.show(device)
    }

    fn cancel_calibration(&self, device: &str) -> Result<(), ApplyError> {
        self.device(device)?;
        self.recalibrations.cancel(device)
    }
}

impl Plane {
    fn switch(&self, snapshot: &target::Snapshot) -> Vec<SwitchSnapshot> {
        assert_eq!(
            self.cores.len(),
            snapshot.switch.len(),
            "each core is shown with its own counters"
        );
        let cores = self.cores.iter().zip(&snapshot.switch);
        let cores = cores.zip(&snapshot.priorities).zip(0..);
        cores
            .map(|(((&core, &stats), priority), thread)| SwitchSnapshot {
                core,
                privilege: priority.privilege().name().to_owned(),
                privilege_refused: priority.refusal(),
                in_use: thread < snapshot.threads.active,
                stats,
            })
            .collect()
    }

    /// The counters of every device's cache.
    fn caches(&self) -> Vec<CacheSnapshot> {
        let opened = self.opened();
        let caches = opened.devices.iter();
        let caches = caches.filter_map(|(name, open)| Some((name, open.cache.as_ref()?)));
        caches
            .map(|(name, cache)| CacheSnapshot {
                device: name.clone(),
                counters: cache.snapshot(),
            })
            .collect()
    }

    fn namespaces(&self, subsystems: Vec<SubsystemSnapshot>) -> Vec<NamespaceSnapshot> {
        let opened = self.opened();
        let of_subsystem = |subsystem: SubsystemSnapshot| {
            let (nqn, users) = (subsystem.nqn, &opened.users);
            let namespaces = subsystem.namespaces.into_iter();
            namespaces.map(move |namespace| NamespaceSnapshot {
                nqn: nqn.clone(),
                device: users
                    .get(&(nqn.clone(), namespace.nsid))
                    .map(|user| user.device.clone())
                    .unwrap_or_default(),
                size_bytes: namespace.blocks * u64::from(namespace.block_bytes),
                namespace,
            })
        };
        subsystems.into_iter().flat_map(of_subsystem).collect()
    }
}

/// Opens a device, and reads its model.
fn open(
    name: &str,
    model: &config::schema::Device,
    folders: Option<&[PathBuf]>,
    taken_over: Option<TakenOver>,
) -> Result<OpenDevice, ApplyError> {
    let refused = |error: &dyn std::fmt::Display, remedy| {
        let message = format!("device {name:?}: {error}");
        ApplyError::failed(message, remedy)
    };
    let opened = devices::open_identified(model, folders, taken_over)
        .map_err(|error| refused(&error, "correct the device, or leave it out"))?;
    let shared = match &model.model {
        None => None,
        Some(path) => {
            let read = DeviceModel::load_beneath(path, folders)
                .map_err(|error| refused(&error, "correct the model, or omit the key"))?;
            let (costs, curve) = (read.prices.costs(), read.curve.clone());
            let qos = DeviceQos::new(name, TokenPoolRules::default(), costs, curve);
            Some((qos, Arc::new(read)))
        }
    };
    Ok(OpenDevice {
        device: opened.device,
        content: opened.content,
        cache: opened.cache,
        is_file: matches!(model.kind, config::schema::DeviceKind::File { .. }),
        innermost: opened.innermost,
        shared,
        used_by_many: model.shared,
        stated: model.kind.size().map(|size| size.bytes),
    })
}

/// Returns a listener as the target takes it.
pub(crate) fn to_listener(address: SocketAddr, tls: TlsMode) -> target::Listener {
    let tls = match tls {
        TlsMode::Off => target::TlsMode::Off,
        TlsMode::Allowed => target::TlsMode::Allowed,
        TlsMode::Required => target::TlsMode::Required,
    };
    target::Listener { address, tls }
}

fn to_referral(referral: &config::schema::Referral) -> Result<Referral, ApplyError> {
    if referral.nqn != DISCOVERY_NQN {
        return Err(ApplyError::invalid(
            format!("a referral to {:?} cannot be named to hosts", referral.nqn),
            format!("use the well-known name {DISCOVERY_NQN}"),
        ));
    }
    Ok(Referral {
        address: SocketAddr::new(referral.address, referral.port),
    })
}

/// Processor time of the target's thread on a core, from the kernel.
fn busy_ns(core: u32) -> u64 {
    let name = format!("target-{core}\n");
    let tasks = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let ours = tasks
        .map(|task| task.path())
        .find(|path| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm == name));
    ours.and_then(|path| std::fs::read_to_string(path.join("schedstat")).ok())
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// The target's refusal, as the control plane's.
fn refused(error: TargetError) -> ApplyError {
    if let TargetError::Listen {
        address,
        source,
        remedy,
    } = error
    {
        return ApplyError::failed(format!("cannot listen on {address}: {source}"), remedy);
    }
    let (kind, what_to_do) = match &error {
        TargetError::NoSubsystem(_) | TargetError::NoNamespace { .. } => {
            (ApplyErrorKind::NotFound, "name one that there is")
        }
        TargetError::Exists(_) => (ApplyErrorKind::Conflict, "remove the other one first"),
        TargetError::Refused { .. } => (
            ApplyErrorKind::Conflict,
            "request an SLO that would be admitted, or remove SLOs of other tenants",
        ),
        TargetError::Limits(_)
        | TargetError::Knobs(_)
        | TargetError::Name { .. }
        | TargetError::Invalid(_) => (ApplyErrorKind::Invalid, "correct it and try again"),
        TargetError::Undone(_) => (ApplyErrorKind::Failed, "try again when there is less to do"),
        TargetError::NotUndone(_) => (
            ApplyErrorKind::Failed,
            "make the change again when there is less to do, or remove what it was made to",
        ),
        TargetError::Device(_) | TargetError::Listen { .. } | TargetError::Core { .. } => {
            (ApplyErrorKind::Failed, "see the reason above")
        }
    };
    ApplyError::new(kind, error.to_string(), what_to_do)
}
