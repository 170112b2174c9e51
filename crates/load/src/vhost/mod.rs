//! A disk behind a vhost-user back end: what a virtual machine's monitor and its guest's driver do,
//! without the machine.
//!
//! [`VhostDisk`] is a [`Device`]; each of its channels is a virtqueue. `Latency` requests carry a
//! real-time I/O priority, as those of such threads of a Linux guest do. A write that is to be
//! durable is a write and a flush, because virtio knows no other.

mod channel;
pub mod messages;
pub mod ring;

use block::{Capabilities, Channel, Device, DeviceError, Geometry};
use channel::VhostChannel;
use messages::{Connection, F_PROTOCOL_FEATURES, code, protocol, vring_state};
use reactor::Driver;
use ring::{AREA_BYTES, DATA_BYTES, DriverRing, ENTRIES};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use switch::Class;
use vm_memory::FileOffset;
use vm_memory::mmap::MmapRegion;

/// Features of the device that the driver knows. `[virtio 1.2 §5.2.3, §6]`
const F_RO: u64 = 1 << 5;
const F_BLK_SIZE: u64 = 1 << 6;
const F_FLUSH: u64 = 1 << 9;
const F_MQ: u64 = 1 << 12;
const F_DISCARD: u64 = 1 << 13;
const F_WRITE_ZEROES: u64 = 1 << 14;
const F_EVENT_IDX: u64 = 1 << 29;
const F_VERSION_1: u64 = 1 << 32;

/// Bytes of the configuration space that are read.
const CONFIG_BYTES: u32 = 60;

/// Queues that are used at most: one for each thread of a load.
const QUEUES_MAX: u16 = 16;

/// A disk behind a back end. Clones share the connection and its queues.
#[derive(Clone, Debug)]
pub struct VhostDisk {
    path: PathBuf,
    shared: Arc<Shared>,
    features: u64,
    /// The most sectors of one discard or write of zeroes.
    range_sectors: u32,
    /// Class of the requests; `None` for that of the submitting thread's I/O priority.
    class: Option<Class>,
}

#[derive(Debug)]
struct Shared {
    connection: Mutex<Connection>,
    memory: Arc<MmapRegion>,
    /// Queues that no channel has.
    free: Mutex<Vec<u16>>,
}

/// A queue in use, with the event counters that tell the device and the driver.
#[derive(Debug)]
struct Queue {
    shared: Arc<Shared>,
    index: u16,
    ring: DriverRing,
    kick: OwnedFd,
    call: OwnedFd,
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

    /// The same disk; requests of channels that are opened from it have this class, or, with `None`,
    /// which is the default, that of the I/O priority of the thread that submits them.
    #[must_use]
    pub fn with_class(mut self, class: Option<Class>) -> Self {
        self.class = class;
        self
    }

    fn config(&self) -> io::Result<Config> {
        let mut connection = self.shared.connection();
        Config::read(&mut connection)
    }
}

fn connect(path: &Path) -> io::Result<VhostDisk> {
    let mut connection = Connection::open(path)?;
    let offered = connection.ask_number(code::GET_FEATURES)?;
    let wanted = F_RO
        | F_BLK_SIZE
        | F_FLUSH
        | F_MQ
        | F_DISCARD
        | F_WRITE_ZEROES
        | F_EVENT_IDX
        | F_VERSION_1
        | F_PROTOCOL_FEATURES;
    let features = offered & wanted;
    let needed = F_PROTOCOL_FEATURES | F_VERSION_1 | F_EVENT_IDX;
    let offers = connection.ask_number(code::GET_PROTOCOL_FEATURES)?;
    let agreed = protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG;
    if features & needed != needed || offers & agreed != agreed {
        return Err(io::Error::other("the back end lacks features"));
    }
    connection.tell(code::SET_PROTOCOL_FEATURES, &agreed.to_le_bytes(), &[])?;
    connection.acknowledge();
    connection.tell(code::SET_OWNER, &[], &[])?;
    connection.tell(code::SET_FEATURES, &features.to_le_bytes(), &[])?;
    let queues = connection.ask_number(code::GET_QUEUE_NUM)?;
    let queues = u16::try_from(queues).unwrap_or(QUEUES_MAX).min(QUEUES_MAX);
    let memory = share_memory(&mut connection, AREA_BYTES * usize::from(queues))?;
    let config = Config::read(&mut connection)?;
    Ok(VhostDisk {
        path: path.to_owned(),
        shared: Arc::new(Shared {
            connection: Mutex::new(connection),
            memory: Arc::new(memory),
            free: Mutex::new((0..queues).rev().collect()),
        }),
        features,
        range_sectors: config.range_sectors,
        class: None,
    })
}

