//! A vhost-user back end: a virtio-blk device for a virtual machine, on a Unix socket.
//!
//! The machine's monitor (QEMU, Cloud Hypervisor, crosvm) is the *front end*: it connects to the
//! socket and shares the guest's memory and the event counters of its virtqueues. A control thread
//! handles its messages. Core threads, which own the device's channels, serve the queues. Front
//! ends are served one at a time; the next one begins when the last one's queues have stopped.
//!
//! The guest is trusted only with the device. Its monitor is trusted not to shrink the shared
//! memory, as in every back end.

mod config_channel;
mod control;
mod guest_memory;
mod inflight;
mod machine;
mod memory;
mod ring;
mod served_disk;
mod service;
mod session;
mod succession;
mod take_over;
mod taken;
mod vring;

use crate::acceptor::Acceptor;
use crate::core_thread::{self, Cores};
use crate::limits::{DRAIN_TIME, LANE_SOCKETS, VRINGS_MAX};
use crate::unix_socket::{self, Origin, TakenSocket};
use crate::virtio_blk::ID_BYTES;
use crate::{ClassChoice, ClassRules, DeviceIo, FrontendError, Handed, IoCounts, KnownLosses};
pub use inflight::Writers;
pub use succession::{NoteWriters, Succession};

use base::units::CoreId;
use block::Device;
use reactor::PollPolicy;
use served_disk::{Message, ServedDisk};
use service::VhostService;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use succession::OwnWriters;
use switch::{Class, PerClass};

/// Options of a server.
#[derive(Clone, Debug)]
pub struct VhostOptions {
    /// Path of the Unix socket, which only the user of the process may open.
    pub socket: PathBuf,
    /// The rule that gives a request its class.
    pub class: ClassChoice,
    /// Rules with precedence over `class`.
    pub rules: ClassRules,
    /// Refuses writes.
    pub read_only: bool,
    /// Number of request queues, 1 to [`VRINGS_MAX`] (default); a machine may use fewer.
    pub queues: Option<u16>,
    /// The device's name in the guest, at most 20 bytes.
    pub id: String,
    /// The identity of the volume; 0 for none. A machine that last used another identity is
    /// refused.
    pub identity: u64,
    /// Access to the controllers of a killed back end: writes are held until these have ended.
    /// `None` for a local device.
    pub succession: Option<Arc<dyn Succession>>,
    /// Processors, one core thread each; if empty, one thread placed by the kernel.
    pub cores: Vec<CoreId>,
    /// Idle policy of the cores.
    pub poll: PollPolicy,
}

impl VhostOptions {
    /// Default options for a socket: class by I/O priority, writable, one core, all queues.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            class: ClassChoice::ByIoPriority,
            rules: ClassRules::default(),
            read_only: false,
            queues: None,
            id: "switchyard".to_owned(),
            identity: 0,
            succession: None,
            cores: Vec::new(),
            poll: PollPolicy::Auto,
        }
    }
}

/// A running server. When dropped, it finishes outstanding requests for at most 10 s and ends.
/// Unfinished requests get no completion, so that the next back end can execute them.
#[derive(Debug)]
pub struct VhostServer {
    shared: Arc<ServedDisk>,
    socket: Option<PathBuf>,
    /// The socket that the control thread listens on, and its origin.
    bound: Option<TakenSocket>,
    /// The control thread leaves the file of the socket.
    keeps_file: Arc<AtomicBool>,
    control: Option<Acceptor>,
    cores: Cores<Message>,
}

impl VhostServer {
    /// Serves `devices`, which are paths of each class to the same blocks.
    ///
    /// # Errors
    /// The socket, a core, a device, or an io_uring cannot be used.
    pub fn start(
        devices: &PerClass<Arc<dyn Device>>,
        options: &VhostOptions,
    ) -> Result<Self, FrontendError> {
        let mut server = Self::prepare(devices, options, None)?;
        server.accept()?;
        Ok(server)
    }

