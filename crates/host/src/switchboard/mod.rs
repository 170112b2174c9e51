//! The host's switch: an ingress for each core and class, an egress for each (core, class, target).
//! `[blk-switch §3]`
//!
//! With a [`Switchboard`], a process has one connection (lane) per core, class and target,
//! independent of the number of threads and namespaces. A thread puts a request into the ingress of
//! its core; a dataplane thread of that core selects an egress and sends it; the completion returns
//! to the submitting thread.
//!
//! Each core has a dataplane thread that serves the classes in strict order. It shares the core
//! with the applications, so it polls only while requests are frequent enough, and yields to them
//! between polls (docs/design/decisions/0010-switchboard.md).

mod application_steering;
mod cost;
mod counters;
mod direct_lane;
mod egress;
mod given_up;
mod health;
mod ingress;
pub mod limits;
mod message;
mod registry;
mod request_count;
mod request_steering;
mod submitter;
#[cfg(test)]
mod tests;

use crate::error::HostError;
use crate::namespace::RemoteNamespace;
use application_steering::SteeringThread;
use base::units::{CoreId, KIB};
pub use cost::cost_of_passing;
pub use counters::CoreCounters;
use counters::PublishedCounters;
pub use egress::EgressService;
use health::Health;
use ingress::Ingress;
use message::Update;
pub use message::{DataplaneConfig, DataplaneMessage};
use reactor::priority::{self, PriorityStatus};
use reactor::uring::{self, UringDriver};
use reactor::{BufferClass, Core, IdleSpinner, MailboxSender, PollPolicy, placement};
use registry::Registry;
use request_steering::LoadTable;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
pub use submitter::{SwitchedChannel, SwitchedNamespace};
use switch::knobs::{Lanes, Polling};
use switch::{Class, Knobs, PerClass};

/// Options of a switchboard.
#[derive(Clone, Debug)]
pub struct SwitchboardOptions {
    /// Cores that get an ingress and egresses; never empty. Threads that run elsewhere use one of
    /// these.
    pub cores: Vec<CoreId>,
    /// Knobs of the switch.
    pub knobs: Knobs,
}

/// A host's switch. Cheap to clone; ends when the last clone, and every namespace opened through
/// it, is dropped.
#[derive(Clone, Debug)]
pub struct Switchboard {
    inner: Arc<SwitchboardInner>,
}

#[derive(Debug)]
struct SwitchboardInner {
    cores: Vec<CoreId>,
    ingresses: Arc<Vec<Ingress>>,
    loads: Arc<LoadTable>,
    health: Arc<Health>,
    /// Dataplane threads by core.
    threads: Vec<DataplaneThread>,
    /// Number of lanes (I/O queues) to each controller.
    lanes_per_target: usize,
    steering: SteeringThread,
    /// The current knobs.
    knobs: Mutex<Knobs>,
    registry: Mutex<Registry>,
    /// Submitters that left, of which the cores were not notified; no other update is sent
    /// meanwhile.
    left: Mutex<Vec<u32>>,
}

/// A dataplane core, and its thread unless the caller runs it.
#[derive(Debug)]
struct DataplaneThread {
    priority: PriorityStatus,
    sender: MailboxSender<DataplaneMessage>,
    published: Arc<PublishedCounters>,
    thread: Option<JoinHandle<()>>,
}

