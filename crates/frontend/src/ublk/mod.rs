//! The ublk front end: a block device of this machine's own kernel, `/dev/ublkbN`.
//!
//! The kernel's driver (`ublk_drv`) passes the block device's requests to the core threads, one or
//! more queues each, through their existing rings. Data is copied once, between the pages of a
//! request and the buffers of the device (`UBLK_F_USER_COPY`). The thread that owns the server
//! sends the control commands.
//!
//! A device outlives a killed server: its requests wait, and the next server with its number
//! executes them, including those that the killed server had begun. The kernel is trusted.

mod abi;
mod control;
mod descriptors;
mod error;
mod in_use;
mod queue;
mod recovery;
mod service;

pub use error::UblkError;

use crate::cache_life::{mark, take_over};
use crate::core_thread::{self, Cores};
use crate::device_io::connect;
use crate::limits::{
    DRAIN_TIME, LANE_SOCKETS, UBLK_DELETE_TIME, UBLK_DEPTH, UBLK_LEFT_TIME, UBLK_QUEUES_MAX,
    UBLK_REQUEST_BYTES_MAX,
};
use crate::log_budget::LogBudget;
use crate::served_size::served;
use crate::{ClassRules, DeviceIo, FrontendError, IoCounters, IoCounts, KnownLosses, Ping};
use abi::{ANY_ID, Control, DeviceInfo, DeviceState, Parameters, features};
use base::Nanos;
use base::units::CoreId;
use block::{Device, Geometry, Operation};
use control::Driver;
use descriptors::Descriptors;
use in_use::{Spare, Use};
use queue::Queue;
use reactor::uring::{Options as DriverOptions, UringDriver};
use reactor::{Core, PollPolicy};
use recovery::Found;
use service::{Message, SharedServer, UblkService};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use switch::{Class, PerClass};

/// Options of a server.
#[derive(Clone, Debug)]
pub struct UblkOptions {
    /// The N of `/dev/ublkbN`, which may be that of a device left by a killed server; `None` for a
    /// free number.
    pub id: Option<u32>,
    /// The life of the device's caches in which a predecessor has handed the block device over;
    /// `None` if it was killed: then that in which the block device was made counts.
    pub left_life: Option<u32>,
    /// Identity of the volume. Its lower 32 bits must match those of a device left by a killed
    /// server.
    pub identity: u64,
    /// The volume is lost when this process ends, so no other server can take over the block
    /// device.
    pub ends_with_process: bool,
    /// Class of the requests: the kernel passes no I/O priority.
    pub class: Class,
    /// Rules with precedence over `class`.
    pub rules: ClassRules,
    /// Refuses writes.
    pub read_only: bool,
    /// Number of queues, 1 to [`UBLK_QUEUES_MAX`]; `None` for one per core.
    pub queues: Option<u16>,
    /// Processors, one core thread each; if empty, one thread placed by the kernel.
    pub cores: Vec<CoreId>,
    /// Idle policy of the cores.
    pub poll: PollPolicy,
}

impl UblkOptions {
    /// Default options: a free number, no identity, default class, writable, one core, one queue.
    #[must_use]
    pub fn new() -> Self {
        Self {
            id: None,
            left_life: None,
            identity: 0,
            ends_with_process: false,
            class: Class::DEFAULT,
            rules: ClassRules::default(),
            read_only: false,
            queues: None,
            cores: Vec::new(),
            poll: PollPolicy::Auto,
        }
    }
}

/// A served block device. Dropping it keeps the block device if it may still be needed, because an
/// earlier server left it or it is or may be in use; its requests then wait for the next server.
/// Any other device is removed, and so is every device whose volume is lost with the process.
#[derive(Debug)]
pub struct UblkServer {
    driver: Driver,
    info: DeviceInfo,
    /// The character device; `None` after the server has ended.
    file: Option<Arc<File>>,
    device: Arc<dyn Device>,
    /// The size last reported to the kernel.
    geometry: Geometry,
    /// The size that the kernel has rejected.
    refused: Option<Geometry>,
    /// The block device was taken over from a killed server.
    recovered: bool,
    /// The volume is lost when this process ends.
    ends_with_process: bool,
    ended: bool,
    /// The server ended while the block device was in use, or cancelled requests.
    forced: bool,
    spare: Spare,
    shared: Arc<SharedServer>,
    cores: Cores<Message>,
}

