//! The programmer's interface: a [`Host`] with a dataplane thread of its own, blocking calls on a
//! [`Namespace`], and a [`Queue`] for programs that take their completions themselves.
//!
//! The thread owns the admin queues of all controllers (so keep-alives are sent whatever the
//! program does) and the lanes of blocking requests. It must never block on a caller.

mod blocking;
mod call;
mod caller;
mod own_channel;
mod queue;
mod range;
mod readiness;
mod reply;
mod service;
mod transfer;

pub use blocking::{Canceller, Namespace, Subsystem};
pub use own_channel::Completions;
pub use queue::{Queue, QueueOptions, SubmitError, SwitchedQueueOptions};
pub use transfer::{AsyncNamespace, Transfer};

use crate::association::Association;
use crate::controller::Controller;
use crate::error::{ConnectionError, HostError};
use crate::limits::{COMMAND_TIMEOUT_MAX, CONTROLLERS_MAX, THREAD_LOOK};
use crate::options::{ConnectOptions, HostIdentity, ReplayPolicy, parse_nqn};
use crate::recovery::epoch::Phase;
use crate::recovery::fences::ControllerName;
use base::units::{KIB, MIB};
use base::{Nanos, Prng};
use block::DeviceError;
use reactor::uring::UringDriver;
use reactor::{BufferClass, Core, MailboxSender, PollPolicy, SocketOptions, start_core};
use service::{ClientMessage, ClientService};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switch::{Knobs, PathSpec};
use wire::nvme::Nqn;
use wire::tcp::limits::IO_PORT;

/// Options of a [`Host`]. Every method changes one of them; [`build`](Self::build) starts the host.
#[derive(Clone, Debug)]
pub struct HostBuilder {
    identity: Option<HostIdentity>,
    nqn: Option<String>,
    poll: PollPolicy,
    path: Option<PathSpec>,
    template: ConnectOptions,
}

impl HostBuilder {
    /// The name that targets know this host by. Without it each process gets one of its own.
    #[must_use]
    pub fn nqn(mut self, nqn: impl Into<String>) -> Self {
        self.nqn = Some(nqn.into());
        self
    }

    /// Name and identifier, both given.
    #[must_use]
    pub fn identity(mut self, identity: HostIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Name and identifier for a host that has been given neither a name nor an identifier.
    #[must_use]
    pub fn identity_or(mut self, identity: HostIdentity) -> Self {
        if self.nqn.is_none() {
            self.identity.get_or_insert(identity);
        }
        self
    }

    /// Ask for digests of headers and of data: damage on the way is noticed, at some cost.
    #[must_use]
    pub fn digests(mut self, header: bool, data: bool) -> Self {
        self.template.header_digest = header;
        self.template.data_digest = data;
        self
    }

    /// I/O queues of each core, and commands outstanding on each.
    #[must_use]
    pub fn queues(mut self, queues: u16, depth: u16) -> Self {
        self.template.queues = queues;
        self.template.depth = depth;
        self
    }

    /// The keep-alive time-out; zero turns keep-alive off. A target may end an association without
    /// it that has no I/O queues either: ours does after two minutes, unless told otherwise.
    #[must_use]
    pub fn keep_alive(mut self, timeout: Duration) -> Self {
        self.template.keep_alive = timeout.into();
        self
    }

    /// Time after which a command is aborted; a year at most.
    #[must_use]
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.template.command_timeout = Nanos::from(timeout).min(COMMAND_TIMEOUT_MAX);
        self
    }

