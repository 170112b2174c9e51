//! A disk behind a vhost-user back end: the parts of a virtual machine's monitor and of its guest's
//! driver, without the machine.
//!
//! [`VhostDisk`] is a [`Device`]; each of its channels is a virtqueue. `Latency` requests carry a
//! real-time I/O priority, like those of such threads of a Linux guest. A durable write is a write
//! and a flush, because virtio has no FUA.

mod channel;
pub mod ring;

use block::{Capabilities, Channel, Device, DeviceError, Geometry};
use channel::VhostChannel;
use reactor::Driver;
use ring::{AREA_BYTES, DATA_BYTES, DriverRing, ENTRIES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsRawFd as _;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;
use std::{fmt, io};
use switch::Class;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo};
use vm_memory::FileOffset;
use vm_memory::mmap::MmapRegion;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use vmm_sys_util::sock_ctrl_msg::ScmSocket as _;

/// Features of the device that this driver supports. `[virtio 1.2 §5.2.3, §6]`
const F_RO: u64 = 1 << 5;
const F_BLK_SIZE: u64 = 1 << 6;
const F_FLUSH: u64 = 1 << 9;
const F_MQ: u64 = 1 << 12;
const F_DISCARD: u64 = 1 << 13;
const F_WRITE_ZEROES: u64 = 1 << 14;
const F_EVENT_IDX: u64 = 1 << 29;
const F_VERSION_1: u64 = 1 << 32;

/// Bytes read of the configuration space.
const CONFIG_BYTES: u32 = 60;

/// Most queues in use: one for each thread of a load.
const QUEUES_MAX: u16 = 16;

/// Longest time of a step of messages, until the last answer of the back end.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// A disk behind a back end. Clones share the connection and its queues.
#[derive(Clone, Debug)]
pub struct VhostDisk {
    path: PathBuf,
    shared: Arc<Shared>,
    features: u64,
    /// Most sectors of one discard or Write Zeroes request.
    range_sectors: u32,
    /// Class of the requests; `None` to follow the submitting thread's I/O priority.
    class: Option<Class>,
}

struct Shared {
    front_end: Frontend,
    /// The front end's socket.
    socket: UnixStream,
    memory: Arc<MmapRegion>,
    /// Queues without a channel.
    free: Mutex<Vec<u16>>,
}

/// A queue in use, with the event counters that notify the device and the driver.
#[derive(Debug)]
struct Queue {
    shared: Arc<Shared>,
    index: u16,
    ring: DriverRing,
    kick: EventFd,
    call: EventFd,
}

impl VhostDisk {
    /// Connects to the back end at `path`, and shares memory with it.
    ///
    /// # Errors
    /// [`DeviceError::Io`].
    pub fn connect(path: &Path) -> Result<Self, DeviceError> {
        connect(path).map_err(|source| DeviceError::Io {
            what: format!("cannot use {}", path.display()),
            source,
            remedy: "`switchyard attach vhost --socket PATH` serves one front end at a time",
        })
    }

    /// Sets the class of requests of channels that are opened from now on. `None` (default) follows
    /// the I/O priority of the submitting thread.
    #[must_use]
    pub fn with_class(mut self, class: Option<Class>) -> Self {
        self.class = class;
        self
    }

    fn config(&self) -> io::Result<Config> {
        self.shared.ask(|front_end| Config::read(front_end))?
    }
}

fn connect(path: &Path) -> io::Result<VhostDisk> {
    let socket = UnixStream::connect(path)?;
    let mut front_end = Frontend::from_stream(socket.try_clone()?, QUEUES_MAX.into());
    let (features, memory, queues, config) = bounded(&socket, ANSWER_TIME, || {
        let (features, queues) = negotiate(&mut front_end).map_err(io::Error::other)?;
        let memory = share_memory(&front_end, AREA_BYTES * usize::from(queues))?;
        io::Result::Ok((features, memory, queues, Config::read(&front_end)?))
    })??;
    Ok(VhostDisk {
        path: path.to_owned(),
        shared: Arc::new(Shared {
            front_end,
            socket,
            memory: Arc::new(memory),
            free: Mutex::new((0..queues).rev().collect()),
        }),
        features,
        range_sectors: config.range_sectors,
        class: None,
    })
}

