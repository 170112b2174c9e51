//! The FUSE front end: each device is a file that any process of a stock Linux kernel can use.
//!
//! [`Attachment`] mounts a directory with one regular file per namespace, `MOUNTPOINT/NSID`, as
//! large as the device. A *session thread* takes requests from `/dev/fuse`, answers those for names
//! and attributes, and passes those for data on to the *dataplane thread*, which submits them to
//! the devices and answers as they complete, in any order.
//!
//! A write that has returned has reached the device: the kernel caches reads, but no writes. A file
//! that is opened with `O_DIRECT` bypasses the cache; its requests are whole blocks, or fail with
//! `EINVAL`. `fsync` is Flush, a write with `O_DSYNC` is durable when it returns, and `fallocate`
//! writes zeroes (`FALLOC_FL_ZERO_RANGE`), which may be deallocated (`FALLOC_FL_PUNCH_HOLE`). Files
//! can be neither made nor removed, and keep their size; a program that truncates what it writes to must
//! be told not to (`dd conv=notrunc`).

mod error;
mod filesystem;
mod gate;
mod job;
pub mod limits;
mod mount;
mod service;
mod thread_classes;
mod write_order;

pub use crate::class_choice::ClassChoice;
pub use error::FuseError;

use crate::core_thread;
use crate::limits::DRAIN_TIME;
use crate::{ClassRules, IoCounters, IoCounts};
use base::units::CoreId;
use block::Device;
use filesystem::{Entry, Files};
use fuser::{BackgroundSession, Config, Session, SessionACL};
use gate::Gate;
use job::Message;
use limits::{NAMESPACES_MAX, SESSION_END_MAX};
use mount::{Connection, Mount, MountOptions};
use reactor::uring::{Options as DriverOptions, UringDriver};
use reactor::{Core, MailboxSender, PollPolicy, placement, start_core};
use rustix::process::{getgid, getuid};
use service::Dataplane;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switch::{Class, PerClass};
use thread_classes::ThreadClasses;

/// The options of an attachment.
#[derive(Clone, Debug)]
pub struct Options {
    /// An existing directory, in which the files appear.
    pub mountpoint: PathBuf,
    /// The rule that gives a request its class.
    pub class: ClassChoice,
    /// Rules that go before it.
    pub rules: ClassRules,
    /// The processor of the dataplane thread; `None` leaves the choice to the kernel.
    pub core: Option<CoreId>,
    /// Policy of the dataplane thread while it is idle.
    pub poll: PollPolicy,
    /// Lets other users than the process's own use the files. A process without privileges needs
    /// `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Refuses writes to all files.
    pub read_only: bool,
}

impl Options {
    /// The default options for a mount point: default class, any processor, own user, writable.
    #[must_use]
    pub fn new(mountpoint: impl Into<PathBuf>) -> Self {
        Self {
            mountpoint: mountpoint.into(),
            class: ClassChoice::Fixed(Class::DEFAULT),
            rules: ClassRules::default(),
            core: None,
            poll: PollPolicy::Never,
            allow_other: false,
            read_only: false,
        }
    }
}

/// State that the threads of an attachment share.
#[derive(Debug, Default)]
struct Shared {
    gate: Arc<Gate>,
    /// Number of open files.
    open: AtomicUsize,
    /// The dataplane thread cannot carry out requests any more.
    failed: AtomicBool,
}

/// Devices that are files of a mount. Dropping it ends it, also while files are open.
#[derive(Debug)]
pub struct Attachment {
    mount: Mount,
    /// The session thread; `None` after the end.
    session: Option<BackgroundSession>,
    /// The dataplane thread; `None` after the end.
    dataplane: Option<JoinHandle<()>>,
    sender: MailboxSender<Message>,
    shared: Arc<Shared>,
    /// One for each file; its thread is the same.
    counters: Vec<Arc<IoCounters>>,
}

