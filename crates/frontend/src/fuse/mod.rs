//! The FUSE front end: each device is a file that any process of a stock Linux kernel can use.
//!
//! [`Attachment`] mounts a directory with one file per namespace, `MOUNTPOINT/NSID`. Its *dataplane
//! thread* reads requests from `/dev/fuse`, submits data requests to the devices, and replies as
//! they complete, in any order. The kernel caches reads but not writes: a completed write has
//! reached the device. A file opened with `O_DIRECT` bypasses the cache; its requests are whole
//! blocks, or fail with `EINVAL`. `fsync` is Flush, a write with `O_DSYNC` is durable on
//! completion, and `fallocate` writes zeroes (`FALLOC_FL_ZERO_RANGE`), with deallocation allowed
//! for `FALLOC_FL_PUNCH_HOLE`. Files have the size of their device and cannot be created, removed
//! or resized: a program must not truncate its output (`dd conv=notrunc`).

mod abi;
mod error;
mod filesystem;
mod gathered;
mod job;
pub mod limits;
mod mount;
mod service;
mod session;
#[cfg(test)]
mod tests;
mod thread_classes;
mod write_back;
mod write_order;

pub use crate::class_choice::ClassChoice;
pub use error::FuseError;

use crate::core_thread;
use crate::limits::DRAIN_TIME;
use crate::served_size::served;
use crate::{ClassRules, Handed, IoCounters, IoCounts, Ping};
use abi::MINOR_COHERENT_BYPASS;
use base::units::CoreId;
use block::Device;
use filesystem::{FileEntry, FileTimes, Files, Handles};
use limits::NAMESPACES_MAX;
use mount::{Connection, Mount, MountOptions};
use reactor::uring::{Options as DriverOptions, UringDriver};
use reactor::{Core, MailboxSender, PollPolicy, placement, start_core};
use rustix::process::{getgid, getuid};
use serde::{Deserialize, Serialize};
use service::{Dataplane, Message};
use session::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use switch::{Class, PerClass};
use thread_classes::ThreadClasses;

/// Options of an attachment.
#[derive(Clone, Debug)]
pub struct Options {
    /// An existing directory, which becomes the mount point.
    pub mountpoint: PathBuf,
    /// The rule that gives a request its class.
    pub class: ClassChoice,
    /// Rules with precedence over `class`.
    pub rules: ClassRules,
    /// Processor of the dataplane thread; `None`: the kernel chooses.
    pub core: Option<CoreId>,
    /// Idle policy of the dataplane thread. With [`PollPolicy::Auto`] it polls for the completion
    /// of a single outstanding request while no other thread needs its processor.
    pub poll: PollPolicy,
    /// Allows users other than the process's own to access the files. An unprivileged process needs
    /// `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Refuses writes to all files.
    pub read_only: bool,
    /// Last write times by namespace identifier; the start time for all other namespaces.
    pub modified: BTreeMap<u32, SystemTime>,
}

impl Options {
    /// Default options for a mount point: default class, any processor, own user, writable.
    #[must_use]
    pub fn new(mountpoint: impl Into<PathBuf>) -> Self {
        Self {
            mountpoint: mountpoint.into(),
            class: ClassChoice::Fixed(Class::DEFAULT),
            rules: ClassRules::default(),
            core: None,
            poll: PollPolicy::default(),
            allow_other: false,
            read_only: false,
            modified: BTreeMap::new(),
        }
    }
}

/// State that the threads of an attachment share.
#[derive(Debug, Default)]
struct SharedMount {
    /// Number of open files.
    open: AtomicUsize,
    /// Set while detaching: data requests are refused, and none is outstanding.
    drained: AtomicBool,
    /// The dataplane thread can no longer execute requests.
    failed: AtomicBool,
    /// Last write time of each file, in the order of the files; set while detaching.
    modified: Mutex<Vec<SystemTime>>,
}

