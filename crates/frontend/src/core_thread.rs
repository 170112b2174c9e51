//! Cores of a front end: one thread each, with its own ring.

use crate::device_io::connect;
use crate::error::FrontendError;
use crate::limits::CORE_REQUESTS_MAX;
use crate::{DeviceIo, IoCounters, IoCounts};
use base::units::CoreId;
use block::Device;
use reactor::uring::{Options as DriverOptions, UringDriver};
use reactor::{
    Core, Driver as _, MailboxSender, OpNamespace, PollPolicy, Service, placement, start_core,
};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;
use switch::PerClass;

/// Creates the driver of the calling thread, which is pinned to `core` if there is one.
pub(crate) fn driver(
    core: Option<CoreId>,
    options: &DriverOptions,
) -> Result<UringDriver, FrontendError> {
    flush_io();
    if let Some(core) = core {
        placement::pin_to(core).map_err(|error| FrontendError::Option(error.to_string()))?;
    }
    UringDriver::new(options).map_err(|error| FrontendError::Option(format!("io_uring: {error}")))
}

/// Marks the calling thread so that its memory allocations never wait for a write to a block
/// device, which may be the one it serves (ublk, NBD, or a file of FUSE). Without
/// `CAP_SYS_RESOURCE` nothing changes.
pub(crate) fn flush_io() {
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

/// Returns the placement of a server's threads: the given processors, or one chosen by the kernel
/// (`None`).
///
/// # Errors
/// A processor that the process may not use.
pub(crate) fn places(cores: &[CoreId]) -> Result<Vec<Option<CoreId>>, FrontendError> {
    placement::check_allowed(cores).map_err(|error| FrontendError::Option(error.to_string()))?;
    if cores.is_empty() {
        return Ok(vec![None]);
    }
    Ok(cores.iter().copied().map(Some).collect())
}

/// Maximum passes per turn, so that the other work of the core gets its share.
const PASSES_MAX: usize = 4;

/// Runs passes over a core's work until one makes no progress, or [`PASSES_MAX`] are done. Returns
/// true if the last pass made progress, so that more work may remain.
pub(crate) fn passes(mut pass: impl FnMut() -> bool) -> bool {
    (0..PASSES_MAX).all(|_| pass())
}

/// A probe whether a thread still handles messages: the thread replies by dropping it.
#[derive(Clone, Debug)]
pub struct Ping(
    /// Dropped with the probe, which the other end detects.
    #[expect(dead_code, reason = "it is there to be dropped")]
    mpsc::Sender<()>,
);

impl Ping {
    /// Creates a probe for any number of threads. [`Pinged::wait`] waits for the replies once the
    /// probe itself was dropped.
    #[must_use]
    pub fn new() -> (Self, Pinged) {
        let (sender, receiver) = mpsc::channel();
        (Self(sender), Pinged(receiver))
    }
}

/// The other end of a [`Ping`].
#[derive(Debug)]
pub struct Pinged(mpsc::Receiver<()>);

impl Pinged {
    /// Waits for at most `time`. Returns true if all threads have replied or ended.
    #[must_use]
    pub fn wait(self, time: Duration) -> bool {
        self.0.recv_timeout(time) == Err(RecvTimeoutError::Disconnected)
    }
}

/// The cores of a server. `M` is the message type.
#[derive(Debug)]
pub(crate) struct Cores<M> {
    senders: Vec<MailboxSender<M>>,
    threads: Vec<JoinHandle<()>>,
    counters: Vec<Arc<IoCounters>>,
}

impl<M: Send + 'static> Cores<M> {
    /// Creates an empty list.
    pub(crate) const fn new() -> Self {
        Self {
            senders: Vec::new(),
            threads: Vec::new(),
            counters: Vec::new(),
        }
    }

    /// Starts the thread of one more core, as [`start_core`] does. A broken ring ends the process:
    /// clients' requests would otherwise wait for ever, and the next process continues them where
    /// the interface allows it.
    pub(crate) fn start<S, E>(
        &mut self,
        name: &'static str,
        open: impl FnOnce() -> Result<(Core<UringDriver, S>, Arc<IoCounters>), E> + Send + 'static,
    ) -> Result<(), E>
    where
        S: Service<Message = M> + 'static,
        E: From<FrontendError> + Send + 'static,
    {
        let ended = move |result| {
            if let Err(error) = result {
                tracing::error!("io_uring of a thread of {name} failed: {error}");
                std::process::abort();
            }
        };
        let refused = |error| FrontendError::thread(error).into();
        let started = start_core(name, open, ended, refused)?;
        self.threads.push(started.thread);
        self.senders.push(started.sender);
        self.counters.push(started.opened);
        Ok(())
    }

    /// Starts the thread of one more core, with `sockets` sockets and requests for `devices`. The
    /// service is created with these and with its own operation namespace.
    pub(crate) fn serve<S, T>(
        &mut self,
        name: &'static str,
        (core, sockets, poll): (Option<CoreId>, usize, PollPolicy),
        devices: &PerClass<Arc<dyn Device>>,
        service: impl FnOnce(DeviceIo<T>, OpNamespace) -> S + Send + 'static,
    ) -> Result<(), FrontendError>
    where
        S: Service<Message = M> + 'static,
    {
        let devices = devices.clone();
        let open = move || -> Result<_, FrontendError> {
            let options = DriverOptions {
                sockets,
                ..DriverOptions::default()
            };
            let mut driver = driver(core, &options)?;
            let mut io = DeviceIo::open(&devices, CORE_REQUESTS_MAX, &mut driver)?;
            connect([&mut io], &mut driver).map_err(|(_, error)| error)?;
            let counters = Arc::clone(io.counters());
            let service = service(io, driver.op_namespace());
            Ok((Core::new(driver, service, poll), counters))
        };
        self.start(name, open)
    }

    /// The senders to the cores' mailboxes.
    pub(crate) fn senders(&self) -> &[MailboxSender<M>] {
        &self.senders
    }

    /// Sends a message to each core.
    pub(crate) fn tell(&self, message: impl Fn() -> M) {
        for sender in &self.senders {
            // Never blocks: each core gets few messages.
            sender.send_always(message());
        }
    }

    /// Returns the request counts since the start, by class.
    pub(crate) fn counts(&self) -> PerClass<IoCounts> {
        IoCounters::total(&self.counters)
    }

    /// Returns true if all cores have ended.
    pub(crate) fn have_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all cores have ended.
    pub(crate) fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic has already been logged.
            let _ = thread.join();
        }
        self.senders.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_answered_when_all_that_had_it_let_it_go() {
        let (ping, pinged) = Ping::new();
        let held = ping.clone();
        drop(ping);
        assert!(!pinged.wait(Duration::from_millis(1)));
        let (ping, pinged) = Ping::new();
        drop(held);
        std::thread::spawn(move || drop(ping));
        assert!(pinged.wait(Duration::from_secs(60)));
    }

    #[test]
    fn the_thread_of_a_core_waits_for_no_writes_to_get_memory() {
        let of_core = || {
            driver(None, &DriverOptions::default()).expect("io_uring works here");
            rustix::process::is_io_flusher()
        };
        let core = std::thread::spawn(of_core).join();
        match core.expect("it does not panic") {
            Ok(has_it) => assert!(has_it),
            Err(error) => assert_eq!(error, rustix::io::Errno::PERM),
        }
    }
}
