//! The handle that a control plane holds, and a target on the cores of this machine.
//!
//! Every change is made here: in the shared configuration first, then on every core by message,
//! under pause where commands could be affected, and hosts are told last. One change at a time; a
//! caller waits until every core has it, or gets an error and finds nothing changed.
//!
//! What depends on the kernel's driver is in this file alone: a simulator runs [`PollGroup`]s of
//! its own making.

use crate::controller::async_events::Notice;
use crate::limits::{Limits, LimitsError, NAMESPACES_MAX, REFERRALS_MAX, SUBSYSTEMS_MAX};
use crate::namespace::{Namespace, NamespaceOptions};
use crate::pause::{Ack, AckError, AfterPause, Step};
use crate::poll_group::{Message, Note, PollGroup};
use crate::registry::{ControllerKind, Referral, Shared};
use crate::stats::{CoreStats, NamespaceStats};
use crate::subsystem::{Subsystem, SubsystemOptions};
use base::units::CoreId;
use reactor::uring::{Options as DriverOptions, UringDriver};
use reactor::{BufferClass, Core, Driver, MailboxSender, PollPolicy, Room, SocketOptions};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use wire::nvme::{Nqn, NqnError};

/// Why a target could not be made, started or changed.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A limit is out of range.
    #[error("limits: {0}")]
    Limits(#[from] LimitsError),
    /// A name is no NVMe Qualified Name.
    #[error("{name:?} is no NVMe Qualified Name: {reason}")]
    Name {
        /// What was given.
        name: String,
        /// What is wrong with it.
        reason: NqnError,
    },
    /// There is no such subsystem.
    #[error("there is no subsystem {0}")]
    NoSubsystem(String),
    /// There is no such namespace.
    #[error("subsystem {nqn} has no namespace {nsid}")]
    NoNamespace {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
    },
    /// It exists already.
    #[error("{0} exists already")]
    Exists(String),
    /// A number is out of range, or a limit is reached.
    #[error("{0}")]
    Invalid(String),
    /// A device refused.
    #[error(transparent)]
    Device(#[from] block::DeviceError),
    /// A core could not follow, or not in time; nothing has changed.
    #[error("the change was undone: {0}")]
    Undone(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; {remedy}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A core's thread or driver could not be set up.
    #[error("core {core}: {reason}")]
    Core {
        /// Which.
        core: CoreId,
        /// Why, and what to do.
        reason: String,
    },
}

impl From<AckError> for TargetError {
    fn from(error: AckError) -> Self {
        Self::Undone(error.to_string())
    }
}

/// A target: what is shared with whom.
#[derive(Debug)]
pub struct Target {
    shared: Arc<Shared>,
    cores: usize,
    /// Held during a change: they are made one after the other.
    changing: Mutex<()>,
}

impl Target {
    /// A target without subsystems, for `cores` cores.
    ///
    /// # Errors
    /// [`TargetError::Limits`].
    pub fn new(limits: Limits, cores: usize) -> Result<Arc<Self>, TargetError> {
        limits.check()?;
        let cores = cores.max(1);
        let shared = Shared::new(limits, cores);
        Ok(Arc::new(Self {
            shared,
            cores,
            changing: Mutex::new(()),
        }))
    }

    /// The service of one core, 0 to `cores` − 1, whose operations use `room`.
    #[must_use]
    pub fn poll_group(&self, core: usize, room: Room) -> PollGroup {
        PollGroup::new(core, room, Arc::clone(&self.shared))
    }

    /// Connects the cores, in order, and gives them all that is configured; they begin to accept
    /// connections when they have it. Until the change is [done](Change::poll) nothing else may
    /// be changed.
    pub fn attach(&self, cores: Vec<MailboxSender<Message>>) -> Change {
        *self.shared.cores() = cores;
        let mut steps = Vec::new();
        for subsystem in self.shared.configuration().subsystems.values() {
            steps.push(Step::AddSubsystem(Arc::clone(subsystem)));
            for namespace in subsystem.namespaces() {
                steps.push(Step::AddNamespace(subsystem.index, namespace));
            }
        }
        Change {
            ack: self.shared.post(&steps),
        }
    }

    /// The limits that the target was made with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        // Guards no data, only the order of changes.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subsystem(&self, nqn: &str) -> Result<Arc<Subsystem>, TargetError> {
        self.shared
            .subsystem(nqn)
            .ok_or_else(|| TargetError::NoSubsystem(nqn.to_owned()))
    }

    /// Posts steps to all cores and waits for them.
    fn apply(&self, steps: &[Step]) -> Result<(), AckError> {
        let timeout = self.shared.limits.change_timeout.into();
        self.shared.post(steps).wait(timeout)
    }

    /// Tells discovery hosts that what they see may have changed.
    fn discovery_changed(&self) {
        self.shared.configuration().generation += 1;
        self.shared.send_all(|| Note::Notify {
            subsystem: None,
            notice: Notice::Discovery,
        });
    }

    fn namespace_changed(&self, subsystem: &Subsystem, nsid: u32) {
        let subsystem = Some(subsystem.index);
        self.shared.send_all(|| Note::Notify {
            subsystem,
            notice: Notice::Namespace(nsid),
        });
    }

    /// Makes a subsystem without namespaces.
    ///
    /// # Errors
    /// A name that is none or exists, texts that are too long, or too many subsystems.
    pub fn add_subsystem(&self, options: SubsystemOptions) -> Result<(), TargetError> {
        let _order = self.change();
        let nqn = check_name(&options.nqn)?;
        if nqn.is_discovery() {
            return Err(TargetError::Exists(options.nqn));
        }
        for host in &options.allowed_hosts {
            check_name(host)?;
        }
        if options.serial.len() > 20 || options.model.len() > 40 {
            let reason = "a serial number has at most 20 characters, a model number 40";
            return Err(TargetError::Invalid(reason.to_owned()));
        }
        let subsystem = {
            let mut configuration = self.shared.configuration();
            if configuration.subsystems.contains_key(&options.nqn) {
                return Err(TargetError::Exists(options.nqn));
            }
            if configuration.subsystems.len() >= SUBSYSTEMS_MAX {
                let reason = format!("a target has at most {SUBSYSTEMS_MAX} subsystems");
                return Err(TargetError::Invalid(reason));
            }
            // The place of a removed subsystem serves again: every core has let go of it.
            let taken = |index| configuration.subsystems.values().any(|s| s.index == index);
            let index = (0..)
                .find(|&index| !taken(index))
                .expect("there are 2^32 places");
            let subsystem = Arc::new(Subsystem::new(index, options));
            let name = subsystem.nqn.clone();
            configuration
                .subsystems
                .insert(name, Arc::clone(&subsystem));
            subsystem
        };
        if let Err(error) = self.apply(&[Step::AddSubsystem(Arc::clone(&subsystem))]) {
            self.shared
                .configuration()
                .subsystems
                .remove(&subsystem.nqn);
            return Err(error.into());
        }
        self.discovery_changed();
        Ok(())
    }

    /// Removes a subsystem: its commands under way are answered, then its connections close.
    ///
    /// # Errors
    /// [`TargetError::NoSubsystem`]; [`TargetError::Undone`] where connections are still open
    /// after the time for a change, which they will not be much longer.
    pub fn remove_subsystem(&self, nqn: &str) -> Result<(), TargetError> {
        let _order = self.change();
        let subsystem = self.subsystem(nqn)?;
        subsystem.lock().removed = true;
        let result = self.apply(&[Step::RemoveSubsystem(subsystem.index)]);
        self.shared.configuration().subsystems.remove(nqn);
        self.discovery_changed();
        Ok(result?)
    }

    /// Adds a namespace to a subsystem; hosts are told.
    ///
    /// # Errors
    /// An identifier that is out of range or taken, or a device that a core cannot open.
    pub fn add_namespace(&self, nqn: &str, options: NamespaceOptions) -> Result<(), TargetError> {
        let _order = self.change();
        let subsystem = self.subsystem(nqn)?;
        let nsid = options.nsid;
        if !(1..=NAMESPACES_MAX).contains(&nsid) {
            let reason = format!("a namespace identifier is 1 to {NAMESPACES_MAX}, not {nsid}");
            return Err(TargetError::Invalid(reason));
        }
        if subsystem.namespace(nsid).is_some() {
            return Err(TargetError::Exists(format!("namespace {nsid} of {nqn}")));
        }
        let namespace = Arc::new(Namespace::new(options, self.cores));
        let added = self.apply(&[Step::AddNamespace(subsystem.index, Arc::clone(&namespace))]);
        if let Err(error) = added {
            // Some cores may have opened it.
            let undo = [
                Step::Pause(subsystem.index, nsid),
                Step::Resume(subsystem.index, nsid, AfterPause::Remove),
            ];
            self.shared.post(&undo);
            return Err(error.into());
        }
        subsystem.lock().namespaces.insert(nsid, namespace);
        self.namespace_changed(&subsystem, nsid);
        Ok(())
    }

    /// Pauses a namespace on every core, does `change` to it, and lets its commands go on.
    fn paused(
        &self,
        subsystem: &Subsystem,
        nsid: u32,
        after: AfterPause,
        change: impl FnOnce() -> Result<(), TargetError>,
    ) -> Result<(), TargetError> {
        let resume = |after| Step::Resume(subsystem.index, nsid, after);
        if let Err(error) = self.apply(&[Step::Pause(subsystem.index, nsid)]) {
            self.shared.post(&[resume(AfterPause::Keep)]);
            return Err(error.into());
        }
        if let Err(error) = change() {
            self.apply(&[resume(AfterPause::Keep)])?;
            return Err(error);
        }
        Ok(self.apply(&[resume(after)])?)
    }

    fn namespace(
        &self,
        nqn: &str,
        nsid: u32,
    ) -> Result<(Arc<Subsystem>, Arc<Namespace>), TargetError> {
        let subsystem = self.subsystem(nqn)?;
        let missing = || TargetError::NoNamespace {
            nqn: nqn.to_owned(),
            nsid,
        };
        let namespace = subsystem.namespace(nsid).ok_or_else(missing)?;
        Ok((subsystem, namespace))
    }

    /// Changes the size of a namespace while it is in use; hosts are told.
    ///
    /// # Errors
    /// A device that cannot be resized, or a core that did not follow in time.
    pub fn resize_namespace(&self, nqn: &str, nsid: u32, blocks: u64) -> Result<(), TargetError> {
        let _order = self.change();
        let (subsystem, namespace) = self.namespace(nqn, nsid)?;
        let resize = || Ok(namespace.options.device.resize(blocks)?);
        self.paused(&subsystem, nsid, AfterPause::Reopen, resize)?;
        self.namespace_changed(&subsystem, nsid);
        Ok(())
    }

    /// Removes a namespace: its commands under way finish, later ones are refused; hosts are told.
    ///
    /// # Errors
    /// [`TargetError::NoNamespace`], or a core that did not follow in time.
    pub fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<(), TargetError> {
        let _order = self.change();
        let (subsystem, _) = self.namespace(nqn, nsid)?;
        let forget = || {
            subsystem.lock().namespaces.remove(&nsid);
            Ok(())
        };
        self.paused(&subsystem, nsid, AfterPause::Remove, forget)?;
        self.namespace_changed(&subsystem, nsid);
        Ok(())
    }

    /// Lets a host use a subsystem.
    ///
    /// # Errors
    /// A name that is none, or [`TargetError::NoSubsystem`].
    pub fn allow_host(&self, nqn: &str, host_nqn: &str) -> Result<(), TargetError> {
        let _order = self.change();
        check_name(host_nqn)?;
        self.subsystem(nqn)?
            .lock()
            .allowed_hosts
            .insert(host_nqn.to_owned());
        self.discovery_changed();
        Ok(())
    }

    /// Takes the permission back, and ends the host's controllers of the subsystem.
    ///
    /// # Errors
    /// [`TargetError::NoSubsystem`].
    pub fn deny_host(&self, nqn: &str, host_nqn: &str) -> Result<(), TargetError> {
        let _order = self.change();
        let subsystem = self.subsystem(nqn)?;
        subsystem.lock().allowed_hosts.remove(host_nqn);
        if !subsystem.allows(host_nqn) {
            self.shared.send_all(|| Note::EndHost {
                subsystem: subsystem.index,
                host_nqn: host_nqn.to_owned(),
            });
        }
        self.discovery_changed();
        Ok(())
    }

    /// Lets every host use a subsystem, or only those that are allowed by name. Controllers that
    /// exist stay.
    ///
    /// # Errors
    /// [`TargetError::NoSubsystem`].
    pub fn allow_any_host(&self, nqn: &str, allow: bool) -> Result<(), TargetError> {
        let _order = self.change();
        self.subsystem(nqn)?.lock().allow_any_host = allow;
        self.discovery_changed();
        Ok(())
    }

    /// Refers discovery hosts to another discovery service.
    ///
    /// # Errors
    /// One that exists, or too many of them.
    pub fn add_referral(&self, referral: Referral) -> Result<(), TargetError> {
        let _order = self.change();
        {
            let mut configuration = self.shared.configuration();
            if configuration.referrals.contains(&referral) {
                return Err(TargetError::Exists(format!(
                    "the referral to {}",
                    referral.address
                )));
            }
            if configuration.referrals.len() >= REFERRALS_MAX {
                let reason = format!("a target has at most {REFERRALS_MAX} referrals");
                return Err(TargetError::Invalid(reason));
            }
            configuration.referrals.push(referral);
        }
        self.discovery_changed();
        Ok(())
    }

    /// Refers to another discovery service no more.
    ///
    /// # Errors
    /// One that does not exist.
    pub fn remove_referral(&self, referral: Referral) -> Result<(), TargetError> {
        let _order = self.change();
        {
            let mut configuration = self.shared.configuration();
            let before = configuration.referrals.len();
            configuration.referrals.retain(|other| *other != referral);
            if configuration.referrals.len() == before {
                let reason = format!("there is no referral to {}", referral.address);
                return Err(TargetError::Invalid(reason));
            }
        }
        self.discovery_changed();
        Ok(())
    }

    /// The addresses that the discovery log page names.
    pub fn set_listeners(&self, addresses: &[SocketAddr]) {
        self.shared.configuration().listeners = addresses.to_vec();
        self.discovery_changed();
    }

    /// Stops accepting connections, answers what is under way, and ends every core.
    pub fn shutdown(&self) {
        self.shared.send_all(|| Note::Shutdown);
    }

    /// What there is, and what it did. Counters are up to a few hundredths of a second old.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let configuration = self.shared.configuration();
        let subsystems = configuration
            .subsystems
            .values()
            .map(|s| subsystem_snapshot(s))
            .collect();
        let generation = configuration.generation;
        let listeners = configuration.listeners.clone();
        let referrals = configuration.referrals.clone();
        drop(configuration);
        let registry = self.shared.controllers();
        let controllers = registry.iter().map(|controller| ControllerSnapshot {
            id: controller.id,
            kind: controller.kind,
            subsystem: controller
                .subsystem
                .as_ref()
                .map(|subsystem| subsystem.nqn.clone()),
            host_nqn: controller.host_nqn.clone(),
            host_id: controller.host_id,
            peer: controller.peer,
            io_queues: controller.queues().places.len(),
            errors: controller.error_count(),
        });
        let controllers = controllers.collect();
        let cores = self
            .shared
            .core_stats
            .iter()
            .map(|core| core.load())
            .collect();
        Snapshot {
            generation,
            listeners,
            referrals,
            subsystems,
            controllers,
            cores,
        }
    }
}