/// A mount that a successor continues. It must have the same files and options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountDescription {
    /// The absolute mount point.
    path: PathBuf,
    /// `fusermount3` has made it.
    by_helper: bool,
    /// Device number of the mount, major and minor; `None` if unknown.
    device: Option<(u32, u32)>,
    /// The minor version of the kernel's protocol.
    minor: u32,
    nsids: Vec<u32>,
    allow_other: bool,
    read_only: bool,
}

/// A mount of a predecessor, with its connection to the kernel.
pub type TakenMount = (MountDescription, OwnedFd);

/// Devices attached as files of a mount. Dropping it ends it, even while files are open.
#[derive(Debug)]
pub struct Attachment {
    mount: Mount,
    description: MountDescription,
    /// The connection to the kernel, which ends with the dataplane thread.
    connection: Weak<File>,
    /// The dataplane thread; `None` once it has ended.
    dataplane: Option<JoinHandle<()>>,
    sender: MailboxSender<Message>,
    shared: Arc<SharedMount>,
    /// The attachment ended while files were open, or cancelled requests.
    forced: bool,
    /// Counters of each file, all from the same thread.
    counters: Vec<Arc<IoCounters>>,
}

impl Attachment {
    /// Attaches devices as files: for each namespace identifier, the paths to its device by class.
    /// Returns once the files can be used.
    ///
    /// # Errors
    /// [`FuseError`], which includes the remedy. Nothing is left mounted then.
    pub fn start(
        namespaces: Vec<(u32, PerClass<Arc<dyn Device>>)>,
        options: &Options,
    ) -> Result<Self, FuseError> {
        Self::prepare(namespaces, options, None)
    }

    /// The same; a mount that was `taken` over is not served before [`resume`](Self::resume).
    ///
    /// # Errors
    /// As [`start`](Self::start), and a mount with other files or options.
    pub fn prepare(
        namespaces: Vec<(u32, PerClass<Arc<dyn Device>>)>,
        options: &Options,
        taken: Option<TakenMount>,
    ) -> Result<Self, FuseError> {
        check_namespaces(&namespaces)?;
        let shared = Arc::new(SharedMount::default());
        let mount_options = MountOptions {
            allow_other: options.allow_other,
            read_only: options.read_only,
        };
        let is_taken_over = taken.is_some();
        let (mount, session) = match taken {
            None => {
                let (mount, connection) = Mount::new(&options.mountpoint, mount_options)?;
                let session = Session::begin(connection).map_err(FuseError::Session)?;
                (mount, session)
            }
            Some((left, connection)) => {
                let session = Session::taken_over(connection, left.minor);
                let session = session.map_err(FuseError::Session)?;
                let mut mount = Mount::taken_over(left.path.clone(), left.by_helper, left.device);
                // Until it is served here, the predecessor removes it.
                mount.leave();
                if describe(&mount, &session, &namespaces, options) != left {
                    return Err(FuseError::Different(left.path));
                }
                (mount, session)
            }
        };
        let description = describe(&mount, &session, &namespaces, options);
        let file = Arc::downgrade(session.file());
        let (state, connection) = (Arc::clone(&shared), mount.connection());
        let options = options.clone();
        let session = (session, is_taken_over);
        let open = move || open_core(&namespaces, session, &options, state);
        let ended = ended(Arc::clone(&shared), connection);
        let started = start_core("fuse-dataplane", open, ended, FuseError::Thread)?;
        Ok(Self {
            mount,
            description,
            connection: file,
            dataplane: Some(started.thread),
            sender: started.sender,
            shared,
            forced: false,
            counters: started.opened,
        })
    }

