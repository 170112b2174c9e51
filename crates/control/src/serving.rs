//! A target with its control plane, from a configuration to its end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use base::units::CoreId;
use reactor::placement::{self, PlacementError};
use target::{Limits, RunningTarget, Target, TargetError, TargetOptions};

use transport::key_file::KeyFileError;

use crate::control::{ChangeError, Control};
use crate::credentials::Token;
use crate::plane::devices::TakenOver;
use crate::plane::{Plane, to_listener};
use crate::process::open_files;
use crate::process::service_manager::ServiceManager;
use crate::server::{self, Server, ServerError, ServerOptions};
use crate::socket_access::SocketAccess;
use crate::state::{StateError, StateFile};
use crate::takeover::{Given, Giver, Gives as _, Offer, TakeOverError, Taker, address_of, unpack};
use config::schema::{ApiAddress, Configuration, Device, DeviceKind};

/// Options of a target beside its configuration.
#[derive(Debug, Default)]
pub struct ServingOptions {
    /// The file that SIGHUP reads again.
    pub config_path: Option<PathBuf>,
    /// The file that keeps changes; without one the end of the process forgets them.
    pub state_path: Option<PathBuf>,
    /// The token of requests over TCP that may change something.
    pub token: Option<Token>,
    /// Takes over from the running target at the first address.
    pub take_over: bool,
}

/// The reason for which a target does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// Processors that cannot be used.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The target refused its limits or options.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The file of TLS keys cannot be used.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// The state file cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The configuration cannot be put in force.
    #[error("nothing is served: {0}")]
    Configuration(#[from] ChangeError),
    /// The control plane's thread cannot start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The service manager cannot be reached, or there is no room for a thread.
    #[error(transparent)]
    Process(#[from] io::Error),
    /// The running target was not taken over.
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
    /// A core of the target ended by itself.
    #[error("a core of the target broke: {0}")]
    Core(io::Error),
}

/// A target that serves.
#[derive(Debug)]
pub struct Serving {
    running: RunningTarget,
    control: Arc<Control>,
    server: Server,
    manager: ServiceManager,
    /// Waits for a process that takes the target over.
    giver: Option<Giver>,
}

impl Serving {
    /// Starts a target. Its subsystems are in place before its cores start: the first host to
    /// connect finds all of them.
    ///
    /// # Errors
    /// A configuration that cannot be put in force, or a machine that lacks something.
    pub fn start(
        configuration: &Configuration,
        options: ServingOptions,
    ) -> Result<Self, ServingError> {
        let available = placement::allowed_cores()?;
        let cores: Vec<CoreId> = match &configuration.cores {
            Some(cores) => cores.iter().copied().map(CoreId).collect(),
            None => available.clone(),
        };
        placement::check_allowed(&cores)?;
        let wanted = files_wanted(configuration, cores.len());
        warn_of_few_files(open_files::raise(), wanted);
        let prepared = Prepared::new(configuration, &options, &cores)?;
        let Prepared {
            target,
            plane,
            control,
            before,
        } = prepared;
        let running = RunningTarget::start(
            Arc::clone(&target),
            &TargetOptions {
                listen: listeners(&control),
                cores: cores.clone(),
                named: configuration.cores.is_some(),
                taken_over: before.is_some(),
                ..TargetOptions::default()
            },
        )?;
        let taken = before.map_or(Ok((None, None)), |it| it.take(&target, &plane, &control));
        let (socket, door) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                running.stop().map_err(ServingError::Core)?;
                return Err(error.into());
            }
        };
        let mut others = available;
        others.retain(|core| !cores.contains(core));
        let manager = ServiceManager::from_environment()?;
        let file = options.config_path.clone();
        let given = Given::new(&running, &control, plane, file);
        let server_options = ServerOptions {
            api: configuration.api.clone(),
            access: SocketAccess::of_interface(configuration),
            files: configuration.api_files.clone(),
            limits: configuration.api_limits,
            token: options.token,
            config_path: options.config_path,
            cpus: (!others.is_empty()).then(|| numbers(&others)),
            socket,
        };
        let teller = manager.clone();
        let terminate = move || {
            teller.tell("STOPPING=1");
            target.shutdown();
        };
        match server::run(Arc::clone(&control), server_options, terminate) {
            Ok(server) => Ok(Self {
                giver: given.wait(door, &server, manager.clone()),
                running,
                control,
                server,
                manager,
            }),
            Err(error) => {
                running.stop().map_err(ServingError::Core)?;
                Err(error.into())
            }
        }
    }

    /// Returns the target.
    #[must_use]
    pub fn target(&self) -> &Arc<Target> {
        &self.running.handle
    }

    /// Returns the control plane.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Returns the addresses at which the target listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.running.addresses
    }

    /// Returns the address of the interface, if there is one.
    #[must_use]
    pub fn api(&self) -> Option<&ApiAddress> {
        self.server.address()
    }

    /// Tells the service manager that hosts can connect, and feeds its watchdog until the end of
    /// the target, for which it waits. Returns true if every command was answered, and every cache
    /// was written to its device.
    ///
    /// # Errors
    /// A core that ended by itself, or no room for a thread.
    pub fn run(self) -> Result<bool, ServingError> {
        self.manager.tell("READY=1");
        let target = Arc::clone(&self.running.handle);
        let watched = Arc::clone(&target);
        let _watch: Option<mpsc::Sender<()>> =
            self.manager.watch(move |time| watched.responds(time))?;
        self.running.join().map_err(ServingError::Core)?;
        if self.giver.as_ref().is_some_and(Giver::is_given) {
            self.server.keep_file();
            self.server.stop();
            return Ok(true);
        }
        self.server.stop();
        Ok(!target.gave_up_commands() && caches_are_written(&self.control))
    }
}