/// Runs `step`, and ends the connection if it takes longer than `time`: the front end waits for an
/// answer without a limit.
fn bounded<T>(socket: &UnixStream, time: Duration, step: impl FnOnce() -> T) -> io::Result<T> {
    let (done, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let limit = move || {
            if ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                let _ = socket.shutdown(Shutdown::Both);
            }
        };
        Builder::new().spawn_scoped(scope, limit)?;
        let result = step();
        drop(done);
        Ok(result)
    })
}

/// Negotiates the features and the number of queues. From then on, all messages are acknowledged.
fn negotiate(front_end: &mut Frontend) -> vhost::Result<(u64, u16)> {
    let protocol_features = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
    let wanted = F_RO
        | F_BLK_SIZE
        | F_FLUSH
        | F_MQ
        | F_DISCARD
        | F_WRITE_ZEROES
        | F_EVENT_IDX
        | F_VERSION_1
        | protocol_features;
    let features = front_end.get_features()? & wanted;
    let needed = protocol_features | F_VERSION_1 | F_EVENT_IDX;
    let agreed = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::CONFIG;
    if features & needed != needed || !front_end.get_protocol_features()?.contains(agreed) {
        let error = io::Error::other("the back end lacks required features");
        return Err(vhost::Error::IOError(error));
    }
    front_end.set_protocol_features(agreed)?;
    front_end.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    front_end.set_owner()?;
    front_end.set_features(features)?;
    let queues = front_end.get_queue_num()?;
    let queues = u16::try_from(queues).unwrap_or(QUEUES_MAX).min(QUEUES_MAX);
    Ok((features, queues))
}

/// Creates memory and shares it with the back end. An offset in it is also its address for the
/// device.
fn share_memory(front_end: &Frontend, bytes: usize) -> io::Result<MmapRegion> {
    let file = memfd_create(c"switchyard-guest", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, bytes as u64)?;
    let region = VhostUserMemoryRegionInfo {
        memory_size: bytes as u64,
        mmap_handle: file.as_raw_fd(),
        ..Default::default()
    };
    let shared = front_end.set_mem_table(&[region]);
    shared.map_err(io::Error::other)?;
    let memory = MmapRegion::from_file(FileOffset::new(file.into(), 0), bytes);
    memory.map_err(io::Error::other)
}

/// Fields of the configuration space.
#[derive(Clone, Copy, Debug)]
struct Config {
    geometry: Geometry,
    range_sectors: u32,
}

impl Config {
    fn read(front_end: &Frontend) -> io::Result<Self> {
        let (none, flags) = ([0; CONFIG_BYTES as usize], VhostUserConfigFlags::empty());
        let answer = front_end.clone().get_config(0, CONFIG_BYTES, flags, &none);
        let (_, space) = answer.map_err(io::Error::other)?;
        let word = |at: usize| {
            let bytes = space[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes)
        };
        let sectors = u64::from(word(4)) << 32 | u64::from(word(0));
        let block_bytes = word(20);
        if !matches!(block_bytes, 512 | 4096) {
            return Err(io::Error::other("the block size is not 512 or 4096"));
        }
        Ok(Self {
            geometry: Geometry {
                block_bytes,
                blocks: sectors / u64::from(block_bytes / 512),
            },
            range_sectors: word(36).min(word(48)).max(block_bytes / 512),
        })
    }
}