impl UblkServer {
    /// Serves `devices`, which are paths of each class to the same blocks, as a block device.
    /// Returns once it can be used.
    ///
    /// # Errors
    /// [`UblkError`], which includes the remedy. A created device is then removed; a device that
    /// was to be taken over stays as it was.
    pub fn start(
        devices: &PerClass<Arc<dyn Device>>,
        options: &UblkOptions,
    ) -> Result<Self, UblkError> {
        let cores = core_thread::places(&options.cores)?;
        let mut driver = Driver::open()?;
        let spare = Spare::take().map_err(|source| UblkError::Device {
            path: "/dev/null".to_owned(),
            source,
        })?;
        let kernel = driver.features()?;
        if kernel & features::NEEDED != features::NEEDED {
            return Err(UblkError::TooOld);
        }
        let device = Arc::clone(&devices[Class::DEFAULT]);
        let read_only = options.read_only || device.capabilities().read_only;
        let wanted = wanted(&*device, options, read_only, kernel)?;
        let found = match options.id {
            Some(id) => recovery::find(&mut driver, id, &wanted, options.queues)?,
            None => Found::Nothing,
        };
        let (info, geometry, recovered) = match found {
            Found::Left(info, geometry) => (info, geometry, true),
            Found::Nothing => {
                let info = add(&mut driver, wanted.info)?;
                (info, wanted.parameters.geometry, false)
            }
        };
        let client = KnownLosses::of(&*device);
        if recovered {
            take_over(&*device, options.left_life.unwrap_or(info.life), &client);
        }
        let mut server = Self {
            driver,
            info,
            file: None,
            geometry,
            refused: None,
            device,
            recovered,
            ends_with_process: options.ends_with_process,
            ended: false,
            forced: false,
            spare,
            shared: Arc::new(SharedServer {
                class: options.class,
                read_only,
                client,
                rules: options.rules.of_unknown(),
                broken: AtomicBool::new(false),
                log: LogBudget::default(),
                rings: Mutex::default(),
            }),
            cores: Cores::new(),
        };
        server.bring_up(devices, &cores, options.poll, wanted.parameters)?;
        Ok(server)
    }