    /// Time that each step of connecting may take.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.template.connect_timeout = timeout.into();
        self
    }

    /// Shortest and longest wait before a reconnect.
    #[must_use]
    pub fn reconnect_delay(mut self, min: Duration, max: Duration) -> Self {
        self.template.reconnect_delay_min = min.into();
        self.template.reconnect_delay_max = max.into();
        self
    }

    /// After so long without a connection requests fail; `None` waits for ever.
    #[must_use]
    pub fn loss_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.template.loss_timeout = timeout.map(Nanos::from);
        self
    }

    /// Tries to connect again after the [`loss_timeout`](Self::loss_timeout) as well: requests fail
    /// until there is a connection, and later ones are carried out. By default the loss is final.
    #[must_use]
    pub fn keep_reconnecting(mut self, keep: bool) -> Self {
        self.template.keep_reconnecting = keep;
        self
    }

    /// Policy for writes that were lost with a connection.
    #[must_use]
    pub fn replay(mut self, policy: ReplayPolicy) -> Self {
        self.template.replay = policy;
        self
    }

    /// Idle policy of the host's thread.
    #[must_use]
    pub fn poll(mut self, poll: PollPolicy) -> Self {
        self.poll = poll;
        self
    }

    /// I/O path of blocking calls: each thread that makes them has a connection of its own and
    /// submits by the path. Only that thread can end it: as it drops the namespace, with its next
    /// call by a path after another thread did that, or at its own end. Without a path, the host's
    /// thread carries the calls out, with one connection for all threads. [`Path::Sync`] spares a
    /// call two switches between threads, and takes an I/O queue for each thread; further threads go
    /// without. A [`PathSpec`] has parameters; those of a plug have no effect here, since a thread
    /// waits for each call.
    ///
    /// [`Path::Sync`]: switch::Path::Sync
    #[must_use]
    pub fn path(mut self, path: impl Into<PathSpec>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Options of the sockets.
    #[must_use]
    pub fn socket(mut self, options: SocketOptions) -> Self {
        self.template.socket = options;
        self
    }

    /// Knobs of the host's side of the switch.
    #[must_use]
    pub fn knobs(mut self, knobs: Knobs) -> Self {
        self.template.knobs = knobs;
        self
    }

    /// Starts the host's thread.
    ///
    /// # Errors
    /// When an option is out of range, or the machine refuses a thread or an io_uring.
    pub fn build(self) -> Result<Host, HostError> {
        let identity = match (self.identity, self.nqn) {
            (Some(identity), _) => identity,
            (None, Some(nqn)) => HostIdentity::from_nqn(&nqn)?,
            (None, None) => HostIdentity::generate(),
        };
        let mut template = self.template;
        template.host = identity;
        template.check()?;
        let path = self.path.map(PathSpec::for_awaited).transpose();
        let path = path.map_err(|error| DeviceError::Invalid(error.to_string()))?;
        let (thread, sender) = start_thread(self.poll)?;
        let inner = HostInner {
            template,
            poll: self.poll,
            path,
            sender,
            controllers: AtomicUsize::new(0),
            connects: AtomicU64::new(0),
            thread: Some(thread),
        };
        Ok(Host {
            inner: Arc::new(inner),
        })
    }
}

#[derive(Debug)]
struct HostInner {
    template: ConnectOptions,
    poll: PollPolicy,
    path: Option<PathSpec>,
    sender: MailboxSender<ClientMessage>,
    controllers: AtomicUsize,
    /// Number of connects so far.
    connects: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

impl HostInner {
    /// Gives a connection a seed of its own, so that the controllers of this host, lost together, do
    /// not all come back at the same times.
    fn stir(&self, options: &mut ConnectOptions) {
        let number = self.connects.fetch_add(1, Ordering::Relaxed);
        let mut draws = Prng::from_seed(options.seed ^ number);
        options.seed = draws.next_u64();
    }

    /// Returns true if the thread ended: it answers nothing any more.
    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the thread's next answer, as long as the thread lives.
    fn receive<T>(&self, answers: &mpsc::Receiver<T>) -> Result<T, HostError> {
        self.receive_looking(answers, || {})
    }

