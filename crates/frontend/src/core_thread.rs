//! Cores of a front end: a thread each, with a ring of its own.

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

/// Makes the driver of the calling thread, which stays on `core` from now on if there is one.
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

/// Makes the calling thread one of which memory is not made free by writing to a device, which may be
/// the one that it serves: a block device of ublk, or one over NBD or a file of FUSE. Without the
/// right to it (`CAP_SYS_RESOURCE`) nothing changes.
pub(crate) fn flush_io() {
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

/// Returns the places of a server's threads: its processors, or one that the kernel chooses.
///
/// # Errors
/// A processor that may not be used.
pub(crate) fn places(cores: &[CoreId]) -> Result<Vec<Option<CoreId>>, FrontendError> {
    placement::check_allowed(cores).map_err(|error| FrontendError::Option(error.to_string()))?;
    if cores.is_empty() {
        return Ok(vec![None]);
    }
    Ok(cores.iter().copied().map(Some).collect())
}

/// Passes that one turn makes at most, so that other parts of the core get on.
const PASSES_MAX: usize = 4;

/// Makes passes over the work of a core until one makes no progress. Returns true if there may be
/// more to do, as the last one of the turn made some.
pub(crate) fn passes(mut pass: impl FnMut() -> bool) -> bool {
    (0..PASSES_MAX).all(|_| pass())
}

/// A question whether a thread takes messages: the thread answers by dropping it.
#[derive(Clone, Debug)]
pub struct Ping(
    /// Dropped with it, which the owner of the other end sees.
    #[expect(dead_code, reason = "it is there to be dropped")]
    mpsc::Sender<()>,
);

impl Ping {
    /// Makes a question to any number of threads. [`Pinged::wait`] waits for the answers once the
    /// question itself was dropped.
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
    /// Waits for at most `time`. Returns true if all threads have answered, or have ended.
    #[must_use]
    pub fn wait(self, time: Duration) -> bool {
        self.0.recv_timeout(time) == Err(RecvTimeoutError::Disconnected)
    }
}

/// The cores of a server. `M` is the message to one.
#[derive(Debug)]
pub(crate) struct Cores<M> {
    senders: Vec<MailboxSender<M>>,
    threads: Vec<JoinHandle<()>>,
    counters: Vec<Arc<IoCounters>>,
}

impl<M: Send + 'static> Cores<M> {
    /// No core.
    pub(crate) const fn new() -> Self {
        Self {
            senders: Vec::new(),
            threads: Vec::new(),
            counters: Vec::new(),
        }
    }

    /// Starts the thread of another one, as [`start_core`] does. A ring that breaks ends the process:
    /// the requests of clients would wait for ever, and the next process goes on with them where the
    /// interface can.
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

    /// Starts the thread of another one, which has `sockets` sockets and requests for `devices`: the
    /// service is made with these, and with the namespace of its own operations.
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

    /// The ways to them.
    pub(crate) fn senders(&self) -> &[MailboxSender<M>] {
        &self.senders
    }

    /// Sends each of them a message.
    pub(crate) fn tell(&self, message: impl Fn() -> M) {
        for sender in &self.senders {
            // A few for each core.
            sender.send_always(message());
        }
    }

    /// Returns the counts of requests since the start, by class.
    pub(crate) fn counts(&self) -> PerClass<IoCounts> {
        IoCounters::total(&self.counters)
    }

    /// Returns true if all have ended.
    pub(crate) fn have_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all have ended.
    pub(crate) fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A core that panicked has said so.
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