impl Switchboard {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`HostError::Option`] for invalid knobs or cores, or the system's error if no thread or
    /// io_uring is available.
    pub fn start(options: &SwitchboardOptions) -> Result<Self, HostError> {
        options.check()?;
        placement::check_allowed(&options.cores)
            .map_err(|error| HostError::Option(error.to_string()))?;
        let mut cores = options.cores.iter().enumerate();
        if let Some((_, core)) = cores.find(|&(at, core)| options.cores[..at].contains(core)) {
            let message = format!("core {} is given twice; use each core once", core.0);
            return Err(HostError::Option(message));
        }
        let health = Arc::new(Health::default());
        let run = |config| DataplaneThread::start(config, Arc::clone(&health));
        Self::assemble(options, &options.cores, Arc::clone(&health), run)
    }

    /// A switchboard without threads: `run` receives each [`DataplaneConfig`] and returns the
    /// mailbox of the core that runs its [service](DataplaneConfig::service) from then on, for
    /// example in a simulator. Threads that opt in to application steering are not moved.
    ///
    /// Every change of the switchboard is sent to each core. A core that never runs accepts only
    /// [`MAILBOX_CAPACITY`](reactor::limits::MAILBOX_CAPACITY) messages. An update that one core
    /// cannot accept fails and reaches no core.
    ///
    /// # Errors
    /// As [`start`](Self::start), or what `run` returns.
    pub fn run_by(
        options: &SwitchboardOptions,
        mut run: impl FnMut(DataplaneConfig) -> Result<MailboxSender<DataplaneMessage>, HostError>,
    ) -> Result<Self, HostError> {
        options.check()?;
        let run = |config: DataplaneConfig| {
            let published = Arc::clone(&config.published);
            Ok(DataplaneThread {
                priority: PriorityStatus::Ordinary,
                sender: run(config)?,
                published,
                thread: None,
            })
        };
        Self::assemble(options, &[], Arc::default(), run)
    }

    /// Creates a switchboard; `steered` are the cores between which application steering moves
    /// threads.
    fn assemble(
        options: &SwitchboardOptions,
        steered: &[CoreId],
        health: Arc<Health>,
        mut run: impl FnMut(DataplaneConfig) -> Result<DataplaneThread, HostError>,
    ) -> Result<Self, HostError> {
        let knobs = options.knobs;
        let ingresses = options.cores.iter();
        let ingresses = ingresses.map(|_| Ingress::new(limits::INGRESS_ENTRIES));
        let ingresses: Arc<Vec<_>> = Arc::new(ingresses.collect());
        let loads = Arc::new(LoadTable::new(options.cores.len()));
        loads.set_direct_submitters_max(knobs.direct_submitters);
        let rules = knobs.application_steering;
        let steering = SteeringThread::start(steered, Arc::clone(&loads), rules);
        let steering = steering.map_err(|source| HostError::Io {
            what: "cannot start a thread",
            source,
        })?;
        let mut inner = SwitchboardInner {
            steering,
            cores: options.cores.clone(),
            ingresses,
            loads,
            health,
            threads: Vec::new(),
            lanes_per_target: options.cores.len() * classes_with_lanes(knobs.lanes).count(),
            knobs: Mutex::new(knobs),
            registry: Mutex::default(),
            left: Mutex::default(),
        };
        for (core, &id) in options.cores.iter().enumerate() {
            let config = DataplaneConfig {
                id,
                core,
                ingresses: Arc::clone(&inner.ingresses),
                loads: Arc::clone(&inner.loads),
                published: Arc::default(),
                knobs,
            };
            inner.threads.push(run(config)?);
        }
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The same namespace through this switchboard: a device whose channels are submitters.
    ///
    /// # Errors
    /// [`HostError::Limit`] if it already has lanes to the largest number of controllers, or knows
    /// the largest number of namespaces, or if the controller grants fewer I/O queues than its
    /// lanes need.
    pub fn namespace(&self, remote: &RemoteNamespace) -> Result<SwitchedNamespace, HostError> {
        let (target, namespace) = self.inner.register(remote)?;
        Ok(SwitchedNamespace::new(
            self.clone(),
            remote.clone(),
            target,
            namespace,
        ))
    }

    /// Returns the number of threads moved by application steering, by class.
    #[must_use]
    pub fn moved_threads(&self) -> PerClass<u64> {
        self.inner.steering.moved()
    }

    /// The cores, in the order of [`counters`](Self::counters).
    #[must_use]
    pub fn cores(&self) -> &[CoreId] {
        &self.inner.cores
    }

    /// Returns the counters of each core; at most 10 ms old.
    #[must_use]
    pub fn counters(&self) -> Vec<CoreCounters> {
        let threads = self.inner.threads.iter().enumerate();
        let counters = threads.map(|(core, thread)| CoreCounters {
            direct_requests: self.inner.loads.direct(core).requests(),
            ..thread.published.read()
        });
        counters.collect()
    }

    /// Returns the [counters by name](CoreCounters::named) of one core, or the sums of all cores
    /// and the number of threads moved by application steering per class (`latency_moved_threads`).
    ///
    /// # Errors
    /// [`HostError::Option`] for a core that is not part of the switchboard.
    pub fn named_counters(&self, core: Option<CoreId>) -> Result<Vec<(String, u64)>, HostError> {
        let cores = self.counters();
        if let Some(core) = core {
            let mut ids = self.cores().iter();
            let at = ids.position(|id| *id == core).ok_or_else(|| {
                let has: Vec<_> = self.cores().iter().map(|id| id.0.to_string()).collect();
                HostError::Option(format!(
                    "the switchboard has no core {}; use one of {}",
                    core.0,
                    has.join(", ")
                ))
            })?;
            return Ok(cores[at].named());
        }
        let mut sums = CoreCounters::default();
        for counters in &cores {
            sums.merge(counters);
        }
        let mut named = sums.named();
        let moved = self.moved_threads();
        named.extend(
            moved
                .iter()
                .map(|(class, &n)| (format!("{class}_moved_threads"), n)),
        );
        Ok(named)
    }

    /// Returns the priority of each core's thread, in the order of [`counters`](Self::counters).
    #[must_use]
    pub fn priorities(&self) -> Vec<PriorityStatus> {
        let threads = self.inner.threads.iter();
        threads.map(|thread| thread.priority).collect()
    }
}

