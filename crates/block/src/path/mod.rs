//! I/O paths: how many threads send requests to a fast device. `[Yu §4]`
//!
//! [`PathDevice`] is a layer over any device, local or remote. Each thread that opens it becomes a
//! submitter with its own channel to the device below. By the rules of [`switch::path`], a request
//! uses that channel at once, or enters a queue shared by all threads; the runner of a queue sends
//! for all of them over its own channel. A dispatcher thread, if the path needs one, runs queues
//! without a runner.

mod command;
mod dispatcher;
mod done;
mod inbox;
#[cfg(test)]
#[cfg(loom)]
pub(crate) mod loom_tests;
mod queue;
mod runner;
mod stats;
mod submitter;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use dispatcher::Dispatcher;
pub use stats::PathSnapshot;

use crate::device::{CacheLife, Capabilities, Channel, Device, DeviceError, DeviceTime, Geometry};
use crate::limits::{DISPATCHER_SOCKETS, SUBMITTER_DEPTH, SUBMITTER_DEPTH_MAX};
use queue::{Bell, SharedQueue};
use reactor::uring::{Options, UringDriver};
use reactor::{Core, Driver, PollPolicy, start_core};
use runner::{Own, Runner};
use stats::PathStats;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use submitter::SubmitterChannel;
use switch::path::{Path, PathRules, QueueKind};

/// A device behind a path.
#[derive(Clone)]
pub struct PathDevice {
    inner: Arc<Inner>,
    awaited: bool,
    only_in_calls: bool,
    depth: u32,
    bytes: u32,
}