/// Makes memory, and shows it to the back end. A place in it is also its address.
fn share_memory(connection: &mut Connection, bytes: usize) -> io::Result<MmapRegion> {
    let file = memfd_create(c"switchyard-guest", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, bytes as u64)?;
    let [none, size] = [0u64, bytes as u64];
    let mut table = Vec::new();
    table.extend_from_slice(&1u32.to_le_bytes());
    table.extend_from_slice(&0u32.to_le_bytes());
    // Guest address, size, user address, offset in the file.
    for field in [none, size, none, none] {
        table.extend_from_slice(&field.to_le_bytes());
    }
    connection.tell(code::SET_MEM_TABLE, &table, &[file.as_fd()])?;
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
    fn read(connection: &mut Connection) -> io::Result<Self> {
        let mut request = Vec::new();
        for field in [0, CONFIG_BYTES, 0] {
            request.extend_from_slice(&field.to_le_bytes());
        }
        request.resize(request.len() + CONFIG_BYTES as usize, 0);
        let (answer, _) = connection.ask(code::GET_CONFIG, &request)?;
        let space = answer.get(12..).unwrap_or_default();
        if space.len() != CONFIG_BYTES as usize {
            return Err(io::Error::other("the back end has no configuration"));
        }
        let word = |at: usize| {
            let bytes = space[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes)
        };
        let sectors = u64::from(word(4)) << 32 | u64::from(word(0));
        let block_bytes = word(20);
        if !matches!(block_bytes, 512 | 4096) {
            return Err(io::Error::other("the block size is neither 512 nor 4096"));
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

impl Shared {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self) -> MutexGuard<'_, Vec<u16>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Takes a free queue and starts it.
    fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let message = "all queues of the back end are in use: give it more by --queues";
        let index = shared.free().pop();
        let index = index.ok_or_else(|| io::Error::other(message))?;
        let base = AREA_BYTES * usize::from(index);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        // From here on, its end gives the queue back.
        let queue = Self {
            ring: DriverRing::new(Arc::clone(&shared.memory), base)?,
            shared: Arc::clone(shared),
            index,
            kick: eventfd(0, flags)?,
            call: eventfd(0, flags)?,
        };
        let mut connection = shared.connection();
        let state = |number| vring_state(index, number);
        connection.tell(code::SET_VRING_NUM, &state(ENTRIES.into()), &[])?;
        connection.tell(code::SET_VRING_BASE, &state(0), &[])?;
        let mut addresses = state(0).to_vec();
        for address in queue.ring.addresses() {
            addresses.extend_from_slice(&address.to_le_bytes());
        }
        addresses.extend_from_slice(&0u64.to_le_bytes());
        connection.tell(code::SET_VRING_ADDR, &addresses, &[])?;
        let number = u64::from(index).to_le_bytes();
        connection.tell(code::SET_VRING_CALL, &number, &[queue.call.as_fd()])?;
        connection.tell(code::SET_VRING_KICK, &number, &[queue.kick.as_fd()])?;
        connection.tell(code::SET_VRING_ENABLE, &state(1), &[])?;
        drop(connection);
        Ok(queue)
    }

    /// Shows the device what was made available, and tells it if it wants to know.
    #[expect(
        clippy::host_endian_bytes,
        reason = "the counter is a number of this machine"
    )]
    fn publish(&mut self) {
        if self.ring.publish() {
            // A counter that is full has told already.
            let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let state = vring_state(self.index, 0);
        let stopped = self.shared.connection().ask(code::GET_VRING_BASE, &state);
        // A queue that did not stop may be used by the device still.
        if stopped.is_ok() {
            self.shared.free().push(self.index);
        }
    }
}

impl Device for VhostDisk {
    fn geometry(&self) -> Geometry {
        let config = self.config();
        // A back end that is gone has no blocks.
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
            remedy: "look at what its back end says",
        })?;
        Ok(Box::new(channel))
    }
}