/// Returns the listeners of the configuration in force.
fn listeners(control: &Control) -> Vec<target::Listener> {
    let in_force = control.configuration();
    let all = in_force.listeners();
    all.map(|(address, tls)| to_listener(address, tls))
        .collect()
}

/// A target that has everything but threads.
struct Prepared {
    target: Arc<Target>,
    plane: Arc<Plane>,
    control: Arc<Control>,
    /// The running target that it takes over.
    before: Option<Before>,
}

impl Prepared {
    fn new(
        configuration: &Configuration,
        options: &ServingOptions,
        cores: &[CoreId],
    ) -> Result<Self, ServingError> {
        let before = options.take_over.then(|| Before::find(configuration));
        let mut before = before.transpose()?;
        let store = match (&mut before, options.state_path.as_deref()) {
            (Some(before), path) => before.store(path)?,
            (None, path) => path.map(StateFile::open).transpose()?,
        };
        let mut limits = limits(configuration);
        if let Some(before) = &before {
            limits.incarnation = before.taker.offer.incarnation;
        }
        let target = Target::new(limits, cores.len())?;
        let (cpus, path) = (numbers(cores), options.config_path.as_deref());
        let mut plane = Plane::with_keys(Arc::clone(&target), cpus, configuration, path)?;
        if let Some(before) = &before {
            plane.set_cache_life(before.taker.offer.cache_life);
        }
        let plane = Arc::new(plane);
        let control = match &mut before {
            Some(before) => before.control(configuration, &plane, store)?,
            None => Control::resume(configuration, Arc::clone(&plane) as _, store)?,
        };
        let control = Arc::new(control);
        control.offer_persistence(&target);
        Ok(Self {
            target,
            plane,
            control,
            before,
        })
    }
}

/// The running target that is taken over.
#[derive(Debug)]
struct Before {
    taker: Taker<Offer>,
    files: BTreeMap<String, TakenOver>,
}

impl Before {
    /// Finds the target at the first address of the configuration.
    fn find(configuration: &Configuration) -> Result<Self, TakeOverError> {
        let listeners: Vec<_> = configuration.listeners().map(|(it, _)| it).collect();
        let first = listeners.first().copied();
        let first = first.filter(|first| first.port() != 0).ok_or_else(|| {
            let reason = "there is no address with a port: give the one that it listens on";
            TakeOverError::Refused(reason.to_owned())
        })?;
        let what = || format!("target to take over listens on {first}");
        let mut taker = Taker::<Offer>::connect(address_of(first), Given::PROTOCOL, what)?;
        if taker.offer.listeners != listeners {
            let theirs = &taker.offer.listeners;
            return Err(taker.refuse(format!("it listens on {theirs:?}, not on {listeners:?}")));
        }
        let mut files = BTreeMap::new();
        for device in taker.offer.devices.clone() {
            let file = device.has_file.then(|| taker.file()).transpose()?;
            let taken_over = TakenOver {
                file: file.map(File::from),
                content: device.content,
            };
            files.insert(device.name, taken_over);
        }
        Ok(Self { taker, files })
    }