/// State shared by all threads of a path.
#[derive(Debug)]
struct Inner {
    below: Arc<dyn Device>,
    path: Path,
    rules: PathRules,
    queues: Arc<[SharedQueue]>,
    bell: Arc<Bell>,
    stats: Arc<PathStats>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl PathDevice {
    /// Creates the device `below` with `path`, and starts a dispatcher thread if the path needs
    /// one.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for rules out of range, or if the thread cannot be started; the
    /// error of the device if the dispatcher cannot open it.
    pub fn start(
        below: Arc<dyn Device>,
        path: Path,
        rules: PathRules,
    ) -> Result<Self, DeviceError> {
        let device = Self::unattended(below, path, rules)?;
        if !device.needs_dispatcher() {
            return Ok(device);
        }
        let parts = device.inner.parts();
        let open = move || {
            let mut driver = UringDriver::new(&dispatcher_options())
                .map_err(|error| DeviceError::Invalid(format!("io_uring: {error}")))?;
            let dispatcher = parts.open(&mut driver)?;
            Ok((Core::new(driver, dispatcher, PollPolicy::Never), ()))
        };
        // A dispatcher whose ring fails leaves its role to submitters when it is dropped.
        let ended = drop;
        let refused = |error| DeviceError::Invalid(format!("cannot start a dispatcher: {error}"));
        let started = start_core(format!("path/{path}"), open, ended, refused)?;
        *device.inner.thread() = Some(started.thread);
        Ok(device)
    }

    /// Creates the device `below` with `path`; the caller runs its dispatcher, if it
    /// [needs](Self::needs_dispatcher) one.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for rules out of range.
    pub fn unattended(
        below: Arc<dyn Device>,
        path: Path,
        rules: PathRules,
    ) -> Result<Self, DeviceError> {
        rules
            .validate()
            .map_err(|error| DeviceError::Invalid(error.to_string()))?;
        let rules = match path {
            Path::Interrupt | Path::Poll => rules.of_disks(),
            _ => rules,
        };
        let (bell, stats) = (Arc::new(Bell::default()), Arc::new(PathStats::new()));
        let queues = path.queues().iter().enumerate();
        let queues = queues.map(|(index, &kind)| {
            SharedQueue::new(kind, index, rules, Arc::clone(&bell), Arc::clone(&stats))
        });
        let bytes = below.capabilities().max_transfer_bytes;
        Ok(Self {
            inner: Arc::new(Inner {
                queues: queues.collect(),
                below,
                path,
                rules,
                bell,
                stats,
                thread: Mutex::new(None),
            }),
            awaited: true,
            only_in_calls: false,
            depth: SUBMITTER_DEPTH,
            bytes,
        })
    }

    /// Returns true if this path uses a dispatcher.
    #[must_use]
    pub fn needs_dispatcher(&self) -> bool {
        let kinds = self.inner.path.queues().iter();
        kinds.into_iter().any(|kind| *kind != QueueKind::Temporal)
    }

    /// Opens the device for its dispatcher, on the calling core.
    ///
    /// # Errors
    /// The error of the device below.
    pub fn dispatcher(&self, driver: &mut dyn Driver) -> Result<Dispatcher, DeviceError> {
        self.inner.parts().open(driver)
    }

    /// The same device for writes that no thread and no commit waits for, such as the write-back of
    /// a cache.
    #[must_use]
    pub fn unawaited(mut self) -> Self {
        self.awaited = false;
        self
    }

    /// The same device for threads that run their channels only while they have outstanding
    /// requests, as blocking calls do. Such a thread takes no batch after its last request
    /// completes, and that completion is [reaped](Channel::reap) only when it has nothing in flight
    /// for other threads.
    #[must_use]
    pub fn in_calls(mut self) -> Self {
        self.only_in_calls = true;
        self
    }

    /// The same device; channels opened from it hold `depth` requests (1 to
    /// [`SUBMITTER_DEPTH_MAX`]) of at most `bytes` bytes (one block up to the device's limit).
    #[must_use]
    pub fn with_requests(mut self, depth: u32, bytes: u32) -> Self {
        let block = self.inner.below.geometry().block_bytes;
        let most = self.inner.below.capabilities().max_transfer_bytes;
        self.bytes = bytes.clamp(block, most).next_multiple_of(block);
        self.depth = depth.clamp(1, SUBMITTER_DEPTH_MAX);
        self
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> Path {
        self.inner.path
    }

    /// Reads the counters.
    #[must_use]
    pub fn snapshot(&self) -> PathSnapshot {
        self.inner.stats.snapshot()
    }
}

/// The parts of a dispatcher.
struct Parts {
    below: Arc<dyn Device>,
    path: Path,
    queues: Arc<[SharedQueue]>,
    bell: Arc<Bell>,
    stats: Arc<PathStats>,
}

impl Parts {
    fn open(self, driver: &mut dyn Driver) -> Result<Dispatcher, DeviceError> {
        let queues = Arc::clone(&self.queues);
        let runner = Runner::open(self.below, driver, None, queues, self.stats)?;
        self.bell.sleeper.serve(driver.waker());
        Ok(Dispatcher::new(
            self.bell,
            self.queues,
            runner,
            self.path.polls(),
        ))
    }
}

impl Inner {
    fn parts(&self) -> Parts {
        Parts {
            below: Arc::clone(&self.below),
            path: self.path,
            queues: Arc::clone(&self.queues),
            bell: Arc::clone(&self.bell),
            stats: Arc::clone(&self.stats),
        }
    }

    fn runner(&self, driver: &mut dyn Driver, own: Own) -> Result<Runner, DeviceError> {
        let (device, queues) = (Arc::clone(&self.below), Arc::clone(&self.queues));
        Runner::open(device, driver, Some(own), queues, Arc::clone(&self.stats))
    }

    fn thread(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.bell.end();
        if let Some(thread) = self.thread().take() {
            // It does not panic on any result of the device; if it did, the panic was reported.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for PathDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} by {}", self.inner.below, self.inner.path)
    }
}

impl Device for PathDevice {
    fn geometry(&self) -> Geometry {
        self.inner.below.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_transfer_bytes: self.bytes,
            extents_max: 0,
            ..self.inner.below.capabilities()
        }
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        SubmitterChannel::open(self, driver).map(|channel| Box::new(channel) as _)
    }

    fn supports(&self, operation: crate::Operation) -> bool {
        self.inner.below.supports(operation)
    }

    fn cache_losses(&self) -> u32 {
        self.inner.below.cache_losses()
    }

    fn cache_life(&self) -> CacheLife {
        self.inner.below.cache_life()
    }

    fn inherit_writes(&self) {
        self.inner.below.inherit_writes();
    }

    fn device_time(&self) -> Option<DeviceTime> {
        self.inner.below.device_time()
    }

    /// As of the device below. The dispatcher reopens its channel before it sends anything.
    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        self.inner.below.resize(blocks)?;
        self.inner.bell.note_resize();
        Ok(())
    }

    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.below.erase(offset, len)
    }
}

/// Returns the options of a dispatcher's driver: requests bring their own memory.
fn dispatcher_options() -> Options {
    Options {
        sockets: DISPATCHER_SOCKETS,
        file_operations: 2 * crate::limits::BATCH_REQUESTS_MAX,
        ..Options::default()
    }
}