fn check_name(name: &str) -> Result<Nqn, TargetError> {
    Nqn::new(name).map_err(|reason| TargetError::Name {
        name: name.to_owned(),
        reason,
    })
}

fn subsystem_snapshot(subsystem: &Subsystem) -> SubsystemSnapshot {
    let changing = subsystem.lock();
    let namespaces = changing.namespaces.values().map(|namespace| {
        let device = &namespace.options.device;
        let geometry = device.geometry();
        NamespaceSnapshot {
            nsid: namespace.nsid(),
            blocks: geometry.blocks,
            block_bytes: geometry.block_bytes,
            read_only: namespace.read_only(),
            uuid: namespace.options.uuid,
            stats: namespace.total(),
        }
    });
    SubsystemSnapshot {
        nqn: subsystem.nqn.clone(),
        serial: subsystem.serial.clone(),
        model: subsystem.model.clone(),
        allow_any_host: changing.allow_any_host,
        allowed_hosts: changing.allowed_hosts.iter().cloned().collect(),
        namespaces: namespaces.collect(),
    }
}

/// A change on its way to the cores.
#[derive(Debug)]
pub struct Change {
    ack: Arc<Ack>,
}

impl Change {
    /// How it went, once every core is through: the error of one that could not follow.
    #[must_use]
    pub fn poll(&self) -> Option<Result<(), TargetError>> {
        Some(self.ack.poll()?.map_err(TargetError::from))
    }
}

