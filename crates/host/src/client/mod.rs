//! The API for programs: a [`Host`] with its thread, blocking calls on a [`Namespace`], and a
//! [`Queue`] with asynchronous completions.
//!
//! The thread owns the admin queues of all controllers, so keep-alives are always sent, and the
//! connections of blocking calls. It never blocks on a caller.

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
use secure::TlsKey;
use secure::chap::Secret as ChapSecret;
use service::{ClientMessage, ClientService};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switch::{Knobs, PathSpec};
use transport::key_file::{self, KeyFileError};
use wire::nvme::Nqn;
use wire::tcp::limits::IO_PORT;

/// Options of a [`Host`]; [`build`](Self::build) starts it.
#[derive(Clone, Debug)]
pub struct HostBuilder {
    identity: Option<HostIdentity>,
    nqn: Option<String>,
    poll: PollPolicy,
    path: Option<PathSpec>,
    tls_key_file: Option<PathBuf>,
    chap_secret_file: Option<PathBuf>,
    chap_controller_secret_file: Option<PathBuf>,
    template: ConnectOptions,
}

impl HostBuilder {
    /// NQN of this host. Default: a new one for each process.
    #[must_use]
    pub fn nqn(mut self, nqn: impl Into<String>) -> Self {
        self.nqn = Some(nqn.into());
        self
    }

    /// NQN and host identifier.
    #[must_use]
    pub fn identity(mut self, identity: HostIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// NQN and host identifier, unless one was set before.
    #[must_use]
    pub fn identity_or(mut self, identity: HostIdentity) -> Self {
        if self.nqn.is_none() {
            self.identity.get_or_insert(identity);
        }
        self
    }

    /// Enables header and data digests (CRC-32C).
    #[must_use]
    pub fn digests(mut self, header: bool, data: bool) -> Self {
        self.template.header_digest = header;
        self.template.data_digest = data;
        self
    }

    /// I/O queues per core, and the depth of each.
    #[must_use]
    pub fn queues(mut self, queues: u16, depth: u16) -> Self {
        self.template.queues = queues;
        self.template.depth = depth;
        self
    }

    /// Keep-alive time-out; 0 disables it. A target may end an association that has neither
    /// keep-alive nor I/O queues: Switchyard after 2 min by default.
    #[must_use]
    pub fn keep_alive(mut self, timeout: Duration) -> Self {
        self.template.keep_alive = timeout.into();
        self
    }

    /// Time after which a command is aborted; at most a year.
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

    /// Smallest and largest delay before a reconnect.
    #[must_use]
    pub fn reconnect_delay(mut self, min: Duration, max: Duration) -> Self {
        self.template.reconnect_delay_min = min.into();
        self.template.reconnect_delay_max = max.into();
        self
    }

    /// Time without a connection after which requests fail; `None`: no limit. A write that was lost
    /// with its connection fails after this time, too, if it cannot be sent again earlier: a target
    /// without End Controller must first have ended the old controller by its keep-alive timer,
    /// which takes up to twice [`keep_alive`](Self::keep_alive) plus 0.5 s.
    #[must_use]
    pub fn loss_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.template.loss_timeout = timeout.map(Nanos::from);
        self
    }

    /// Keeps reconnecting after [`loss_timeout`](Self::loss_timeout): requests fail until the
    /// connection is back. By default the association ends.
    #[must_use]
    pub fn keep_reconnecting(mut self, keep: bool) -> Self {
        self.template.keep_reconnecting = keep;
        self
    }

    /// Policy for writes of a lost connection.
    #[must_use]
    pub fn replay(mut self, policy: ReplayPolicy) -> Self {
        self.template.replay = policy;
        self
    }

    /// Polling policy of the host's thread.
    #[must_use]
    pub fn poll(mut self, poll: PollPolicy) -> Self {
        self.poll = poll;
        self
    }