    /// The same; calls `look` at every [`THREAD_LOOK`].
    fn receive_looking<T>(
        &self,
        answers: &mpsc::Receiver<T>,
        mut look: impl FnMut(),
    ) -> Result<T, HostError> {
        loop {
            // Asked first: what it answered at the end is there by then.
            let is_over = self.is_over();
            match answers.recv_timeout(THREAD_LOOK) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) if !is_over => look(),
                Err(_) => return Err(HostError::Closed),
            }
        }
    }

    /// Hands the thread a message; waits while its mailbox is full.
    fn send(&self, mut message: ClientMessage) -> Result<(), HostError> {
        loop {
            if self.is_over() {
                return Err(HostError::Closed);
            }
            match self.sender.send(message) {
                Ok(()) => return Ok(()),
                Err(back) => message = back,
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for HostInner {
    fn drop(&mut self) {
        // There is only one, and this may be the host's own thread, which must not wait.
        self.sender.send_always(ClientMessage::Shutdown);
        let Some(thread) = self.thread.take() else {
            return;
        };
        // That thread drops the last handle when it wakes a task that owns it; it ends by itself.
        if thread.thread().id() != std::thread::current().id() {
            // It ends within the time that a shutdown may take; a panic of it was reported.
            let _ = thread.join();
        }
    }
}

/// An NVMe/TCP host. Cheap to clone; closed when the last clone, and everything that was made with
/// it, is dropped.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = host::Host::builder().build()?;
/// let subsystem = host.connect("127.0.0.1:4420", "nqn.2026-11.io.switchyard:default")?;
/// let namespace = subsystem.namespace(1)?;
/// namespace.write(0, &[7; 4096])?;
/// let mut data = [0; 4096];
/// namespace.read(0, &mut data)?;
/// assert_eq!(data, [7; 4096]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Host {
    inner: Arc<HostInner>,
}

impl Host {
    /// The options of a new host, all at their defaults.
    #[must_use]
    pub fn builder() -> HostBuilder {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let template = ConnectOptions::new(nowhere, Nqn::discovery(), HostIdentity::generate());
        HostBuilder {
            identity: None,
            nqn: None,
            poll: PollPolicy::Auto,
            path: None,
            template,
        }
    }

    /// Name and identifier of this host.
    #[must_use]
    pub fn identity(&self) -> &HostIdentity {
        &self.inner.template.host
    }

    /// The options that [`connect_with`](Self::connect_with) takes, for this target.
    ///
    /// # Errors
    /// When the address or the name cannot be understood.
    pub fn options(&self, address: &str, subsystem: &str) -> Result<ConnectOptions, HostError> {
        let mut options = self.inner.template.clone();
        options.resolve(address, IO_PORT)?;
        options.subsystem = parse_nqn(subsystem)?;
        Ok(options)
    }

    /// Connects to a subsystem; `address` is `HOST:PORT`.
    ///
    /// # Errors
    /// [`HostError::Connection`] says what the target, or the way to it, did not do.
    pub fn connect(&self, address: &str, subsystem: &str) -> Result<Subsystem, HostError> {
        self.connect_with(self.options(address, subsystem)?)
    }

    /// Connects with options of its own.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`HostError::Option`].
    pub fn connect_with(&self, mut options: ConnectOptions) -> Result<Subsystem, HostError> {
        options.check()?;
        self.inner.stir(&mut options);
        self.join(Controller::associate(options))
    }

    /// Ends controllers that another process, which is gone, had at this subsystem with this host
    /// identifier. Returns when none of their commands can change anything any more: when the target has
    /// confirmed that, or when it must have ended them by itself, if it cannot confirm it, or if they are
    /// those of another host (docs/design/decisions/0004-replay.md). Takes its time; ends early once `is_over`
    /// returns true.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`HostError::Closed`] if it ends early.
    pub fn end_controllers(
        &self,
        (address, subsystem): (&str, &str),
        host_id: [u8; 16],
        controllers: &[ControllerName],
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), HostError> {
        let mut options = self.options(address, subsystem)?;
        options.check()?;
        self.inner.stir(&mut options);
        let is_ours = host_id == self.identity().id;
        let association = Controller::associate(options);
        association.inherit(controllers, is_ours);
        let subsystem = self.join(association)?;
        let association = subsystem.association();
        while !association.wait_unfenced(THREAD_LOOK) {
            if is_over() || self.inner.is_over() {
                return Err(HostError::Closed);
            }
            if association.phase() == Phase::Gone {
                let error = association.last_error();
                return Err(error.map_or(HostError::Closed, HostError::Connection));
            }
        }
        Ok(())
    }

    /// Connects an association.
    fn join(&self, association: Arc<Association>) -> Result<Subsystem, HostError> {
        let before = self.inner.controllers.fetch_add(1, Ordering::Relaxed);
        let subsystem = Subsystem::new(self.clone(), association);
        if before >= CONTROLLERS_MAX {
            return Err(HostError::Limit(
                "this host has 256 controllers already; drop one, or make another host",
            ));
        }
        self.settle(subsystem.association())?;
        Ok(subsystem)
    }

    /// The options that connections of this host start from.
    pub(crate) fn template(&self) -> &ConnectOptions {
        &self.inner.template
    }

    /// Lets the thread run the association, and waits until it is live.
    pub(crate) fn settle(&self, association: &Arc<Association>) -> Result<(), HostError> {
        let options = association.options();
        self.inner
            .send(ClientMessage::Connect(Arc::clone(association)))?;
        // TCP, ICResp, Connect, and a few admin commands, each with that time-out.
        let addresses = 1 + u32::try_from(options.further_addresses.len()).unwrap_or(u32::MAX);
        let limit = Duration::from(options.connect_timeout).saturating_mul(8 * addresses.min(64));
        let end = Instant::now() + limit;
        let mut phase = association.phase();
        while phase.is_making() && Instant::now() < end {
            if self.inner.is_over() {
                return Err(HostError::Closed);
            }
            phase = association.wait_settled(THREAD_LOOK);
        }
        match phase {
            Phase::Live => Ok(()),
            Phase::Gone => Err(association
                .last_error()
                .map_or(HostError::Closed, HostError::Connection)),
            Phase::Connecting | Phase::Recovering => {
                association.close();
                let error = association.last_error();
                Err(error
                    .unwrap_or(ConnectionError::TimedOut {
                        address: association.address(),
                        what: "the set-up of the controller",
                        seconds: limit.as_secs(),
                    })
                    .into())
            }
        }
    }
}

/// Buffers of the host's thread: a few requests of each size; blocking callers wait for one.
fn driver_options() -> reactor::uring::Options {
    let class = |bytes, count| BufferClass { bytes, count };
    reactor::uring::Options {
        buffers: vec![class(4 * KIB, 512), class(64 * KIB, 128), class(MIB, 32)],
        sockets: CONTROLLERS_MAX * 4,
        file_operations: 16,
    }
}

/// Starts the dataplane thread.
fn start_thread(
    poll: PollPolicy,
) -> Result<(JoinHandle<()>, MailboxSender<ClientMessage>), HostError> {
    let open = move || -> Result<_, HostError> {
        let driver = UringDriver::new(&driver_options())?;
        Ok((Core::new(driver, ClientService::new(), poll), ()))
    };
    // A broken ring ends the thread; every caller then hears that the host is closed.
    let ended = drop;
    let refused = |source| HostError::Io {
        what: "cannot start a thread",
        source,
    };
    let started = start_core("switchyard-host", open, ended, refused)?;
    Ok((started.thread, started.sender))
}
