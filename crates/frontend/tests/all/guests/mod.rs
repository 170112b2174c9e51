//! A hand-written guest with its monitor, which can also send invalid messages.
#![allow(dead_code)] // No test uses all of it.

use load::vhost::file_of;
use load::vhost::ring::{AREA_BYTES, DriverRing, ENTRIES};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{
    FrontendReq, VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight,
};
use vhost::vhost_user::{
    Frontend, VhostUserFrontend as _, VhostUserProtocolFeatures as Protocol,
    VhostUserVirtioFeatures,
};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo};
use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes as _, FileOffset, VolatileMemory as _};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

pub(crate) const IN: u32 = 0;
pub(crate) const OUT: u32 = 1;
pub(crate) const FLUSH: u32 = 4;
pub(crate) const GET_ID: u32 = 8;
pub(crate) const WRITE_ZEROES: u32 = 13;

pub(crate) const OK: u8 = 0;
pub(crate) const IO_ERROR: u8 = 1;
pub(crate) const UNSUPPORTED: u8 = 2;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// Event index, version 1, flush, and protocol features.
const FEATURES: u64 =
    1 << 29 | 1 << 32 | 1 << 9 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

/// Offset of an indirect table, within the data of an otherwise unused slot.
const TABLE_AT: usize = AREA_BYTES - 4096;

/// Offset of the descriptor states in the record of outstanding requests.
const STATES_AT: usize = 16;

pub(crate) struct Guest {
    pub(crate) connection: Frontend,
    /// The connection's socket.
    socket: UnixStream,
    pub(crate) ring: DriverRing,
    file: OwnedFd,
    memory: Arc<MmapRegion>,
    kick: EventFd,
    call: EventFd,
    error: EventFd,
    /// The record of outstanding requests, with its description.
    tracked: Option<(VhostUserInflight, OwnedFd)>,
}

fn counter() -> EventFd {
    EventFd::new(EFD_NONBLOCK).unwrap()
}

/// Waits until the counter is not zero.
fn wait_for(counter: &EventFd) {
    let file = file_of(counter).unwrap();
    let mut ready = [PollFd::new(&file, PollFlags::IN)];
    let patience = Duration::from_secs(60).try_into().unwrap();
    assert_eq!(poll(&mut ready, Some(&patience)), Ok(1), "nothing came");
}

/// Connects to a back end, without a message.
pub(crate) fn open(path: &Path) -> (Frontend, UnixStream) {
    let socket = UnixStream::connect(path).unwrap();
    // More queues than any back end has, so that the back end is the one that refuses.
    let connection = Frontend::from_stream(socket.try_clone().unwrap(), 256);
    (connection, socket)
}

fn negotiate(connection: &mut Frontend) {
    assert_eq!(connection.get_features().unwrap() & FEATURES, FEATURES);
    let wanted = Protocol::MQ
        | Protocol::REPLY_ACK
        | Protocol::BACKEND_REQ
        | Protocol::CONFIG
        | Protocol::INFLIGHT_SHMFD
        | Protocol::CONFIGURE_MEM_SLOTS;
    assert!(connection.get_protocol_features().unwrap().contains(wanted));
    connection.set_protocol_features(wanted).unwrap();
    connection.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    connection.set_owner().unwrap();
    connection.set_features(FEATURES).unwrap();
}

/// Memory of a guest, as shared with a back end.
fn region(file: &OwnedFd, at: u64, bytes: usize) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: at,
        memory_size: bytes as u64,
        userspace_addr: at,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    }
}