impl Attachment {
    /// Attaches devices as files: for each namespace identifier the ways to its device, by class.
    /// Returns once the files can be used.
    ///
    /// # Errors
    /// [`FuseError`], which says what to do. Nothing is left mounted then.
    pub fn start(
        namespaces: Vec<(u32, PerClass<Arc<dyn Device>>)>,
        options: &Options,
    ) -> Result<Self, FuseError> {
        check_namespaces(&namespaces)?;
        let shared = Arc::new(Shared::default());
        let entries = namespaces.iter().map(|(nsid, devices)| {
            let device = Arc::clone(&devices[Class::DEFAULT]);
            Entry {
                name: nsid.to_string(),
                read_only: options.read_only || device.capabilities().read_only,
                size: device.geometry().bytes().into(),
                device,
            }
        });
        let entries = entries.collect();
        let mount_options = MountOptions {
            allow_other: options.allow_other,
            read_only: options.read_only,
        };
        let (mount, connection) = Mount::new(&options.mountpoint, mount_options)?;
        let started = start_dataplane(namespaces, options, &shared, mount.connection());
        let (dataplane, (sender, counters)) = started?;
        let mut attachment = Self {
            mount,
            session: None,
            dataplane: Some(dataplane),
            sender: sender.clone(),
            shared: Arc::clone(&shared),
            counters,
        };
        let files = Files {
            entries,
            sender,
            shared,
            class: match options.class {
                ClassChoice::Fixed(class) if options.rules.is_empty() => Some(class),
                _ => None,
            },
            threads: Mutex::new(ThreadClasses::new(options.class, options.rules.clone())),
            handles: Mutex::default(),
            mode: if options.allow_other { 0o666 } else { 0o600 },
            owner: (getuid().as_raw(), getgid().as_raw()),
            bypass: false,
        };
        attachment.session = Some(start_session(files, connection, options.allow_other)?);
        Ok(attachment)
    }

    /// The directory with the files, as an absolute path.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        self.mount.path()
    }

    /// Returns the number of open files.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Returns the counts of requests since the start, by class. A write of part of a block is a
    /// read and a write.
    #[must_use]
    pub fn counts(&self) -> PerClass<IoCounts> {
        IoCounters::total(&self.counters)
    }

    /// Returns true if the ring of the dataplane thread broke: all requests fail.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Returns true if the files are gone: the attachment ended, or another process unmounted them.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let session = self.session.as_ref();
        session.is_none_or(|session| session.guard.is_finished())
    }

    /// Unmounts and ends the threads, after the requests under way. Does nothing the second time.
    ///
    /// # Errors
    /// [`FuseError::InUse`] while files are open: then everything goes on as before.
    /// [`FuseError::Unmount`] where the kernel refuses for another reason.
    pub fn detach(&mut self) -> Result<(), FuseError> {
        self.mount.unmount(self.open_files())?;
        self.end_threads();
        Ok(())
    }

    /// Ends the attachment also while files are open: requests under way are finished, for at most
    /// [`DRAIN_TIME`], and later ones fail.
    pub fn detach_forced(&mut self) {
        if let Err(error) = self.detach() {
            tracing::warn!("{error}; detached all the same");
            self.shared.gate.shut();
            if !self.shared.gate.drained(DRAIN_TIME.into()) {
                tracing::warn!("requests are under way still: they are given up");
            }
            self.mount.abort();
            self.end_threads();
        }
    }

    fn end_threads(&mut self) {
        self.shared.gate.shut();
        if let Some(session) = self.session.take() {
            self.end_session(session);
        }
        if let Some(dataplane) = self.dataplane.take() {
            self.sender.send_always(Message::End);
            // It cannot panic on anything that a device does; if it did, it has said so.
            let _ = dataplane.join();
        }
    }

    /// Waits for the session thread, which ends with the last open file and the last copy of the
    /// mount. Other mount namespaces may have copies, so the connection is ended if that takes long.
    /// A process without privileges cannot do so where the kernel's control file system is not
    /// mounted: then the thread is left, and refuses every request, until the files are closed.
    fn end_session(&self, session: BackgroundSession) {
        if !ends_soon(&session) {
            self.mount.connection().abort();
            if !ends_soon(&session) {
                let path = self.mount.path().display();
                tracing::warn!(
                    "{path}: files are open still, or another mount namespace has a copy"
                );
                return;
            }
        }
        if let Err(error) = session.join() {
            tracing::warn!("FUSE session: {error}");
        }
    }
}