    /// Absolute path of the directory with the files.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        self.mount.path()
    }

    /// Returns the number of open files.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Returns the request counts since the start, by class. A write of part of a block counts as a
    /// read and a write.
    #[must_use]
    pub fn counts(&self) -> PerClass<IoCounts> {
        IoCounters::total(&self.counters)
    }

    /// Returns the last write time of each file once the attachment has ended; empty before.
    #[must_use]
    pub fn modified(&self) -> Vec<SystemTime> {
        let modified = self.shared.modified.lock();
        modified.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if the ring of the dataplane thread broke: all requests fail.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Returns true if the attachment has ended, or another process has unmounted it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let dataplane = self.dataplane.as_ref();
        dataplane.is_none_or(JoinHandle::is_finished)
    }

    /// Waits for outstanding requests, unmounts, and ends the thread. Does nothing if already
    /// detached.
    ///
    /// # Errors
    /// [`FuseError::InUse`] while files are open; the attachment then continues.
    /// [`FuseError::Unmount`] if the kernel refuses for another reason.
    pub fn detach(&mut self) -> Result<(), FuseError> {
        self.mount.unmount(self.open_files())?;
        // Requests through a copy of the mount may be outstanding.
        self.drain();
        self.end_thread();
        Ok(())
    }

    /// Ends the attachment even while files are open. First writes back data that the kernel holds
    /// for the files, including that of file systems over loop devices. Then outstanding requests
    /// finish, and later ones fail. Each step takes at most [`DRAIN_TIME`].
    pub fn detach_forced(&mut self) {
        if let Err(error) = self.detach() {
            tracing::warn!("{error}; detached by force");
            self.forced = true;
            if !self.has_ended() {
                write_back::write_back(self.mount.path(), DRAIN_TIME.into());
            }
            self.drain();
            self.mount.abort();
            self.end_thread();
        }
    }

    /// Returns a description and another descriptor of the connection, for a successor.
    ///
    /// # Errors
    /// It has ended, or the process is out of descriptors.
    pub fn share_mount(&self) -> io::Result<TakenMount> {
        let file = self.connection.upgrade();
        let file = file.ok_or_else(|| io::Error::other("it has ended"))?;
        Ok((self.description.clone(), file.try_clone()?.into()))
    }

    /// Stops reading requests, which then wait in the kernel, and returns the state of the open files
    /// once no request is outstanding and all writes are flushed.
    ///
    /// # Errors
    /// The reason why it continues: something has not finished by `by`.
    pub fn pause(&mut self, by: Instant) -> Result<Handed, String> {
        let (sender, paused) = mpsc::channel();
        self.sender.send_always(Message::Pause(sender));
        let left = by.saturating_duration_since(Instant::now());
        match paused.recv_timeout(left) {
            Ok(files) => Ok(Handed {
                state: serde_json::json!(files),
                ..Handed::default()
            }),
            Err(_) => {
                self.sender.send_always(Message::Resume(None));
                Err("requests did not finish in time".to_owned())
            }
        }
    }

    /// Serves the files with the state of a [pause](Self::pause), of this process or of a predecessor.
    ///
    /// # Errors
    /// A state that is not one.
    pub fn resume(&mut self, mut handed: Handed) -> Result<(), String> {
        let files = handed.read()?;
        self.mount.own();
        self.sender.send_always(Message::Resume(Some(files)));
        Ok(())
    }

    /// Ends after a [pause](Self::pause), and leaves the mount to the successor.
    pub fn leave(&mut self) {
        self.mount.leave();
        self.end_thread();
    }

    /// Sends a probe to the thread.
    pub fn ping(&self, ping: &Ping) {
        self.sender.send_always(Message::Ping(ping.clone()));
    }

    /// Returns true if the attachment ended while files were open, or cancelled requests.
    #[must_use]
    pub const fn was_forced(&self) -> bool {
        self.forced
    }

    /// Makes the thread refuse data requests, and waits until none is outstanding, at most
    /// [`DRAIN_TIME`].
    fn drain(&mut self) {
        if self.has_ended() {
            return;
        }
        self.sender.send_always(Message::Shut);
        let until = Instant::now() + Duration::from(DRAIN_TIME);
        while !self.shared.drained.load(Ordering::Relaxed) && !self.has_ended() {
            if Instant::now() >= until {
                tracing::warn!("requests did not finish within the drain time; they are cancelled");
                self.forced = true;
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the dataplane thread, and thereby the connection to the kernel. Files that are open in
    /// a copy of the mount, which another mount namespace may have, fail from then on.
    fn end_thread(&mut self) {
        if let Some(dataplane) = self.dataplane.take() {
            self.sender.send_always(Message::End);
            // It cannot panic on anything a device does; a panic has already been logged.
            let _ = dataplane.join();
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.detach_forced();
    }
}

fn describe(
    mount: &Mount,
    session: &Session,
    namespaces: &[(u32, PerClass<Arc<dyn Device>>)],
    options: &Options,
) -> MountDescription {
    let (by_helper, device) = mount.identity();
    MountDescription {
        path: mount.path().to_owned(),
        by_helper,
        device,
        minor: session.minor(),
        nsids: namespaces.iter().map(|(nsid, _)| *nsid).collect(),
        allow_other: options.allow_other,
        read_only: options.read_only,
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
            "{count} namespaces exceed the limit of {NAMESPACES_MAX} per mount; use several mounts"
        ));
    }
    let mut seen = BTreeSet::new();
    match namespaces.iter().find(|(nsid, _)| !seen.insert(*nsid)) {
        Some((nsid, _)) => wrong(format!(
            "namespace {nsid} is given twice; use it once, or use a second mount point"
        )),
        None => Ok(()),
    }
}

/// Handles the end of the dataplane thread: with an error if its ring broke.
fn ended(shared: Arc<SharedMount>, connection: Connection) -> impl FnOnce(io::Result<()>) {
    move |result| {
        if let Err(error) = result {
            tracing::error!("io_uring failed: {error}; the files of the mount no longer work");
            shared.failed.store(true, Ordering::Relaxed);
            // Requests that are no longer read get no other reply.
            connection.abort();
        }
    }
}

/// The core of the dataplane thread, and its counters.
type OpenCore = (Core<UringDriver, Dataplane>, Vec<Arc<IoCounters>>);

fn open_core(
    namespaces: &[(u32, PerClass<Arc<dyn Device>>)],
    (session, is_taken_over): (Session, bool),
    options: &Options,
    shared: Arc<SharedMount>,
) -> Result<OpenCore, FuseError> {
    core_thread::flush_io();
    if let Some(core) = options.core {
        placement::pin_to(core)?;
    }
    let names = Files {
        entries: entries(namespaces, options),
        began: FileTimes::new(None).modified,
        shared,
        under_way: Rc::default(),
        shut: false,
        handles: Handles::default(),
        class: match options.class {
            ClassChoice::Fixed(class) if options.rules.is_empty() => Some(class),
            _ => None,
        },
        threads: ThreadClasses::new(options.class, options.rules.clone()),
        mode: if options.allow_other { 0o666 } else { 0o600 },
        owner: (getuid().as_raw(), getgid().as_raw()),
        bypass: session.minor() >= MINOR_COHERENT_BYPASS,
    };
    let mut driver = UringDriver::new(&DriverOptions::default())?;
    let how = (options.poll, is_taken_over);
    let service = Dataplane::open(session, names, namespaces, how, &mut driver)?;
    let counters = service.counters();
    Ok((Core::new(driver, service, options.poll), counters))
}

/// The files of the namespaces.
fn entries(namespaces: &[(u32, PerClass<Arc<dyn Device>>)], options: &Options) -> Vec<FileEntry> {
    let entries = namespaces.iter().map(|(nsid, devices)| {
        let device = Arc::clone(&devices[Class::DEFAULT]);
        FileEntry {
            name: nsid.to_string(),
            read_only: options.read_only || device.capabilities().read_only,
            size: served(&*device).bytes(),
            times: FileTimes::new(options.modified.get(nsid).copied()),
            device,
        }
    });
    entries.collect()
}