/// Returns a new descriptor of an event counter, to wait for it.
///
/// # Errors
/// The kernel's error.
pub fn file_of(counter: &EventFd) -> io::Result<File> {
    // The counter does not expose its descriptor, but a socket can pass it.
    let (from, to) = UnixStream::pair()?;
    from.send_with_fd(&[0][..], counter.as_raw_fd())?;
    let (_, file) = to.recv_with_fd(&mut [0])?;
    file.ok_or_else(|| io::Error::other("the socket lost a descriptor"))
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// Runs a step of messages within [`ANSWER_TIME`].
    fn ask<T>(&self, step: impl FnOnce(&mut Frontend) -> T) -> io::Result<T> {
        let mut front_end = self.front_end.clone();
        bounded(&self.socket, ANSWER_TIME, || step(&mut front_end))
    }

    /// Returns true if the back end closed the connection.
    fn is_gone(&self) -> bool {
        let mut ready = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        // A signal may interrupt this check; the next one comes soon.
        poll(&mut ready, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn free(&self) -> MutexGuard<'_, Vec<u16>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Takes a free queue and starts it.
    fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let message = "all queues of the back end are in use; increase its --queues";
        let index = shared.free().pop();
        let index = index.ok_or_else(|| io::Error::other(message))?;
        let base = AREA_BYTES * usize::from(index);
        let flags = EFD_CLOEXEC | EFD_NONBLOCK;
        // From here on, dropping it returns the queue.
        let queue = Self {
            ring: DriverRing::new(Arc::clone(&shared.memory), base)?,
            shared: Arc::clone(shared),
            index,
            kick: EventFd::new(flags)?,
            call: EventFd::new(flags)?,
        };
        let shown = queue.shared.ask(|front_end| queue.show(front_end))?;
        shown.map_err(io::Error::other)?;
        Ok(queue)
    }

    /// Registers the queue with the back end, and enables it.
    fn show(&self, front_end: &mut Frontend) -> vhost::Result<()> {
        let index = usize::from(self.index);
        front_end.set_vring_num(index, ENTRIES)?;
        front_end.set_vring_base(index, 0)?;
        front_end.set_vring_addr(index, &self.ring.addresses())?;
        front_end.set_vring_call(index, &self.call)?;
        front_end.set_vring_kick(index, &self.kick)?;
        front_end.set_vring_enable(index, true)
    }

    /// Publishes the available requests, and notifies the device if it requested that.
    fn publish(&mut self) {
        if self.ring.publish() {
            // A full counter has notified the device already.
            let _ = self.kick.write(1);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let index = self.index.into();
        let stopped = self.shared.ask(|front_end| front_end.get_vring_base(index));
        // A queue that did not stop may still be used by the device.
        if matches!(stopped, Ok(Ok(_))) {
            self.shared.free().push(self.index);
        }
    }
}

impl Device for VhostDisk {
    fn geometry(&self) -> Geometry {
        let config = self.config();
        // A disconnected back end has no blocks.
        config.map_or(
            Geometry {
                block_bytes: 4096,
                blocks: 0,
            },
            |config| config.geometry,
        )
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            volatile_cache: self.features & F_FLUSH != 0,
            read_only: self.features & F_RO != 0,
            thin: self.features & F_DISCARD != 0,
            max_transfer_bytes: u32::try_from(DATA_BYTES).expect("128 KiB"),
            preferred_bytes: 0,
            extents_max: 0,
        }
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let mut open = || -> io::Result<VhostChannel> {
            let queue = Queue::start(&self.shared)?;
            let geometry = self.config()?.geometry;
            let capabilities = self.capabilities();
            let (range_sectors, class) = (self.range_sectors, self.class);
            VhostChannel::new(queue, geometry, capabilities, range_sectors, class, driver)
        };
        let channel = open().map_err(|source| DeviceError::Io {
            what: format!("cannot open {}", self.path.display()),
            source,
            remedy: "see the output of the back end",
        })?;
        Ok(Box::new(channel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_end_that_does_not_answer_fails_the_step() {
        let (ours, _silent) = UnixStream::pair().unwrap();
        let front_end = Frontend::from_stream(ours.try_clone().unwrap(), 1);
        let answer = bounded(&ours, Duration::from_millis(10), || {
            front_end.get_features()
        });
        answer.unwrap().unwrap_err();
    }
}