    /// I/O path of blocking calls: each calling thread has its own connection. It ends when that
    /// thread drops the namespace or exits; if another thread dropped the namespace, at the next
    /// call of this thread. Without a path (default), the host's thread executes the calls of all
    /// threads over one connection. [`Path::Sync`] saves two thread switches per call, but needs an
    /// I/O queue per thread; threads beyond the granted queues use the host's thread. The plug
    /// parameters of a [`PathSpec`] have no effect, because a thread waits for each call.
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

    /// TLS keys of the host: it connects with TLS only, and tries them in this order.
    #[must_use]
    pub fn tls_keys(mut self, keys: Vec<TlsKey>) -> Self {
        self.template.tls_keys = keys;
        self
    }

    /// File with the TLS keys of the host, which [`build`](Self::build) reads.
    #[must_use]
    pub fn tls_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls_key_file = Some(path.into());
        self
    }

    /// Secret that proves this host by DH-HMAC-CHAP to controllers that require it.
    #[must_use]
    pub fn chap_secret(mut self, secret: ChapSecret) -> Self {
        self.template.chap_secret = Some(secret);
        self
    }

    /// Secret by which controllers must prove themselves; needs
    /// [`chap_secret`](Self::chap_secret).
    #[must_use]
    pub fn chap_controller_secret(mut self, secret: ChapSecret) -> Self {
        self.template.chap_controller_secret = Some(secret);
        self
    }

    /// File with the [secret](Self::chap_secret) of this host in its first line, which
    /// [`build`](Self::build) reads.
    #[must_use]
    pub fn chap_secret_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.chap_secret_file = Some(path.into());
        self
    }

    /// File with the [secret](Self::chap_controller_secret) of controllers in its first line, which
    /// [`build`](Self::build) reads.
    #[must_use]
    pub fn chap_controller_secret_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.chap_controller_secret_file = Some(path.into());
        self
    }

    /// Switch parameters of the host.
    #[must_use]
    pub fn knobs(mut self, knobs: Knobs) -> Self {
        self.template.knobs = knobs;
        self
    }

    /// Starts the host's thread.
    ///
    /// # Errors
    /// An option out of range, or no thread or io_uring available.
    pub fn build(self) -> Result<Host, HostError> {
        let identity = match (self.identity, self.nqn) {
            (Some(identity), _) => identity,
            (None, Some(nqn)) => HostIdentity::from_nqn(&nqn)?,
            (None, None) => HostIdentity::generate(),
        };
        let mut template = self.template;
        template.host = identity;
        if let Some(path) = &self.tls_key_file {
            template.tls_keys = key_file::tls_keys(path).map_err(unusable_keys)?;
        }
        if let Some(path) = &self.chap_secret_file {
            template.chap_secret = Some(first_secret(path)?);
        }
        if let Some(path) = &self.chap_controller_secret_file {
            template.chap_controller_secret = Some(first_secret(path)?);
        }
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

fn unusable_keys(error: KeyFileError) -> HostError {
    HostError::Option(error.to_string())
}

/// Reads the secret that a host uses: the first of the file.
fn first_secret(path: &Path) -> Result<ChapSecret, HostError> {
    let secrets = key_file::chap_secrets(path).map_err(unusable_keys)?;
    Ok(secrets.into_iter().next().expect("a file has a secret"))
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
    /// Gives each connection its own seed, so that controllers lost together do not reconnect at
    /// the same time.
    fn stir(&self, options: &mut ConnectOptions) {
        let number = self.connects.fetch_add(1, Ordering::Relaxed);
        let mut draws = Prng::from_seed(options.seed ^ number);
        options.seed = draws.next_u64();
    }

    /// Returns true if the thread has ended.
    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the thread's next answer while the thread lives.
    fn receive<T>(&self, answers: &mpsc::Receiver<T>) -> Result<T, HostError> {
        self.receive_looking(answers, || {})
    }

    /// The same; calls `look` every [`THREAD_LOOK`].
    fn receive_looking<T>(
        &self,
        answers: &mpsc::Receiver<T>,
        mut look: impl FnMut(),
    ) -> Result<T, HostError> {
        loop {
            // Read first: the answers that the thread sent before its end have then arrived.
            let is_over = self.is_over();
            match answers.recv_timeout(THREAD_LOOK) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) if !is_over => look(),
                Err(_) => return Err(HostError::Closed),
            }
        }
    }

    /// Sends the thread a message; waits while its mailbox is full.
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
        // At most one per host. It does not wait, because this may be the host's own thread.
        self.sender.send_always(ClientMessage::Shutdown);
        let Some(thread) = self.thread.take() else {
            return;
        };
        // That thread may drop the last handle when it wakes a task that owns it; it then ends by
        // itself.
        if thread.thread().id() != std::thread::current().id() {
            // It ends within the time of a shutdown; its panic was reported.
            let _ = thread.join();
        }
    }
}