/// What a target is at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Counts the changes of what discovery hosts may see.
    pub generation: u64,
    /// Where it listens.
    pub listeners: Vec<SocketAddr>,
    /// Other discovery services that it refers to.
    pub referrals: Vec<Referral>,
    /// Its subsystems, by name.
    pub subsystems: Vec<SubsystemSnapshot>,
    /// Its controllers, by identifier.
    pub controllers: Vec<ControllerSnapshot>,
    /// What each core did.
    pub cores: Vec<CoreStats>,
}

/// A subsystem at one moment.
#[derive(Clone, Debug)]
pub struct SubsystemSnapshot {
    /// Its name.
    pub nqn: String,
    /// Its serial number.
    pub serial: String,
    /// Its model number.
    pub model: String,
    /// Whether every host may connect.
    pub allow_any_host: bool,
    /// Who may connect otherwise.
    pub allowed_hosts: Vec<String>,
    /// Its namespaces, by identifier.
    pub namespaces: Vec<NamespaceSnapshot>,
}

/// A namespace at one moment.
#[derive(Clone, Debug)]
pub struct NamespaceSnapshot {
    /// Its identifier.
    pub nsid: u32,
    /// Its size in blocks.
    pub blocks: u64,
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// What it did, on all cores together.
    pub stats: NamespaceStats,
}

