//! A target on the cores of this machine, with a thread, a driver and a poll group on each.
//!
//! Only this file depends on the kernel's driver: a simulator runs [`PollGroup`]s on its own.

use crate::authentication::jobs::AuthenticationJob;
use crate::error::TargetError;
use crate::limits::Limits;
use crate::message::Message;
use crate::reservation::executor;
use crate::service::PollGroup;
use crate::target::Target;
use crate::target::listeners::{once_free, prepare_tls, refused};
use crate::target::tenants::{self, Watch};
use crate::tls::{Listener, OpenListener, TlsMode};
use base::units::CoreId;
use reactor::uring::{Options as DriverOptions, UringDriver};
use reactor::{
    BufferClass, Core, Driver, MailboxSender, PollPolicy, SocketOptions, placement, priority,
};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use switch::Knobs;
use wire::tcp::limits::ADMIN_IN_CAPSULE_BYTES;

base::with_defaults! {
    /// Options of a target on this machine.
    #[derive(Clone, Debug)]
    pub struct TargetOptions {
        /// Addresses to listen on.
        pub listen: Vec<Listener> = vec![
            SocketAddr::from(([127, 0, 0, 1], wire::tcp::limits::IO_PORT)).into(),
        ],
        /// The listeners come from another process ([`Target::take_over`]); until then none accepts.
        pub taken_over: bool = false,
        /// The cores to use, with one thread on each; their number is that of the target. The first
        /// one accepts connections for all cores, and has their admin queues.
        pub cores: Vec<CoreId> = vec![CoreId(0)],
        /// True if the operator chose these cores: all of them are in use unless the knob
        /// `target_threads` sets another number. False: the number in use follows the load.
        pub named: bool = true,
        /// Pins each thread to its core.
        pub pin: bool = true,
        /// Idle polling of a core; replaced by the knob `polling` once knobs are set.
        pub poll: PollPolicy = PollPolicy::Auto,
        /// Socket options of connections; the time-outs for silent peers are in [`Limits`].
        pub socket: SocketOptions = SocketOptions::default(),
        /// Initial knobs, set as by [`Target::set_knobs`]; `None` keeps the target's knobs.
        pub knobs: Option<Knobs> = None,
        /// Payload buffers of each core, smallest first; the largest must hold a whole transfer.
        /// Empty: sizes derived from the limits.
        pub buffers: Vec<BufferClass> = Vec::new(),
    }
}

/// A running target on the cores of this machine.
#[derive(Debug)]
pub struct RunningTarget {
    /// The target.
    pub handle: Arc<Target>,
    /// Addresses that the target listens on.
    pub addresses: Vec<SocketAddr>,
    cores: CoreThreads,
    /// Ends the thread that checks tenants when dropped.
    _watch: Watch,
}

/// Report of a core's thread once it is set up.
type Ready = Result<(MailboxSender<Message>, Vec<SocketAddr>), TargetError>;