impl Guest {
    pub(crate) fn connect(path: &Path) -> Self {
        let (mut connection, socket) = open(path);
        negotiate(&mut connection);
        let file = memfd_create(c"guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, AREA_BYTES as u64).unwrap();
        let offset = FileOffset::new(file.try_clone().unwrap().into(), 0);
        let memory = Arc::new(MmapRegion::from_file(offset, AREA_BYTES).unwrap());
        let mut guest = Self {
            connection,
            socket,
            ring: DriverRing::new(Arc::clone(&memory), 0).unwrap(),
            file,
            memory,
            kick: counter(),
            call: counter(),
            error: counter(),
            tracked: None,
        };
        guest.share_again();
        guest.start(0);
        guest
    }

    /// Shares the memory with the back end again.
    pub(crate) fn share_again(&mut self) {
        let region = region(&self.file, 0, AREA_BYTES);
        self.connection.set_mem_table(&[region]).unwrap();
    }

    pub(crate) fn start(&mut self, base: u16) {
        let connection = &mut self.connection;
        connection.set_vring_num(0, ENTRIES).unwrap();
        connection.set_vring_base(0, base).unwrap();
        let addresses = self.ring.addresses();
        connection.set_vring_addr(0, &addresses).unwrap();
        connection.set_vring_call(0, &self.call).unwrap();
        connection.set_vring_err(0, &self.error).unwrap();
        connection.set_vring_kick(0, &self.kick).unwrap();
        connection.set_vring_enable(0, true).unwrap();
    }

    /// Stops the queue; returns the index of the next chain.
    pub(crate) fn stop(&mut self) -> u32 {
        self.connection.get_vring_base(0).unwrap()
    }

    /// Sends a request that no ordinary front end sends. Returns true if the back end refuses it.
    pub(crate) fn is_refused(&mut self, code: FrontendReq, payload: u64) -> bool {
        let needs_reply = VhostUserHeaderFlag::NEED_REPLY.bits();
        let mut message = [code as u32, 1 | needs_reply, 8]
            .map(u32::to_le_bytes)
            .concat();
        message.extend_from_slice(&payload.to_le_bytes());
        self.socket.write_all(&message).unwrap();
        // A header, and the result.
        let mut answer = [0; 20];
        self.socket.read_exact(&mut answer).is_err() || answer[12..] != [0; 8]
    }

    pub(crate) fn publish(&mut self) {
        if self.ring.publish() {
            self.kick.write(1).unwrap();
        }
    }

    /// Publishes, waits for `count` completions, and returns their statuses by slot.
    pub(crate) fn answers(&mut self, count: usize) -> Vec<u8> {
        self.publish();
        let mut answers = Vec::new();
        while answers.len() < count {
            if let Some((slot, status, _)) = self.ring.take() {
                answers.push((slot, status));
            } else if !self.ring.arm() {
                wait_for(&self.call);
                let _ = self.call.read();
            }
        }
        answers.sort_unstable();
        answers.into_iter().map(|(_, status)| status).collect()
    }

    /// Makes the running queue report errors through another event counter.
    pub(crate) fn change_error(&mut self) {
        self.error = counter();
        self.connection.set_vring_err(0, &self.error).unwrap();
    }

    pub(crate) fn wait_for_error(&self) {
        wait_for(&self.error);
    }

    /// Writes a flush as an indirect table at descriptor 0; `flags` are added to its status
    /// descriptor.
    pub(crate) fn indirect(&self, flags: u16) {
        let slice = self.memory.as_volatile_slice();
        let table = TABLE_AT as u64;
        let descriptor = |index: usize, address: u64, len: u32, flags: u16, next: u16| {
            let at = TABLE_AT + 16 * index;
            slice.write_obj(address, at).unwrap();
            slice.write_obj(len, at + 8).unwrap();
            slice.write_obj(flags, at + 12).unwrap();
            slice.write_obj(next, at + 14).unwrap();
        };
        slice.write_obj(FLUSH, TABLE_AT + 256).unwrap();
        descriptor(0, table + 256, 16, NEXT, 1);
        descriptor(1, table, 32, WRITE | flags, 0);
        if flags == 0 {
            descriptor(1, table + 512, 1, WRITE, 0);
        }
        self.ring.describe(0, table, 32, INDIRECT, 0);
    }

    pub(crate) fn backend_channel(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.connection.set_backend_request_fd(&theirs).unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        ours
    }

    pub(crate) fn sectors(&mut self) -> u64 {
        let flags = VhostUserConfigFlags::empty();
        let (_, space) = self.connection.get_config(0, 60, flags, &[0; 60]).unwrap();
        u64::from_le_bytes(space[..8].try_into().unwrap())
    }

    /// Restarts the queue, with outstanding requests recorded from now on.
    pub(crate) fn track(&mut self) {
        let base = self.stop();
        self.make_record();
        self.start(base.try_into().unwrap());
    }

    /// Requests an empty record, and shares it.
    fn make_record(&mut self) {
        let wanted = VhostUserInflight {
            num_queues: 1,
            queue_size: ENTRIES,
            ..Default::default()
        };
        let (given, file) = self.connection.get_inflight_fd(&wanted).unwrap();
        self.tracked = Some((given, file.into()));
        self.tell_tracked().unwrap();
    }

    fn tell_tracked(&mut self) -> vhost::Result<()> {
        let (given, file) = self.tracked.as_ref().unwrap();
        self.connection.set_inflight_fd(given, file.as_raw_fd())
    }

    /// Waits until `count` requests are recorded.
    pub(crate) fn wait_until_tracked(&self, count: usize) {
        let (_, file) = self.tracked.as_ref().unwrap();
        let mut record = vec![0; STATES_AT + 16 * usize::from(ENTRIES)];
        let by = Instant::now() + Duration::from_secs(60);
        loop {
            assert!(Instant::now() < by, "they are not recorded");
            rustix::io::pread(file, &mut record, 0).unwrap();
            let states = record[STATES_AT..].chunks_exact(16);
            if states.filter(|state| state[0] == 1).count() == count {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Uses a copy of the current record from now on, as if the back end were killed now. Later
    /// changes by that back end go to its own record only.
    pub(crate) fn take_record(&mut self) {
        let (_, file) = self.tracked.as_mut().unwrap();
        let bytes = rustix::fs::fstat(&*file).unwrap().st_size;
        let mut record = vec![0; usize::try_from(bytes).unwrap()];
        assert_eq!(rustix::io::pread(&*file, &mut record, 0), Ok(record.len()));
        let copy = memfd_create(c"record", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(rustix::io::write(&copy, &record), Ok(record.len()));
        *file = copy;
    }

    /// Connects to another back end; returns true if it refuses the record.
    pub(crate) fn is_refused_at(&mut self, path: &Path) -> bool {
        self.connect_anew(path);
        self.tell_tracked().is_err()
    }

    /// Adds memory at this guest address.
    pub(crate) fn add_memory(&mut self, at: u64, bytes: usize) -> MmapRegion {
        let file = memfd_create(c"module", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes as u64).unwrap();
        let region = region(&file, at, bytes);
        self.connection.add_mem_region(&region).unwrap();
        MmapRegion::from_file(FileOffset::new(file.into(), 0), bytes).unwrap()
    }

    /// Closes the connection, and keeps everything else.
    pub(crate) fn leave(&mut self) {
        self.disconnect();
        let path = block::temporary("away.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        (self.connection, self.socket) = open(&path);
    }

    /// Continues with a back end at index `base`, with the record of outstanding requests if there
    /// is one.
    pub(crate) fn come_back(&mut self, path: &Path, base: u16) {
        self.disconnect();
        if self.tracked.is_some() {
            self.reconnect(path);
        } else {
            self.reconnect_untracked(path, base);
        }
    }

    /// Continues with another back end, which receives the whole state of this one.
    pub(crate) fn reconnect(&mut self, path: &Path) {
        self.connect_anew(path);
        self.tell_tracked().unwrap();
        self.start(0);
    }

    /// Continues with another back end at index `base`, without a record of outstanding requests.
    pub(crate) fn reconnect_untracked(&mut self, path: &Path, base: u16) {
        self.connect_anew(path);
        self.start(base);
    }

    /// Continues with another back end like a restarted monitor: with an empty record.
    pub(crate) fn reconnect_anew(&mut self, path: &Path) {
        self.disconnect();
        self.connect_anew(path);
        self.track();
    }

    /// Connects like a restarted monitor, and disconnects before its queue has started.
    pub(crate) fn glance(&mut self, path: &Path) {
        self.connect_anew(path);
        self.make_record();
        // Completes after everything before it.
        self.sectors();
        self.leave();
    }

    /// Ends the connection and waits until the back end has ended its side: until then it takes
    /// requests from the same memory as the next back end.
    fn disconnect(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        while matches!(self.socket.read(&mut [0; 64]), Ok(1..)) {}
    }

    fn connect_anew(&mut self, path: &Path) {
        // A back end serves the next connection after the end of this one.
        (self.connection, self.socket) = open(path);
        negotiate(&mut self.connection);
        self.share_again();
    }
}

/// Receives a message initiated by the back end; returns its code.
pub(crate) fn message(mut channel: &UnixStream) -> u32 {
    let mut header = [0; 12];
    channel.read_exact(&mut header).unwrap();
    u32::from_le_bytes(header[..4].try_into().unwrap())
}