    /// Takes the state file over.
    fn store(&mut self, path: Option<&Path>) -> Result<Option<StateFile>, TakeOverError> {
        match (path, self.taker.offer.has_store) {
            (None, false) => Ok(None),
            (Some(path), true) => {
                let lock = self.taker.file()?.into();
                Ok(Some(StateFile::taken_over(path, lock)))
            }
            (Some(_), false) => Err(self.taker.refuse("it has no --state".to_owned())),
            (None, true) => Err(self
                .taker
                .refuse("it has --state: give the same".to_owned())),
        }
    }

    /// Opens everything that the running target has.
    fn control(
        &mut self,
        configuration: &Configuration,
        plane: &Arc<Plane>,
        store: Option<StateFile>,
    ) -> Result<Control, ServingError> {
        plane.set_taken_over(std::mem::take(&mut self.files));
        let state = self.taker.offer.state.clone();
        let mut theirs = state.in_force.clone();
        // Compared already, where port 0 stands for the port that it got.
        theirs.listen.clone_from(&configuration.listen);
        let mut file = configuration.clone();
        file.sort();
        let ours = config::merge::merge(&state.file, &theirs, &file);
        let ours = ours.map_err(ChangeError::from)?;
        if let Some(first) = config::merge::differences(&theirs, &ours).first() {
            let reason = format!(
                "its configuration differs in {}; make it the same first, for example by SIGHUP",
                first.key
            );
            return Err(self.taker.refuse(reason).into());
        }
        let plane = Arc::clone(plane) as _;
        Ok(Control::resume_from(
            configuration,
            plane,
            store,
            Some(state),
        )?)
    }

    /// Takes the connections over. Returns the sockets of the interface and of the next take-over.
    fn take(
        mut self,
        target: &Target,
        plane: &Plane,
        control: &Control,
    ) -> Result<(Option<Arc<OwnedFd>>, Option<OwnedFd>), TakeOverError> {
        let has_api = self.taker.offer.has_api;
        let api = has_api.then(|| self.taker.file()).transpose()?;
        let door = self.taker.file()?;
        let handed = self.taker.take(|paused| {
            let handed = unpack(paused)?;
            let checked = target.check_handed(&handed);
            checked.map_err(|error| error.to_string())?;
            plane.carry_devices()?;
            Ok(handed)
        })?;
        let taken = target.take_over(handed);
        taken.map_err(|error| TakeOverError::Refused(error.to_string()))?;
        if let Err(error) = control.keep_reservations() {
            tracing::error!("the reservations that were taken over are not kept: {error}");
        }
        Ok((api.map(Arc::new), Some(door)))
    }
}

/// Looks, after the end of the target, whether its devices have all that was written; the log names
/// those that have not.
fn caches_are_written(control: &Control) -> bool {
    let mut written = true;
    for cache in control.snapshot().caches {
        if cache.counters.dirty > 0 {
            written = false;
            tracing::error!(
                device = cache.device,
                pages = cache.counters.dirty,
                "the device does not have what its cache was to write back: these pages of 4 KiB \
                 are lost"
            );
        }
    }
    written
}

/// Descriptors that are open beside connections and devices: standard streams, the runtime of the
/// control plane, and those that come and go.
const OTHER_FILES: u64 = 128;

/// Descriptors of each core: its ring, and its event counter.
const CORE_FILES: u64 = 2;

