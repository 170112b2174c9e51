//! The control plane's [`DataPlane`] over a [`Target`].
//!
//! This is where the two meet, because neither crate knows the other: it owns the devices by the
//! names that a configuration gives them, turns each [`Action`] into a call on the target, and the
//! target's snapshot into the control plane's. Never called on a dataplane core.

pub mod devices;
mod recalibration;
mod tenancy;
#[cfg(test)]
mod tests;
mod usage;
mod view;

use crate::action::Action;
use crate::calibration::{CalibrationRequest, CalibrationSnapshot};
use crate::dataplane::DataPlane;
use crate::device_model::DeviceModel;
use crate::error::{ApplyError, ApplyErrorKind};
use crate::model::{self, DISCOVERY_NQN, Namespace, Size, Subsystem, is_qualified};
use crate::snapshot::{
    CacheSnapshot, CoreSnapshot, CoreStats, NamespaceSnapshot, Snapshot, SwitchSnapshot,
    TenantEvent,
};
use block::{Cache, Device};
use qos::TokenPoolRules;
use recalibration::{Recalibrations, Subject};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use target::{
    DeviceQos, NamespaceOptions, Referral, SubsystemOptions, SubsystemSnapshot, Target, TargetError,
};
use tenancy::tenancy;
use view::{View, whole_blocks};

/// Time between two looks at a device that is removed.
const REMOVAL_POLL: Duration = Duration::from_millis(5);

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
    recalibrations: Recalibrations,
}

/// Open devices, and the namespaces that use them.
#[derive(Debug, Default)]
struct Opened {
    devices: BTreeMap<String, OpenDevice>,
    /// The device's name of each namespace.
    users: BTreeMap<(String, u32), String>,
}

/// A device that is open.
#[derive(Clone, Debug)]
struct OpenDevice {
    device: Arc<dyn Device>,
    /// Names what is on it.
    content: String,
    /// The cache among its layers.
    cache: Option<Cache>,
    /// The device below its layers, where it has the lock of a file.
    file: Option<Weak<dyn Device>>,
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
    /// A plane over `target`, which shares nothing yet and runs on `cores`.
    #[must_use]
    pub fn new(target: Arc<Target>, cores: Vec<u32>) -> Self {
        let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
        Self {
            target,
            cache_life: (high ^ low).max(1),
            cores,
            started: Instant::now(),
            opened: Mutex::default(),
            recalibrations: Recalibrations::default(),
        }
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        // Every change is one insertion or removal, so a poisoned lock is still good.
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self, name: &str) -> Result<OpenDevice, ApplyError> {
        let device = self.opened().devices.get(name).cloned();
        device.ok_or_else(|| {
            ApplyError::new(
                ApplyErrorKind::NotFound,
                format!("there is no device {name:?}"),
                "add the device first",
            )
        })
    }

    /// Removes a device that no namespace uses, once its cache has written everything back and, where
    /// it has a file, nothing else has it open: the next device may have the same file.
    fn remove_device(&self, name: &str) -> Result<(), ApplyError> {
        let OpenDevice {
            device,
            cache,
            file,
            ..
        } = self.device(name)?;
        if let Some(cache) = cache {
            let mut has_channels = self.is_still(|| cache.has_channels());
            let dirty = cache.snapshot().dirty;
            if dirty == 0 && has_channels && self.recalibrations.cancel(name).is_ok() {
                // That of the calibration.
                has_channels = self.is_still(|| cache.has_channels());
            }
            if dirty > 0 || has_channels {
                let message = format!(
                    "device {name:?} does not answer its cache, or does not take what that has to \
                     write back ({dirty} pages of 4 KiB), so it is not removed"
                );
                let remedy = "add a namespace over it to have the pages written again; the end of \
                              the target loses them";
                return Err(ApplyError::new(ApplyErrorKind::Failed, message, remedy));
            }
        }
        let Some(file) = file else {
            self.close_device(name);
            return Ok(());
        };
        // The list of open devices and this function have it, too, and a calibration that runs: that
        // one ends for a removal that nothing else stands in the way of.
        let is_held = |count| self.is_still(|| Arc::strong_count(&device) > count);
        let calibrations = usize::from(self.recalibrations.is_running(name));
        let is_used = is_held(2 + calibrations) || {
            // One that was never begun has nothing to end.
            let _ = self.recalibrations.cancel(name);
            is_held(2)
        };
        if is_used {
            let message = format!(
                "device {name:?} is in use by a thread that does not answer, so it is not removed \
                 and its file stays locked"
            );
            let remedy = "try again when there is less to do";
            return Err(ApplyError::new(ApplyErrorKind::Failed, message, remedy));
        }
        self.close_device(name);
        drop(device);
        // Threads of its I/O path end when nothing uses it any more.
        if self.is_still(|| file.strong_count() > 0) {
            tracing::warn!(
                device = name,
                "the device is removed, but its I/O path does not answer, so its file is still locked"
            );
        }
        Ok(())
    }