impl RunningTarget {
    /// Starts a target on this machine. It accepts connections when this returns.
    ///
    /// # Errors
    /// [`TargetError::Listen`], [`TargetError::Core`], or a device that cannot be opened.
    pub fn start(target: Arc<Target>, options: &TargetOptions) -> Result<Self, TargetError> {
        if options.cores.len() != target.cores {
            let (asked, made) = (options.cores.len(), target.cores);
            let reason = format!("the target was created for {made} cores, but {asked} are given");
            return Err(TargetError::Invalid(reason));
        }
        let largest = target.limits().transfer_bytes.max(ADMIN_IN_CAPSULE_BYTES) as usize;
        if options
            .buffers
            .last()
            .is_some_and(|class| class.bytes < largest)
        {
            let reason = format!("the largest buffer size must be at least {largest} bytes");
            return Err(TargetError::Invalid(reason));
        }
        target.shared.threads.set_named(options.named);
        if options.listen.iter().any(|it| it.tls != TlsMode::Off) {
            prepare_tls()?;
        }
        let to_thread = AuthenticationJob::leave_to_thread;
        let _ = target.shared.runs_jobs.set(to_thread);
        executor::start(&target.shared)?;
        if let Some(knobs) = options.knobs {
            target.set_knobs(knobs)?;
        }
        let mut running = Self {
            _watch: tenants::start(&target),
            handle: target,
            addresses: Vec::new(),
            cores: CoreThreads::new(),
        };
        let mut senders = Vec::new();
        for (index, &core) in options.cores.iter().enumerate() {
            let (ready, report) = mpsc::channel();
            let (target, options) = (Arc::clone(&running.handle), options.clone());
            let work = move || run_core(&target, &options, index, core, &ready);
            let spawned = running.cores.spawn(core, work);
            let broken = |reason: String| TargetError::Core { core, reason };
            let spawned = spawned.map_err(|error| broken(error.to_string()));
            let outcome = spawned.and_then(|()| {
                let gone = |_| broken("the thread ended during set-up".to_owned());
                report.recv().map_err(gone)?
            });
            match outcome {
                Ok((sender, addresses)) => {
                    senders.push(sender);
                    running.addresses.extend(addresses);
                }
                Err(error) => {
                    *running.handle.shared.cores() = senders;
                    running.stop_quietly();
                    return Err(error);
                }
            }
        }
        let opened = options.listen.iter().zip(&running.addresses);
        let opened = opened.map(|(&Listener { address, tls }, &bound)| OpenListener {
            requested: address,
            bound: Listener {
                address: bound,
                tls,
            },
        });
        running.handle.shared.configuration().listeners = opened.collect();
        let change = running.handle.attach(senders);
        if let Err(error) = running.handle.shared.wait(&change.ack) {
            running.stop_quietly();
            return Err(error.into());
        }
        Ok(running)
    }

    fn stop_quietly(self) {
        self.handle.shutdown();
        // The caller gets the first error.
        drop(self.cores.join());
    }

    /// Shuts the target down and waits for its cores.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn stop(self) -> io::Result<()> {
        self.handle.shutdown();
        self.join()
    }

    /// Waits for the cores, which end after [`Target::shutdown`].
    ///
    /// # Errors
    /// The error that broke a core's driver, or a panic; returned as soon as such a core has ended.
    /// The target cannot run without it, so the other cores are requested to end, and this does not
    /// wait for them.
    pub fn join(self) -> io::Result<()> {
        let joined = self.cores.join();
        if joined.is_err() {
            self.handle.shutdown();
        }
        joined
    }
}

/// The threads of the cores; each reports its end, for whatever reason.
#[derive(Debug)]
struct CoreThreads {
    threads: Vec<JoinHandle<()>>,
    ending: mpsc::Sender<(CoreId, io::Result<()>)>,
    /// Never contended: only one of the threads that share a target joins it.
    ended: Mutex<mpsc::Receiver<(CoreId, io::Result<()>)>>,
}

impl CoreThreads {
    fn new() -> Self {
        let (ending, ended) = mpsc::channel();
        Self {
            threads: Vec::new(),
            ending,
            ended: Mutex::new(ended),
        }
    }