/// A controller at one moment.
#[derive(Clone, Debug)]
pub struct ControllerSnapshot {
    /// CNTLID.
    pub id: u16,
    /// Whether it is a discovery controller.
    pub kind: ControllerKind,
    /// The subsystem of an I/O controller.
    pub subsystem: Option<String>,
    /// Who connected.
    pub host_nqn: String,
    /// HOSTID.
    pub host_id: [u8; 16],
    /// Where the admin queue comes from.
    pub peer: SocketAddr,
    /// I/O queues connected.
    pub io_queues: usize,
    /// Errors since it was made.
    pub errors: u64,
}

/// How a target runs on this machine.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// The cores to use, one thread on each, as many as the target was made for. The first one
    /// accepts connections for all.
    pub cores: Vec<CoreId>,
    /// Whether each thread stays on its core.
    pub pin: bool,
    /// Whether an idle core polls.
    pub poll: PollPolicy,
    /// How connections are set up.
    pub socket: SocketOptions,
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from((
                [127, 0, 0, 1],
                wire::tcp::limits::IO_PORT,
            ))],
            cores: vec![CoreId(0)],
            pin: true,
            poll: PollPolicy::Auto,
            socket: SocketOptions::default(),
        }
    }
}

/// A target on the cores of this machine.
#[derive(Debug)]
pub struct RunningTarget {
    /// The target.
    pub handle: Arc<Target>,
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// What a core's thread says once it is set up.
type Ready = Result<(MailboxSender<Message>, Vec<SocketAddr>), TargetError>;

impl RunningTarget {
    /// Starts a target on this machine. It accepts connections when this returns.
    ///
    /// # Errors
    /// [`TargetError::Listen`], [`TargetError::Core`], or a device that cannot be opened.
    pub fn start(target: Arc<Target>, options: &TargetOptions) -> Result<Self, TargetError> {
        if options.cores.len() != target.cores {
            let (asked, made) = (options.cores.len(), target.cores);
            let reason = format!("the target was made for {made} cores, and {asked} are named");
            return Err(TargetError::Invalid(reason));
        }
        let mut running = Self {
            handle: target,
            addresses: Vec::new(),
            threads: Vec::new(),
        };
        let mut senders = Vec::new();
        for (index, &core) in options.cores.iter().enumerate() {
            let (ready, told) = mpsc::channel();
            let (target, options) = (Arc::clone(&running.handle), options.clone());
            let work = move || run_core(&target, &options, index, core, &ready);
            let spawned = std::thread::Builder::new()
                .name(format!("target-{core}"))
                .spawn(work);
            let broken = |reason: String| TargetError::Core { core, reason };
            let thread = spawned.map_err(|error| broken(error.to_string()));
            let outcome = thread.and_then(|thread| {
                running.threads.push(thread);
                let gone = |_| broken("its thread ended before it was set up".to_owned());
                told.recv().map_err(gone)?
            });
            match outcome {
                Ok((sender, addresses)) => {
                    senders.push(sender);
                    running.addresses.extend(addresses);
                }
                Err(error) => {
                    *running.handle.shared.cores() = senders;
                    running.stop_quietly();
                    return Err(error);
                }
            }
        }
        running.handle.shared.configuration().listeners = running.addresses.clone();
        let change = running.handle.attach(senders);
        let timeout = running.handle.shared.limits.change_timeout.into();
        if let Err(error) = change.ack.wait(timeout) {
            running.stop_quietly();
            return Err(error.into());
        }
        Ok(running)
    }