    /// Starts everything but the acceptance of front ends: [`resume`](Self::resume) begins that.
    /// `taken` is the socket of a predecessor.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn prepare(
        devices: &PerClass<Arc<dyn Device>>,
        options: &VhostOptions,
        taken: Option<TakenSocket>,
    ) -> Result<Self, FrontendError> {
        let cores = core_thread::places(&options.cores)?;
        let shared = Arc::new(share(devices, options)?);
        let mut server = Self {
            shared,
            socket: None,
            bound: None,
            keeps_file: Arc::default(),
            control: None,
            cores: Cores::new(),
        };
        for core in cores {
            let shared = Arc::clone(&server.shared);
            let service = move |io: DeviceIo<_>, namespace| {
                let io = io.for_client(&shared.client);
                VhostService::new(shared, io, namespace)
            };
            let place = (core, LANE_SOCKETS, options.poll);
            server.cores.serve("vhost", place, devices, service)?;
        }
        let senders = server.cores.senders().to_vec();
        server.shared.cores.set(senders).expect("set once");
        if let Some(succession) = &options.succession {
            let shared = Arc::downgrade(&server.shared);
            succession.watch(Box::new(move |writers| {
                if let Some(shared) = shared.upgrade() {
                    shared.writers.note(writers);
                }
            }));
        }
        server.listen(&options.socket, taken)?;
        Ok(server)
    }

    /// Path of the socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.socket.as_deref().expect("a server listens")
    }

    /// Number of request queues.
    #[must_use]
    pub fn queues(&self) -> u16 {
        self.shared.queues
    }

    /// Returns true while a machine is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shared.connected.load(Ordering::Relaxed)
    }

    /// Returns the counts of requests since the start, by class.
    #[must_use]
    pub fn counts(&self) -> PerClass<IoCounts> {
        self.cores.counts()
    }

    /// Sends a probe to the server's threads.
    pub fn ping(&self, ping: &crate::Ping) {
        self.cores.tell(|| Message::Ping(ping.clone()));
    }

    /// Finishes outstanding requests for at most 10 s, and ends. Does nothing if already detached.
    pub fn detach(&mut self) {
        self.end();
    }

    /// Returns another descriptor of the listening socket, and its origin, for a successor.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn share_socket(&self) -> io::Result<(OwnedFd, Origin)> {
        let TakenSocket { socket, origin } = self.bound.as_ref().expect("a server listens");
        Ok((socket.try_clone()?.into(), *origin))
    }

    /// Disconnects the machine, which connects to the successor, once its outstanding requests are
    /// finished.
    ///
    /// # Errors
    /// The reason why it serves on: something has not finished by `by`.
    pub fn pause(&mut self, by: Instant) -> Result<Handed, String> {
        if self.shared.holds_writes() {
            return Err("writes of an earlier process may still be executed: retry".to_owned());
        }
        self.shared.gave_up.store(false, Ordering::Relaxed);
        self.keeps_file.store(true, Ordering::Relaxed);
        self.shared.set_end_by(Some(by));
        self.control = None;
        if !self.shared.gave_up.load(Ordering::Relaxed) && !self.shared.holds_writes() {
            return Ok(Handed::default());
        }
        self.resume(Handed::default())?;
        Err("requests of the machine did not finish in time".to_owned())
    }

    /// Accepts front ends, after a [pause](Self::pause) of this server or of a predecessor.
    ///
    /// # Errors
    /// A thread that cannot start.
    pub fn resume(&mut self, _: Handed) -> Result<(), String> {
        self.keeps_file.store(false, Ordering::Relaxed);
        self.shared.set_end_by(None);
        self.accept().map_err(|error| error.to_string())
    }

    fn listen(&mut self, path: &Path, taken: Option<TakenSocket>) -> Result<(), FrontendError> {
        let bound = taken.map_or_else(
            || {
                let (socket, origin) = unix_socket::listen(path, 1, None)?;
                Ok(TakenSocket { socket, origin })
            },
            Ok,
        );
        let refused = |source| FrontendError::Listen {
            address: path.display().to_string(),
            source,
        };
        self.bound = Some(bound.map_err(refused)?);
        self.socket = Some(path.to_owned());
        Ok(())
    }

    fn accept(&mut self) -> Result<(), FrontendError> {
        let (Some(TakenSocket { socket, origin }), Some(path)) = (&self.bound, &self.socket) else {
            return Ok(());
        };
        let (socket, shared) = (Arc::clone(socket), Arc::clone(&self.shared));
        let file = (*origin != Origin::Passed).then(|| path.clone());
        let keeps_file = Arc::clone(&self.keeps_file);
        let serve = move |end: &UnixStream| {
            control::serve_all(&socket, end, &shared);
            // While the socket is listened on, no other server replaces it.
            if let Some(file) = file.filter(|_| !keeps_file.load(Ordering::Relaxed)) {
                // It may be removed already.
                let _ = std::fs::remove_file(file);
            }
        };
        self.control = Some(Acceptor::start("vhost/control", serve)?);
        Ok(())
    }
}

impl Drop for VhostServer {
    fn drop(&mut self) {
        self.end();
    }
}

impl VhostServer {
    /// Ends all threads; does nothing if they have ended.
    fn end(&mut self) {
        let by = Instant::now() + Duration::from(DRAIN_TIME);
        self.shared.set_end_by(Some(by));
        // Ending the control thread removes the socket.
        self.control = None;
        self.cores.tell(|| Message::End);
        self.cores.join();
    }
}

fn share(
    devices: &PerClass<Arc<dyn Device>>,
    options: &VhostOptions,
) -> Result<ServedDisk, FrontendError> {
    let device = Arc::clone(&devices[Class::DEFAULT]);
    let queues = options.queues.unwrap_or(VRINGS_MAX);
    if !(1..=VRINGS_MAX).contains(&queues) {
        return Err(FrontendError::Option(format!(
            "{queues} queues are out of range; use 1 to {VRINGS_MAX}"
        )));
    }
    if options.id.len() > ID_BYTES {
        return Err(FrontendError::Option(format!(
            "the serial number {:?} is too long; use at most {ID_BYTES} bytes",
            options.id
        )));
    }
    let mut id = [0; ID_BYTES];
    for (to, from) in id.iter_mut().zip(options.id.bytes()) {
        *to = from;
    }
    Ok(ServedDisk {
        class: options.class,
        rules: options.rules.of_unknown(),
        read_only: options.read_only || device.capabilities().read_only,
        queues,
        id,
        client: KnownLosses::of(&*device),
        connected: AtomicBool::new(false),
        gave_up: AtomicBool::new(false),
        late_writes: AtomicUsize::new(0),
        volume: options.identity,
        succession: options.succession.clone(),
        writers: OwnWriters::new(),
        cores: OnceLock::new(),
        end_by: Mutex::new(None),
        log: Arc::default(),
        device,
    })
}