impl SwitchboardOptions {
    /// One core for each processor on which the calling thread may run, and the knobs of the preset
    /// `switchyard`.
    ///
    /// # Errors
    /// [`HostError::Option`] if the kernel does not report the processors.
    pub fn of_process() -> Result<Self, HostError> {
        let cores = placement::allowed_cores();
        Ok(Self {
            cores: cores.map_err(|error| HostError::Option(error.to_string()))?,
            knobs: Knobs::switchyard(),
        })
    }

    fn check(&self) -> Result<(), HostError> {
        self.knobs
            .validate()
            .map_err(|error| HostError::Option(error.to_string()))?;
        if self.cores.is_empty() {
            return Err(HostError::Option(
                "a switchboard needs at least one core; give one that the process may use"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

/// Returns the classes that have a lane to each controller; the other classes use the lane of the
/// default class.
fn classes_with_lanes(lanes: Lanes) -> impl Iterator<Item = Class> {
    let has_lane = move |class: &Class| lanes == Lanes::PerClass || *class == Class::DEFAULT;
    Class::ALL.into_iter().filter(has_lane)
}

type Started = Result<(MailboxSender<DataplaneMessage>, PriorityStatus), HostError>;

impl DataplaneThread {
    /// Starts the core's thread. The driver must be created on the thread that uses it.
    fn start(config: DataplaneConfig, health: Arc<Health>) -> Result<Self, HostError> {
        let id = config.id;
        let published = Arc::clone(&config.published);
        let (started, starting) = mpsc::channel::<Started>();
        let thread = std::thread::Builder::new()
            .name(format!("switch-LT/{}", id.0))
            .spawn(move || run(config, &health, &started))
            .map_err(|source| HostError::Io {
                what: "cannot start a thread",
                source,
            })?;
        let (sender, priority) = starting.recv().map_err(|_| HostError::Closed)??;
        Ok(Self {
            priority,
            sender,
            published,
            thread: Some(thread),
        })
    }
}

/// Runs a dataplane thread from start to end.
fn run(config: DataplaneConfig, health: &Arc<Health>, started: &mpsc::Sender<Started>) {
    let id = config.id;
    let knobs = config.knobs;
    let made = placement::pin_to(id)
        .map_err(|error| HostError::Option(error.to_string()))
        .and_then(|()| UringDriver::new(&driver_options()).map_err(HostError::from));
    let driver = match made {
        Ok(driver) => driver,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let priority = if knobs.raises_dataplane() {
        priority::raise_nice()
    } else {
        PriorityStatus::Ordinary
    };
    let service = config.service(&driver);
    // While the thread sleeps, the idle spinner polls in its place, and yields to all other
    // threads.
    let idle_spinner = IdleSpinner::start(id).ok();
    let poll = match knobs.polling {
        Polling::Always => PollPolicy::Always,
        Polling::Adaptive => PollPolicy::Auto,
        Polling::Never => PollPolicy::Never,
    };
    // Outlives the ring: submitters learn of its end when it is closed.
    let serving = health.serve();
    let mut core = Core::new(driver, service, poll).with_idle_spinner(idle_spinner);
    if started.send(Ok((core.sender(), priority))).is_err() || core.run().is_ok() {
        serving.end();
    }
}

/// Buffers for the few commands that carry data of their own (Dataset Management).
fn driver_options() -> uring::Options {
    uring::Options {
        buffers: vec![BufferClass {
            bytes: 4 * KIB,
            count: 256,
        }],
        sockets: limits::TARGETS_MAX * Class::COUNT + 4,
        file_operations: 4,
    }
}

impl Drop for SwitchboardInner {
    fn drop(&mut self) {
        self.tell_end();
        for thread in &mut self.threads {
            if let Some(thread) = thread.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// Keys of the knobs that are fixed when a switchboard is created.
pub const FIXED_KNOBS: [&str; 3] = ["lanes", "latency_threads", "polling"];

impl Switchboard {
    /// Returns the current knobs.
    #[must_use]
    pub fn knobs(&self) -> Knobs {
        *self.lock_knobs()
    }

    /// Sets the knobs of the running switchboard. Those of [`FIXED_KNOBS`] stay as they are.
    ///
    /// # Errors
    /// [`HostError::Option`] with the first knob that is out of range, or [`HostError::Closed`] if
    /// the switchboard has ended. Nothing has changed then.
    pub fn set_knobs(&self, knobs: &Knobs) -> Result<(), HostError> {
        self.replace_knobs(&mut self.lock_knobs(), *knobs)
    }

    /// Changes several knobs of the running switchboard together, each by its key and its value as
    /// text, as in `--knob`.
    ///
    /// # Errors
    /// [`HostError::Option`] for an unknown knob, an invalid value, a changed value of one of
    /// [`FIXED_KNOBS`], or knobs that conflict; the text lists the possible values.
    /// [`HostError::Closed`] if the switchboard has ended. Nothing has changed then.
    pub fn change_knobs<'a>(
        &self,
        changes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), HostError> {
        let mut current = self.lock_knobs();
        let mut changed = *current;
        changed
            .change(changes)
            .map_err(|error| HostError::Option(error.to_string()))?;
        let mut keys = changed.differences(&current).map(|entry| entry.knob.key);
        if let Some(key) = keys.find(|key| FIXED_KNOBS.contains(key)) {
            return Err(HostError::Option(format!(
                "{key} is fixed after the start of a switchboard; start another switchboard with \
                 the new value"
            )));
        }
        self.replace_knobs(&mut current, changed)
    }

    fn lock_knobs(&self) -> MutexGuard<'_, Knobs> {
        // They are replaced as a whole.
        let knobs = self.inner.knobs.lock();
        knobs.unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the knobs on every core or on none; the lock excludes concurrent changes.
    fn replace_knobs(&self, current: &mut Knobs, wanted: Knobs) -> Result<(), HostError> {
        wanted
            .validate()
            .map_err(|error| HostError::Option(error.to_string()))?;
        let knobs = Knobs {
            lanes: current.lanes,
            latency_threads: current.latency_threads,
            polling: current.polling,
            ..wanted
        };
        self.inner.tell(|| Update::Knobs(Box::new(knobs)))?;
        self.inner.steering.reconfigure(knobs.application_steering);
        let loads = &self.inner.loads;
        loads.set_direct_submitters_max(knobs.direct_submitters);
        *current = knobs;
        Ok(())
    }
}