/// Waits for the end of a session that has nothing to serve; returns true if it came in time.
fn ends_soon(session: &BackgroundSession) -> bool {
    let until = Instant::now() + SESSION_END_MAX;
    while !session.guard.is_finished() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.detach_forced();
    }
}

fn check_namespaces(namespaces: &[(u32, PerClass<Arc<dyn Device>>)]) -> Result<(), FuseError> {
    let wrong = |what: String| Err(FuseError::Namespaces(what));
    if namespaces.is_empty() {
        return wrong("no namespace to attach; name at least one".to_owned());
    }
    if namespaces.len() > NAMESPACES_MAX {
        let count = namespaces.len();
        return wrong(format!(
            "{count} namespaces are more than the {NAMESPACES_MAX} of one mount; use several mounts"
        ));
    }
    let mut seen = BTreeSet::new();
    match namespaces.iter().find(|(nsid, _)| !seen.insert(*nsid)) {
        Some((nsid, _)) => wrong(format!(
            "namespace {nsid} is named twice; name it once, or use another mount point"
        )),
        None => Ok(()),
    }
}

fn start_session(
    files: Files,
    connection: OwnedFd,
    allow_other: bool,
) -> Result<BackgroundSession, FuseError> {
    let acl = if allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    let mut config = Config::default();
    config.acl = acl;
    let session = Session::from_fd(files, connection, acl, config);
    let session = session.map_err(FuseError::Session)?;
    // The session's thread has what the one that starts it has.
    let start = || {
        core_thread::flush_io();
        session.spawn()
    };
    let thread = std::thread::Builder::new().name("fuse-session".to_owned());
    let started = std::thread::scope(|scope| {
        let thread = thread.spawn_scoped(scope, start)?;
        thread.join().expect("it starts a thread")
    });
    started.map_err(FuseError::Thread)
}

/// The way to the dataplane thread, and its counters.
type Opened = (MailboxSender<Message>, Vec<Arc<IoCounters>>);

/// Starts the dataplane thread, and returns once it has opened the devices.
fn start_dataplane(
    namespaces: Vec<(u32, PerClass<Arc<dyn Device>>)>,
    options: &Options,
    shared: &Arc<Shared>,
    connection: Connection,
) -> Result<(JoinHandle<()>, Opened), FuseError> {
    let shared = Arc::clone(shared);
    let (core, poll) = (options.core, options.poll);
    let open = move || open_core(&namespaces, core, poll);
    let ended = move |result| {
        if let Err(error) = result {
            tracing::error!("io_uring: {error}; the files of the mount are dead");
            shared.failed.store(true, Ordering::Relaxed);
            shared.gate.shut();
            // Messages on their way here have no other answer.
            connection.abort();
        }
    };
    let started = start_core("fuse-dataplane", open, ended, FuseError::Thread)?;
    Ok((started.thread, (started.sender, started.opened)))
}

/// The core of the dataplane thread, and its counters.
type OpenCore = (Core<UringDriver, Dataplane>, Vec<Arc<IoCounters>>);

fn open_core(
    namespaces: &[(u32, PerClass<Arc<dyn Device>>)],
    core: Option<CoreId>,
    poll: PollPolicy,
) -> Result<OpenCore, FuseError> {
    core_thread::flush_io();
    if let Some(core) = core {
        placement::pin_to(core)?;
    }
    let mut driver = UringDriver::new(&DriverOptions::default())?;
    let devices: Vec<_> = namespaces
        .iter()
        .map(|(_, devices)| devices.clone())
        .collect();
    let service = Dataplane::open(&devices, &mut driver).map_err(|(index, source)| {
        let nsid = namespaces[index].0;
        FuseError::Device { nsid, source }
    })?;
    let counters = service.counters();
    Ok((Core::new(driver, service, poll), counters))
}