/// Returns the number of descriptors that everything in the configuration takes at once. A file is
/// open once for itself, and once more on each core for each namespace over it.
fn files_wanted(configuration: &Configuration, cores: usize) -> u64 {
    let cores = cores as u64;
    let is_file = |device: &&Device| matches!(device.kind, DeviceKind::File { .. });
    let files = configuration.devices.values().filter(is_file).count() as u64;
    let namespaces = configuration.subsystems.iter().flat_map(|s| &s.namespaces);
    let devices = namespaces.filter_map(|n| configuration.devices.get(&n.device));
    let channels = devices.filter(is_file).count() as u64 * cores;
    let listeners = configuration.listen.len() as u64;
    let sockets =
        configuration.limits.get("connections") + configuration.api_limits.connections + listeners;
    sockets + files + channels + CORE_FILES * cores + OTHER_FILES
}

/// Warns if the configuration allows more connections than the process may have.
fn warn_of_few_files(limit: Option<u64>, wanted: u64) {
    if let Some(limit) = limit.filter(|&limit| limit < wanted) {
        tracing::warn!(
            "this process may have {limit} files and sockets open, and all of its connections \
             (limits.connections) would take {wanted}: hosts beyond that wait until others have \
             gone; raise the hard limit (`ulimit -Hn`, a container's `--ulimit nofile=`, \
             LimitNOFILE= in the service's unit) or lower limits.connections"
        );
    }
}

fn numbers(cores: &[CoreId]) -> Vec<u32> {
    cores.iter().map(|core| core.0).collect()
}

/// Returns the configuration's limits, which were checked, as the target takes them.
fn limits(configuration: &Configuration) -> Limits {
    Limits {
        header_digest: configuration.digests.header,
        data_digest: configuration.digests.data,
        cache_life: cache_life(),
        incarnation: incarnation(),
        ..configuration.limits.for_target()
    }
}

/// Returns a number of this process: the upper half is that of the machine's boot, and the lower half
/// is drawn.
fn incarnation() -> u64 {
    let drawn = uuid::Uuid::new_v4().as_u64_pair().0;
    (boot() & !u64::from(u32::MAX)) | (drawn & u64::from(u32::MAX))
}

/// Returns the life of the write caches below the devices: what files have not flushed is with the
/// kernel, so it outlives this process and not the machine. 0 where the kernel does not tell. The
/// plane gives a subsystem with a device that has a `cache` another life.
fn cache_life() -> u64 {
    boot()
}

/// Returns a number of the machine's boot, or 0 where the kernel does not tell.
fn boot() -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let boot = boot.map(|id| uuid::Uuid::parse_str(id.trim()));
    let (high, low) = match boot {
        Ok(Ok(boot)) => boot.as_u64_pair(),
        _ => (0, 0),
    };
    high ^ low
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Format, parse};

    /// The files that each core opens for each namespace were left out, so a limit was taken for
    /// enough with which connections failed.
    #[test]
    fn every_core_opens_a_file_once_more_for_each_namespace() {
        let text = r#"
            listen = ["127.0.0.1:0"]
            [limits]
            connections = 100
            [devices.disk]
            type = "file"
            path = "/nowhere"
            shared = true
            [devices.memory]
            type = "ram"
            size = "1MiB"
            [[subsystems]]
            nqn = "nqn.2026-11.io.example:a"
            allow_any_host = true
            [[subsystems.namespaces]]
            nsid = 1
            device = "disk"
            [[subsystems.namespaces]]
            nsid = 2
            device = "disk"
            [[subsystems.namespaces]]
            nsid = 3
            device = "memory"
        "#;
        let configuration = parse(text, Format::Toml).expect("a configuration");
        let wanted = 100 + 64 + 1 + 1 + 2 * 3 + CORE_FILES * 3 + OTHER_FILES;
        assert_eq!(files_wanted(&configuration, 3), wanted);
    }

    /// However many connections of the interface were allowed, they were taken for a part of a fixed
    /// number.
    #[test]
    fn connections_of_the_interface_are_files_as_well() {
        let with = |connections: u64| {
            let text = format!("[api_limits]\nconnections = {connections}\n");
            let configuration = parse(&text, Format::Toml).expect("a configuration");
            files_wanted(&configuration, 1)
        };
        assert_eq!(with(1024) - with(64), 1024 - 64);
        assert!(with(1024) > 1024 + OTHER_FILES);
    }
}
