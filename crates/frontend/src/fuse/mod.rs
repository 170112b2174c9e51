//! The FUSE front end: each device is a file that any process of a stock Linux kernel can use.
//!
//! [`Attachment`] mounts a directory with one regular file per namespace, `MOUNTPOINT/NSID`, as
//! large as the device. Its *dataplane thread* takes requests from `/dev/fuse`, answers those for
//! names and attributes, submits those for data to the devices, and answers as they complete, in any
//! order.
//!
//! A write that has returned has reached the device: the kernel caches reads, but no writes. A file
//! that is opened with `O_DIRECT` bypasses the cache; its requests are whole blocks, or fail with
//! `EINVAL`. `fsync` is Flush, a write with `O_DSYNC` is durable when it returns, and `fallocate`
//! writes zeroes (`FALLOC_FL_ZERO_RANGE`), which may be deallocated (`FALLOC_FL_PUNCH_HOLE`). Files
//! can be neither made nor removed, and keep their size; a program that truncates what it writes to must
//! be told not to (`dd conv=notrunc`).

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
use crate::{ClassRules, IoCounters, IoCounts, Ping};
use abi::MINOR_COHERENT_BYPASS;
use base::units::CoreId;
use block::Device;
use filesystem::{FileEntry, FileTimes, Files, Handles};
use limits::NAMESPACES_MAX;
use mount::{Connection, Mount, MountOptions};
use reactor::uring::{Options as DriverOptions, UringDriver};
use reactor::{Core, MailboxSender, PollPolicy, placement, start_core};
use rustix::process::{getgid, getuid};
use service::{Dataplane, Message};
use session::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
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
    /// Policy of the dataplane thread while it is idle. With [`PollPolicy::Auto`] it polls for the
    /// answer to a request that is the only one, while no other thread wants its processor.
    pub poll: PollPolicy,
    /// Lets other users than the process's own use the files. A process without privileges needs
    /// `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Refuses writes to all files.
    pub read_only: bool,
    /// Times of the last writes to namespaces, by identifier; that of the start for all others.
    pub modified: BTreeMap<u32, SystemTime>,
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
    /// Set in the end: requests for data are refused, and none is under way.
    drained: AtomicBool,
    /// The dataplane thread cannot carry out requests any more.
    failed: AtomicBool,
    /// In the end, when each file was last written to, in the order of the files.
    modified: Mutex<Vec<SystemTime>>,
}

/// Devices that are files of a mount. Dropping it ends it, also while files are open.
#[derive(Debug)]
pub struct Attachment {
    mount: Mount,
    /// The dataplane thread; `None` after the end.
    dataplane: Option<JoinHandle<()>>,
    sender: MailboxSender<Message>,
    shared: Arc<SharedMount>,
    /// It ended while files were open, or gave requests up.
    forced: bool,
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
        let shared = Arc::new(SharedMount::default());
        let mount_options = MountOptions {
            allow_other: options.allow_other,
            read_only: options.read_only,
        };
        let (mount, connection) = Mount::new(&options.mountpoint, mount_options)?;
        let session = Session::begin(connection).map_err(FuseError::Session)?;
        let (state, connection) = (Arc::clone(&shared), mount.connection());
        let options = options.clone();
        let open = move || open_core(&namespaces, session, &options, state);
        let ended = ended(Arc::clone(&shared), connection);
        let started = start_core("fuse-dataplane", open, ended, FuseError::Thread)?;
        Ok(Self {
            mount,
            dataplane: Some(started.thread),
            sender: started.sender,
            shared,
            forced: false,
            counters: started.opened,
        })
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

    /// Returns when each file was last written to, after the end; nothing before it.
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

    /// Returns true if the files are gone: the attachment ended, or another process unmounted them.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let dataplane = self.dataplane.as_ref();
        dataplane.is_none_or(JoinHandle::is_finished)
    }

    /// Unmounts and ends the thread, after the requests under way. Does nothing the second time.
    ///
    /// # Errors
    /// [`FuseError::InUse`] while files are open: then everything goes on as before.
    /// [`FuseError::Unmount`] where the kernel refuses for another reason.
    pub fn detach(&mut self) -> Result<(), FuseError> {
        self.mount.unmount(self.open_files())?;
        // Those of a copy of the mount may be under way.
        self.drain();
        self.end_thread();
        Ok(())
    }

    /// Ends the attachment also while files are open. Data that the kernel holds for them is written
    /// back first, that of file systems over loop devices included; then requests in flight are
    /// finished, and later ones fail. Each takes at most [`DRAIN_TIME`].
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

    /// Asks its thread whether it takes messages.
    pub fn ping(&self, ping: &Ping) {
        self.sender.send_always(Message::Ping(ping.clone()));
    }

    /// Returns true if it ended while files were open, or gave requests up.
    #[must_use]
    pub const fn was_forced(&self) -> bool {
        self.forced
    }

    /// Has requests for data refused, and waits until none is under way, for at most [`DRAIN_TIME`].
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

    /// Ends the dataplane thread, and with it the connection to the kernel: files that are open in a
    /// copy of the mount, which another mount namespace may have, are dead.
    fn end_thread(&mut self) {
        if let Some(dataplane) = self.dataplane.take() {
            self.sender.send_always(Message::End);
            // It cannot panic on anything that a device does; if it did, it has said so.
            let _ = dataplane.join();
        }
    }
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

/// The end of the dataplane thread: with an error if its ring broke.
fn ended(shared: Arc<SharedMount>, connection: Connection) -> impl FnOnce(io::Result<()>) {
    move |result| {
        if let Err(error) = result {
            tracing::error!("io_uring failed: {error}; the files of the mount no longer work");
            shared.failed.store(true, Ordering::Relaxed);
            // Requests that are not read have no other answer.
            connection.abort();
        }
    }
}

/// The core of the dataplane thread, and its counters.
type OpenCore = (Core<UringDriver, Dataplane>, Vec<Arc<IoCounters>>);

fn open_core(
    namespaces: &[(u32, PerClass<Arc<dyn Device>>)],
    session: Session,
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
    let service = Dataplane::open(session, names, namespaces, options.poll, &mut driver)?;
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