    fn close_device(&self, name: &str) {
        self.opened().devices.remove(name);
        self.recalibrations.forget(name);
    }

    /// Waits while `busy`, at most for as long as a change may take. Returns true if it is then.
    fn is_still(&self, busy: impl Fn() -> bool) -> bool {
        let patience: Duration = self.target.limits().change_timeout.into();
        let end = Instant::now() + patience;
        while busy() {
            if Instant::now() >= end {
                return true;
            }
            std::thread::sleep(REMOVAL_POLL);
        }
        false
    }

    fn add_subsystem(&self, subsystem: &Subsystem) -> Result<(), ApplyError> {
        let nqn = &subsystem.nqn;
        let mut namespaces = Vec::new();
        let mut cached = false;
        for namespace in &subsystem.namespaces {
            let (options, has_cache) = self.namespace_options(subsystem, namespace)?;
            namespaces.push(options);
            cached |= has_cache;
        }
        let options = SubsystemOptions {
            nqn: nqn.clone(),
            serial: subsystem.serial.clone(),
            model: subsystem.model.clone(),
            allow_any_host: subsystem.allow_any_host,
            allowed_hosts: subsystem.allowed_hosts.iter().cloned().collect(),
            namespaces,
            cache_life: cached.then_some(self.cache_life),
        };
        self.target.add_subsystem(options).map_err(refused)?;
        if !is_qualified(nqn) {
            tracing::warn!(
                nqn,
                "this name is no NVMe Qualified Name: some hosts refuse it"
            );
        }
        let namespaces = subsystem.namespaces.iter();
        let users = namespaces.map(|n| ((nqn.clone(), n.nsid), n.device.clone()));
        self.opened().users.extend(users);
        Ok(())
    }

    fn remove_subsystem(&self, nqn: &str) -> Result<(), ApplyError> {
        self.target.remove_subsystem(nqn).map_err(refused)?;
        self.opened().users.retain(|(user, _), _| user != nqn);
        Ok(())
    }

    fn add_namespace(&self, owner: &Subsystem, namespace: &Namespace) -> Result<(), ApplyError> {
        let (options, cached) = self.namespace_options(owner, namespace)?;
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
        let user = (owner.nqn.clone(), namespace.nsid);
        self.opened().users.insert(user, namespace.device.clone());
        Ok(())
    }

    /// Returns a namespace as the target takes it, and true if its device has a cache.
    fn namespace_options(
        &self,
        owner: &Subsystem,
        namespace: &Namespace,
    ) -> Result<(NamespaceOptions, bool), ApplyError> {
        let opened = self.device(&namespace.device)?;
        let bytes = opened.size_of_namespace(namespace.size);
        let OpenDevice {
            device,
            content,
            cache,
            shared,
            used_by_many,
            ..
        } = opened;
        let view = View::new(device, bytes, used_by_many).map_err(|error| {
            ApplyError::new(
                ApplyErrorKind::Invalid,
                format!("namespace {}: {error}", namespace.nsid),
                "choose a size that the device has",
            )
        })?;
        let options = NamespaceOptions {
            nsid: namespace.nsid,
            device: Arc::new(view),
            uuid: namespace.uuid_or_derived(owner, &content).bytes,
            nguid: namespace.nguid.map_or([0; 16], |nguid| nguid.bytes),
            eui64: namespace.eui64.map_or([0; 8], |eui64| eui64.bytes),
            read_only: namespace.read_only,
            qos: shared.map(|(qos, _)| qos),
        };
        Ok((options, cache.is_some()))
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
        let name = self.opened().users.get(&user).cloned();
        let missing = || {
            refused(TargetError::NoNamespace {
                nqn: nqn.to_owned(),
                nsid,
            })
        };
        let name = name.ok_or_else(missing)?;
        let mut device = self.device(&name)?;
        device.stated = device_size.map(|size| size.bytes);
        let bytes = device.size_of_namespace(size);
        let blocks = whole_blocks(&*device.device, bytes).map_err(|error| {
            let remedy = "choose a multiple of the device's block size";
            ApplyError::new(ApplyErrorKind::Invalid, error.to_string(), remedy)
        })?;
        self.target
            .resize_namespace(nqn, nsid, blocks)
            .map_err(refused)?;
        self.opened().devices.insert(name, device);
        Ok(())
    }
}