    fn spawn(
        &mut self,
        core: CoreId,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let end = CoreEnd {
            core,
            result: Err(io::Error::other("the thread panicked")),
            ending: self.ending.clone(),
        };
        let thread = std::thread::Builder::new().name(format!("target-{core}"));
        let thread = thread.spawn(move || {
            let mut end = end;
            end.result = work();
            drop(end);
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Waits until every core has ended without error, or one has failed.
    fn join(self) -> io::Result<()> {
        let ended = self.ended.into_inner();
        let ended = ended.unwrap_or_else(PoisonError::into_inner);
        for _ in &self.threads {
            let (core, result) = ended.recv().expect("a sender is ours");
            result.map_err(|error| {
                let text = format!("core {core} failed: {error}");
                io::Error::new(error.kind(), text)
            })?;
        }
        for thread in self.threads {
            drop(thread.join());
        }
        Ok(())
    }
}

/// Reports the end of a core's thread when dropped.
struct CoreEnd {
    core: CoreId,
    result: io::Result<()>,
    ending: mpsc::Sender<(CoreId, io::Result<()>)>,
}

impl Drop for CoreEnd {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Ok(()));
        // If no thread waits for the cores, the report is dropped.
        let _ = self.ending.send((self.core, result));
    }
}

/// A core's thread.
fn run_core(
    target: &Target,
    options: &TargetOptions,
    index: usize,
    core: CoreId,
    ready: &mpsc::Sender<Ready>,
) -> io::Result<()> {
    match set_up(target, options, index, core) {
        Ok((mut core, addresses)) => {
            let report = ready.send(Ok((core.sender(), addresses)));
            if report.is_err() {
                return Ok(());
            }
            core.run()
        }
        Err(error) => {
            // The caller that waits for the outcome reports the error.
            drop(ready.send(Err(error)));
            Ok(())
        }
    }
}

fn set_up(
    target: &Target,
    options: &TargetOptions,
    index: usize,
    core: CoreId,
) -> Result<(Core<UringDriver, PollGroup>, Vec<SocketAddr>), TargetError> {
    if options.pin {
        // Where pinning is not allowed, the thread runs on any core.
        match placement::pin_to(core) {
            Ok(()) => target.stays_on(index, core),
            Err(error) => tracing::warn!("core {core} runs without pinning: {error}"),
        }
    }
    let knobs = target.knobs();
    if knobs.raises_dataplane() {
        // The same priority as that of host threads that may share the core: otherwise, of two
        // threads that wait for each other, the lower-priority one would wait for time slices of
        // the higher-priority one.
        let status = priority::raise_nice();
        tracing::info!("core {core}: thread priority {status}");
        target.note_priority(index, status);
    }
    let limits = target.limits();
    let driver = DriverOptions {
        buffers: if options.buffers.is_empty() {
            buffer_classes(limits)
        } else {
            options.buffers.clone()
        },
        sockets: limits.connections,
        ..DriverOptions::default()
    };
    let mut driver = UringDriver::new(&driver).map_err(|error| TargetError::Core {
        core,
        reason: error.to_string(),
    })?;
    let op_namespace = driver.op_namespace();
    let mut service = target.poll_group(index, op_namespace);
    let mut addresses = Vec::new();
    // Read only by the first core's listeners.
    let _ = target.shared.socket.set(options.socket.clone());
    if index == 0 && options.taken_over {
        addresses.extend(options.listen.iter().map(|it| it.address));
    } else if index == 0 {
        for &Listener { address, tls } in &options.listen {
            let socket = target.shared.socket_options(options.socket.clone(), tls);
            let (listener, bound) = once_free(|| {
                let listened = driver.listen(address, &socket);
                listened.map_err(|source| refused(address, source))
            })?;
            service.add_listener(address, listener);
            addresses.push(bound);
        }
    }
    Ok((Core::new(driver, service, options.poll), addresses))
}

/// Returns the payload buffers of a core: single blocks and in-capsule data for many commands,
/// whole transfers for some. They occupy only address space; pages are allocated at a buffer's
/// first use.
fn buffer_classes(limits: &Limits) -> Vec<BufferClass> {
    let largest = limits.transfer_bytes as usize;
    let wanted = [(4096, 4096), (16 * 1024, 2048), (128 * 1024, 512)];
    let smaller = wanted.into_iter().filter(|&(bytes, _)| bytes < largest);
    let classes = smaller.map(|(bytes, count)| BufferClass { bytes, count });
    // Admin data needs up to 8 KiB, whatever the transfer size.
    let last = BufferClass {
        bytes: largest.max(8192),
        count: 256,
    };
    classes.chain([last]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: threads were joined in order, so the end of a core was not noticed while the
    /// first one ran.
    #[test]
    fn a_core_that_ends_while_others_run_is_noticed() {
        type Work = fn() -> io::Result<()>;
        let endings: [(Work, &str); 2] = [
            (|| panic!("a bug"), "core 1 failed: the thread panicked"),
            (
                || Err(io::Error::other("no ring")),
                "core 1 failed: no ring",
            ),
        ];
        for (end, says) in endings {
            let (go_on, report) = mpsc::channel::<()>();
            let mut cores = CoreThreads::new();
            let serve = move || {
                // Runs until the test is over.
                let _ = report.recv();
                Ok(())
            };
            cores.spawn(CoreId(0), serve).unwrap();
            cores.spawn(CoreId(1), end).unwrap();
            assert_eq!(cores.join().unwrap_err().to_string(), says);
            drop(go_on);
        }
        let mut cores = CoreThreads::new();
        cores.spawn(CoreId(0), || Ok(())).unwrap();
        cores.join().unwrap();
    }
}