    /// Path of the block device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/{}", self.name()))
    }

    /// The N of `/dev/ublkbN`.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.info.id
    }

    /// Number of queues.
    #[must_use]
    pub const fn queues(&self) -> u16 {
        self.info.queues
    }

    /// Returns true if the block device was taken over from a killed server.
    #[must_use]
    pub const fn is_recovered(&self) -> bool {
        self.recovered
    }

    /// Returns the counts of requests since the start, by class.
    #[must_use]
    pub fn counts(&self) -> PerClass<IoCounts> {
        self.cores.counts()
    }

    /// Returns a file system, swap space or stacked device that uses the block device, as text, if
    /// there is one. Only [`detach`](Self::detach) searches for processes that have it open.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        in_use::Partitions::of(&self.name()).holder()
    }

    /// Returns true if the block device is no longer served: another program removed it, or the
    /// server [failed](Self::has_failed).
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.cores.have_ended()
    }

    /// Returns true if the kernel accepts no more commands for the block device's requests. The
    /// block device still exists, and the next server can take it over.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.broken.load(Ordering::Relaxed) && self.is_there()
    }

    /// Reports a changed device size to the kernel if it has `UBLK_F_UPDATE_SIZE` (Linux 6.15).
    /// Call it periodically.
    ///
    /// # Errors The kernel's error, once for each size.
    pub fn follow_size(&mut self) -> Result<(), UblkError> {
        let geometry = served(&*self.device);
        let changed =
            geometry != self.geometry && geometry.block_bytes == self.geometry.block_bytes;
        // After the device is removed, the block device keeps its size and its requests fail.
        let told = !changed || geometry.is_gone() || self.refused == Some(geometry);
        if told || self.info.flags & features::UPDATE_SIZE == 0 {
            return Ok(());
        }
        let (command, id) = (Control::UpdateSize, self.info.id);
        let result = self.driver.execute(command, id, abi::sectors(geometry));
        self.refused = result.is_err().then_some(geometry);
        result.map_err(UblkError::command(command, id))?;
        self.geometry = geometry;
        Ok(())
    }

    /// Removes the block device and ends the threads. Does nothing if already detached.
    ///
    /// # Errors
    /// [`UblkError::InUse`] while the block device is open, and [`UblkError::MayBeInUse`] if this
    /// process may not check that; the server then continues.
    pub fn detach(&mut self) -> Result<(), UblkError> {
        if !self.ended {
            let name = self.name();
            let path = || format!("/dev/{name}");
            match self.spare.look(&name) {
                Use::None => {}
                Use::By(user) => return Err(UblkError::InUse { path: path(), user }),
                Use::Unknown => return Err(UblkError::MayBeInUse { path: path() }),
            }
        }
        self.end(false);
        Ok(())
    }

    /// Removes the block device even while it is open, which causes errors for its users.
    /// Outstanding requests finish first, for at most 10 s.
    pub fn detach_forced(&mut self) {
        self.end(false);
    }

    /// Finishes outstanding requests and ends; the block device stays, and its requests wait for the
    /// next server. Returns the life of the device's caches for [`UblkOptions::left_life`].
    pub fn pause(&mut self) -> u32 {
        self.end(true);
        mark(&*self.device)
    }

    /// Ends the server when the process ends. A block device that is or may be in use stays, and
    /// its requests wait for the next server, unless the volume is lost with the process. Any other
    /// block device is removed. Does nothing if the server has ended.
    pub fn leave(&mut self) {
        if self.ended {
            return;
        }
        let name = self.name();
        let in_use = self.spare.look(&name) != Use::None;
        self.forced = in_use;
        let keep = in_use && !self.ends_with_process;
        if keep {
            let id = self.info.id;
            tracing::warn!("/dev/{name} stays, and its requests wait for a server with --id {id}");
        }
        self.end(keep);
    }

    /// Sends a probe to the server's threads.
    pub fn ping(&self, ping: &Ping) {
        self.cores.tell(|| Message::Ping(ping.clone()));
    }

    /// Returns true if the server ended while the block device was in use, or cancelled requests.
    #[must_use]
    pub const fn was_forced(&self) -> bool {
        self.forced
    }

    /// Returns true if the block device exists.
    fn is_there(&self) -> bool {
        Path::new("/sys/block").join(self.name()).exists()
    }

    /// Returns true if the block device may be needed after this server.
    fn may_be_needed(&mut self) -> bool {
        let name = self.name();
        // Opening a device without threads could block.
        let is_open = |spare: &mut Spare| spare.look(&name) != Use::None;
        let may_be_used = self.recovered || self.has_ended() || is_open(&mut self.spare);
        !self.ends_with_process && self.is_there() && may_be_used
    }

    fn name(&self) -> String {
        format!("ublkb{}", self.info.id)
    }

    /// Starts the threads, and then the block device.
    fn bring_up(
        &mut self,
        devices: &PerClass<Arc<dyn Device>>,
        cores: &[Option<CoreId>],
        poll: PollPolicy,
        parameters: Parameters,
    ) -> Result<(), UblkError> {
        let id = self.info.id;
        if !self.recovered {
            let set = self.driver.set_parameters(id, parameters);
            set.map_err(UblkError::command(Control::SetParameters, id))?;
        }
        for (index, &core) in cores.iter().enumerate().take(self.info.queues.into()) {
            let queues = (0..self.info.queues).skip(index).step_by(cores.len());
            let part = CorePart {
                core,
                queues: queues.collect(),
                info: self.info,
                devices: devices.clone(),
                shared: Arc::clone(&self.shared),
            };
            self.cores.start("ublk", move || part.open(poll))?;
        }
        // Now, when all are connected: of a server that dies during these steps, the kernel may refuse
        // every successor.
        if self.recovered {
            recovery::begin(&mut self.driver, &self.info)?;
        }
        let file = Arc::new(open_device(id)?);
        self.cores.tell(|| Message::Fetch(Arc::clone(&file)));
        self.file = Some(file);
        let command = if self.recovered {
            Control::EndRecovery
        } else {
            Control::StartDevice
        };
        self.serve(command)
    }

    /// Makes the kernel send requests to this process.
    fn serve(&mut self, command: Control) -> Result<(), UblkError> {
        const LOOK: Duration = Duration::from_millis(100);
        let id = self.info.id;
        let failed = |source| UblkError::command(command, id)(source);
        let process = std::process::id();
        self.driver
            .begin(command, id, process.into())
            .map_err(failed)?;
        loop {
            let done = self.driver.wait_until(Instant::now() + LOOK);
            if let Some(result) = done.map_err(failed)? {
                return result.map_err(failed);
            }
            if self.shared.broken.load(Ordering::Relaxed) {
                return Err(failed(std::io::Error::other(
                    "the driver refuses to fetch requests",
                )));
            }
        }
    }

    /// Ends everything, and removes the block device unless `keep` leaves it for the next server.
    /// Does nothing if already ended.
    fn end(&mut self, keep: bool) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let is_over = if keep { self.quiesce() } else { self.stop() };
        // Cores that fetch nothing do not see the end of the block device.
        let fetches = self.file.is_some() && !self.shared.broken.load(Ordering::Relaxed);
        if !is_over || !fetches {
            self.cores.tell(|| Message::Leave);
        }
        self.cores.join();
        self.shared.rings().clear();
        self.file = None;
        if keep {
            self.await_quiesced();
        } else {
            self.command_in_time(Control::DeleteDevice, UBLK_DELETE_TIME);
        }
    }

    /// Waits until the kernel passes the device to the next server, which it does in the background.
    fn await_quiesced(&mut self) {
        let end = Instant::now() + Duration::from(UBLK_LEFT_TIME);
        // After a start that failed, a command may be pending.
        while self.driver.is_idle()
            && let Ok(Some(info)) = self.driver.info(self.info.id)
            && info.state == DeviceState::Live
            && Instant::now() < end
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Finishes outstanding requests and begins no others, for at most [`DRAIN_TIME`]. Returns true
    /// if the cores have ended.
    fn quiesce(&mut self) -> bool {
        self.cores.tell(|| Message::Quiesce);
        let end = Instant::now() + Duration::from(DRAIN_TIME);
        while !self.cores.have_ended() {
            if Instant::now() >= end {
                tracing::warn!(
                    "requests did not finish within the drain time; a successor \
                    completes them"
                );
                self.forced = true;
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Removes the block device, which ends the commands of all tags. Returns false if that fails.
    fn stop(&mut self) -> bool {
        if self.command_in_time(Control::StopDevice, DRAIN_TIME) {
            return true;
        }
        tracing::warn!("requests did not finish within the drain time; they are cancelled");
        self.forced = true;
        self.cores.tell(|| Message::Abort);
        self.command_in_time(Control::StopDevice, DRAIN_TIME)
    }

    /// Executes a command, or continues a pending one, for at most `time`. Returns true if it has
    /// completed.
    fn command_in_time(&mut self, command: Control, time: Nanos) -> bool {
        let id = self.info.id;
        let end = Instant::now() + Duration::from(time);
        let result = match self.driver.begin_anew(command, id) {
            Ok(()) => self.driver.wait_until(end),
            Err(error) => Err(error),
        };
        match result {
            Ok(Some(Ok(()))) => true,
            // Another program has removed it.
            Ok(Some(Err(error))) if control::is_no_device(&error) => true,
            Ok(None) => false,
            Ok(Some(Err(error))) | Err(error) => {
                tracing::warn!("{}", UblkError::command(command, id)(error));
                false
            }
        }
    }
}

impl Drop for UblkServer {
    fn drop(&mut self) {
        if !self.ended {
            let keep = self.may_be_needed();
            self.end(keep);
        }
    }
}

/// The requested device.
struct Wanted {
    info: DeviceInfo,
    parameters: Parameters,
}

fn wanted(
    device: &dyn Device,
    options: &UblkOptions,
    read_only: bool,
    kernel: u64,
) -> Result<Wanted, UblkError> {
    let geometry = served(device);
    let capabilities = device.capabilities();
    let each_core = || u16::try_from(options.cores.len()).unwrap_or(u16::MAX);
    let queues = options
        .queues
        .unwrap_or_else(|| each_core().clamp(1, UBLK_QUEUES_MAX));
    if !(1..=UBLK_QUEUES_MAX).contains(&queues) {
        let text = format!("{queues} queues are out of range; use 1 to {UBLK_QUEUES_MAX}");
        return Err(FrontendError::Option(text).into());
    }
    let page = u32::try_from(rustix::param::page_size()).expect("a page is small");
    let most = capabilities.max_transfer_bytes.min(UBLK_REQUEST_BYTES_MAX);
    // Whole pages, and therefore whole blocks.
    let request_bytes = (most - most % page).max(page);
    let info = DeviceInfo {
        queues,
        depth: UBLK_DEPTH,
        state: DeviceState::Dead,
        request_bytes,
        id: options.id.unwrap_or(ANY_ID),
        process: -1,
        flags: features::NEEDED | kernel & features::UPDATE_SIZE,
        identity: abi::low_half(options.identity),
        life: mark(device),
    };
    let parameters = Parameters {
        geometry,
        read_only,
        preferred_bytes: capabilities.preferred_bytes,
        request_bytes,
        takes_discards: device.supports(Operation::Deallocate),
        takes_zeroes: device.supports(Operation::WriteZeroes {
            deallocate: false,
            durable: false,
        }),
    };
    Ok(Wanted { info, parameters })
}

fn add(driver: &mut Driver, info: DeviceInfo) -> Result<DeviceInfo, UblkError> {
    use rustix::io::Errno;
    let refused = |error: std::io::Error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => UblkError::NotPermitted,
        _ => UblkError::command(Control::AddDevice, info.id)(error),
    };
    driver.add(info).map_err(refused)
}

/// Opens a character device. Its data reads and writes do not block, so the ring executes them at
/// once.
fn open_device(id: u32) -> Result<File, UblkError> {
    let path = format!("/dev/ublkc{id}");
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let opened = File::options()
        .read(true)
        .write(true)
        .custom_flags(flags.cast_signed())
        .open(&path);
    opened.map_err(|source| UblkError::Device { path, source })
}

/// A core that is ready to run, and its counters.
type Opened = (Core<UringDriver, UblkService<Descriptors>>, Arc<IoCounters>);

/// The parameters of a core, passed to its thread.
struct CorePart {
    core: Option<CoreId>,
    queues: Vec<u16>,
    info: DeviceInfo,
    devices: PerClass<Arc<dyn Device>>,
    shared: Arc<SharedServer>,
}

impl CorePart {
    fn open(self, poll: PollPolicy) -> Result<Opened, UblkError> {
        let tags = self.queues.len() * usize::from(self.info.depth);
        let defaults = DriverOptions::default();
        let driver_options = DriverOptions {
            sockets: LANE_SOCKETS,
            file_operations: defaults.file_operations + tags,
            ..defaults
        };
        let mut driver = core_thread::driver(self.core, &driver_options)?;
        // If the ring were closed while its thread runs, the kernel could still pass this thread a
        // request, which it would then never pass to the next server.
        let ring = driver.share_ring();
        let ring = ring.map_err(|error| FrontendError::Option(format!("io_uring: {error}")))?;
        self.shared.rings().push(ring);
        let mut io =
            DeviceIo::open(&self.devices, tags, &mut driver).map_err(FrontendError::Device)?;
        connect([&mut io], &mut driver).map_err(|(_, error)| FrontendError::Device(error))?;
        let io = io.for_client(&self.shared.client);
        let depth = self.info.depth;
        let bytes = usize::try_from(self.info.request_bytes).expect("32 bits");
        let queue = |number| Queue::new(number, depth, bytes, Descriptors::new(number, depth));
        let queues = self.queues.into_iter().map(queue).collect();
        let counters = Arc::clone(io.counters());
        let service = UblkService::start(self.shared, io, queues, &mut driver);
        Ok((Core::new(driver, service, poll), counters))
    }
}

#[cfg(test)]
mod tests;