impl DataPlane for Plane {
    fn apply(&self, action: &Action) -> Result<(), ApplyError> {
        let target = &self.target;
        match action {
            Action::AddDevice { name, device } => {
                let opened = open(name, device)?;
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
            Action::AddReferral { referral } => {
                target.add_referral(to_referral(referral)?).map_err(refused)
            }
            Action::SetTenants {
                tenants,
                default_tenant,
            } => target
                .set_tenants(&tenancy(tenants, *default_tenant))
                .map_err(refused),
            Action::TurnKnobs { switch } => target.set_knobs(switch.0).map_err(refused),
            Action::RemoveReferral { referral } => target
                .remove_referral(to_referral(referral)?)
                .map_err(refused),
        }
    }

    fn events(&self, after: u64) -> Vec<TenantEvent> {
        self.target.tenant_events(after)
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
        let uptime = self.started.elapsed().as_millis();
        Snapshot {
            uptime_ms: u64::try_from(uptime).unwrap_or(u64::MAX),
            discovery_generation: snapshot.generation,
            connections: (&total).into(),
            usage: usage::usage(&snapshot, &self.cores),
            limited: usage::limited(&snapshot, &total),
            cores: cores.collect(),
            threads: snapshot.threads,
            switch: self.switch(&snapshot),
            namespaces: self.namespaces(snapshot.subsystems),
            listen: snapshot.listeners,
            devices: snapshot.devices,
            caches: self.caches(),
            controllers: snapshot.controllers,
            attachments: None,
        }
    }

    fn calibrate(&self, name: &str, request: CalibrationRequest) -> Result<(), ApplyError> {
        let OpenDevice { device, shared, .. } = self.device(name)?;
        let (qos, model) = shared.ok_or_else(|| {
            ApplyError::new(
                ApplyErrorKind::Conflict,
                format!("device {name:?} has no model, so nothing pays for reads of it"),
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
                    .cloned()
                    .unwrap_or_default(),
                size_bytes: namespace.blocks * u64::from(namespace.block_bytes),
                namespace,
            })
        };
        subsystems.into_iter().flat_map(of_subsystem).collect()
    }
}

/// Opens a device, and reads its model.
fn open(name: &str, model: &model::Device) -> Result<OpenDevice, ApplyError> {
    let refused = |error: &dyn std::fmt::Display, remedy| {
        let message = format!("device {name:?}: {error}");
        ApplyError::new(ApplyErrorKind::Failed, message, remedy)
    };
    let opened = devices::open_identified(model)
        .map_err(|error| refused(&error, "correct the device, or leave it out"))?;
    let shared = match &model.model {
        None => None,
        Some(path) => {
            let read = DeviceModel::load(path)
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
        file: matches!(model.kind, model::DeviceKind::File { .. }).then_some(opened.innermost),
        shared,
        used_by_many: model.shared,
        stated: model.kind.size().map(|size| size.bytes),
    })
}

fn to_referral(referral: &model::Referral) -> Result<Referral, ApplyError> {
    if referral.nqn != DISCOVERY_NQN {
        return Err(ApplyError::new(
            ApplyErrorKind::Invalid,
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
    let (kind, what_to_do) = match &error {
        TargetError::NoSubsystem(_) | TargetError::NoNamespace { .. } => {
            (ApplyErrorKind::NotFound, "name one that there is")
        }
        TargetError::Exists(_) => (ApplyErrorKind::Conflict, "remove the other one first"),
        TargetError::Refused { .. } => (
            ApplyErrorKind::Conflict,
            "ask for what would be admitted, or take promises of other tenants back",
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