/// An NVMe/TCP host. Cheap to clone. Closed when the last clone and everything created from it is
/// dropped.
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
    /// The default options of a new host.
    #[must_use]
    pub fn builder() -> HostBuilder {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let template = ConnectOptions::new(nowhere, Nqn::discovery(), HostIdentity::generate());
        HostBuilder {
            identity: None,
            nqn: None,
            poll: PollPolicy::Auto,
            path: None,
            tls_key_file: None,
            chap_secret_file: None,
            chap_controller_secret_file: None,
            template,
        }
    }

    /// NQN and host identifier of this host.
    #[must_use]
    pub fn identity(&self) -> &HostIdentity {
        &self.inner.template.host
    }

    /// The default options of a connection, for [`connect_with`](Self::connect_with).
    ///
    /// # Errors
    /// An invalid address or NQN.
    pub fn options(&self, address: &str, subsystem: &str) -> Result<ConnectOptions, HostError> {
        let mut options = self.inner.template.clone();
        options.resolve(address, IO_PORT)?;
        options.subsystem = parse_nqn(subsystem)?;
        Ok(options)
    }

    /// Connects to a subsystem; `address` is `HOST:PORT`.
    ///
    /// # Errors
    /// [`HostError::Connection`] with the cause.
    pub fn connect(&self, address: &str, subsystem: &str) -> Result<Subsystem, HostError> {
        self.connect_with(self.options(address, subsystem)?)
    }

    /// Connects with these options.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`HostError::Option`].
    pub fn connect_with(&self, mut options: ConnectOptions) -> Result<Subsystem, HostError> {
        options.check()?;
        self.inner.stir(&mut options);
        self.join(Controller::associate(options))
    }

    /// Ends controllers that an exited process had at this subsystem with this host identifier.
    /// Returns when none of their commands can take effect any more: when the target confirms it,
    /// or after their keep-alive time-out if it cannot confirm it or they belong to another host
    /// (docs/design/decisions/0004-replay.md). Ends early if `is_over` returns true.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`HostError::Closed`] after an early end.
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

    /// Creates the handle of an association and connects it.
    fn join(&self, association: Arc<Association>) -> Result<Subsystem, HostError> {
        let before = self.inner.controllers.fetch_add(1, Ordering::Relaxed);
        let subsystem = Subsystem::new(self.clone(), association);
        if before >= CONTROLLERS_MAX {
            return Err(HostError::Limit(
                "this host already has 256 controllers; close one, or create another host",
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
                        what: "controller set-up",
                        seconds: limit.as_secs(),
                    })
                    .into())
            }
        }
    }
}

/// Buffers of the host's thread: a few of each size; blocking callers wait for a free one.
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
    // A broken ring ends the thread; every caller then receives [`HostError::Closed`].
    let ended = drop;
    let refused = |source| HostError::Io {
        what: "cannot start a thread",
        source,
    };
    let started = start_core("switchyard-host", open, ended, refused)?;
    Ok((started.thread, started.sender))
}