    fn stop_quietly(mut self) {
        self.handle.shutdown();
        for thread in self.threads.drain(..) {
            // The caller gets the error that came first.
            drop(thread.join());
        }
    }

    /// Shuts the target down and waits for its cores.
    ///
    /// # Errors
    /// The error that broke a core's driver.
    pub fn stop(self) -> io::Result<()> {
        self.handle.shutdown();
        self.join()
    }

    /// Waits for the cores, which end after [`Target::shutdown`].
    ///
    /// # Errors
    /// The error that broke a core's driver.
    pub fn join(mut self) -> io::Result<()> {
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a core panicked")));
            result = result.and(ended);
        }
        result
    }
}

/// A core's thread.
fn run_core(
    target: &Target,
    options: &TargetOptions,
    index: usize,
    core: CoreId,
    ready: &mpsc::Sender<Ready>,
) -> io::Result<()> {
    match set_up(target, options, index, core) {
        Ok((mut core, addresses)) => {
            let told = ready.send(Ok((core.sender(), addresses)));
            if told.is_err() {
                return Ok(());
            }
            core.run()
        }
        Err(error) => {
            // Whoever waits for the outcome reports it.
            drop(ready.send(Err(error)));
            Ok(())
        }
    }
}

fn set_up(
    target: &Target,
    options: &TargetOptions,
    index: usize,
    core: CoreId,
) -> Result<(Core<UringDriver, PollGroup>, Vec<SocketAddr>), TargetError> {
    if options.pin {
        pin(core);
    }
    let limits = target.limits();
    let driver = DriverOptions {
        buffers: buffer_classes(limits),
        sockets: limits.connections,
        ..DriverOptions::default()
    };
    let mut driver = UringDriver::new(&driver).map_err(|error| TargetError::Core {
        core,
        reason: error.to_string(),
    })?;
    let room = driver.room();
    let mut service = target.poll_group(index, room);
    let mut addresses = Vec::new();
    if index == 0 {
        for &address in &options.listen {
            let (listener, bound) =
                driver
                    .listen(address, &options.socket)
                    .map_err(|source| TargetError::Listen {
                        address,
                        remedy: remedy(&source),
                        source,
                    })?;
            service.add_listener(listener);
            addresses.push(bound);
        }
    }
    Ok((Core::new(driver, service, options.poll), addresses))
}

/// What to do about an address that cannot be listened on.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there: stop it, or choose another port (0 takes a free one)"
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address: see `ip addr`",
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one"
        }
        _ => "choose another address",
    }
}

/// Payload buffers of a core: single blocks and in-capsule data for many commands, whole
/// transfers for some. Address space only; pages are taken when a buffer is first used.
fn buffer_classes(limits: &Limits) -> Vec<BufferClass> {
    let largest = limits.transfer_bytes as usize;
    let wanted = [(4096, 4096), (16 * 1024, 2048), (128 * 1024, 512)];
    let smaller = wanted.into_iter().filter(|&(bytes, _)| bytes < largest);
    let classes = smaller.map(|(bytes, count)| BufferClass { bytes, count });
    // Admin data takes up to 8 KiB, whatever transfers take.
    let last = BufferClass {
        bytes: largest.max(8192),
        count: 256,
    };
    classes.chain([last]).collect()
}

/// Keeps the calling thread on one core; where that is not allowed, it runs anywhere.
fn pin(core: CoreId) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    let index = core.0 as usize;
    if index < CpuSet::MAX_CPU {
        set.set(index);
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!(%core, %error, "cannot pin a thread to its core; it runs on any");
    }
}
