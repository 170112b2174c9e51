//! A hand-written guest with its monitor, which can also send invalid messages.
#![allow(dead_code)] // No test uses all of it.

use load::vhost::messages::{Connection, F_PROTOCOL_FEATURES, code, protocol, vring_state};
use load::vhost::ring::{AREA_BYTES, DriverRing, ENTRIES};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::io::Read as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes as _, FileOffset, VolatileMemory as _};

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
const FEATURES: u64 = 1 << 29 | 1 << 32 | 1 << 9 | F_PROTOCOL_FEATURES;

/// A protocol feature, and its messages.
const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
pub(crate) const GET_MAX_MEM_SLOTS: u32 = 36;
const ADD_MEM_REG: u32 = 37;

/// Offset of an indirect table, within the data of an otherwise unused slot.
const TABLE_AT: usize = AREA_BYTES - 4096;

/// Offset of the descriptor states in the record of outstanding requests.
const STATES_AT: usize = 16;

pub(crate) struct Guest {
    pub(crate) connection: Connection,
    pub(crate) ring: DriverRing,
    file: OwnedFd,
    memory: Arc<MmapRegion>,
    kick: OwnedFd,
    call: OwnedFd,
    error: OwnedFd,
    /// The record of outstanding requests, with its description.
    tracked: Option<(Vec<u8>, OwnedFd)>,
}

fn counter() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Waits until the descriptor is readable.
fn wait_for(fd: &OwnedFd) {
    let mut ready = [PollFd::new(fd, PollFlags::IN)];
    let patience = Duration::from_secs(60).try_into().unwrap();
    assert_eq!(poll(&mut ready, Some(&patience)), Ok(1), "nothing came");
}

fn negotiate(connection: &mut Connection) {
    let offered = connection.ask_number(code::GET_FEATURES).unwrap();
    assert_eq!(offered & FEATURES, FEATURES);
    let offered = connection.ask_number(code::GET_PROTOCOL_FEATURES).unwrap();
    let wanted = protocol::MQ
        | protocol::REPLY_ACK
        | protocol::BACKEND_REQ
        | protocol::CONFIG
        | protocol::INFLIGHT_SHMFD
        | CONFIGURE_MEM_SLOTS;
    assert_eq!(offered & wanted, wanted);
    let features = wanted.to_le_bytes();
    connection
        .tell(code::SET_PROTOCOL_FEATURES, &features, &[])
        .unwrap();
    connection.acknowledge();
    connection.tell(code::SET_OWNER, &[], &[]).unwrap();
    let features = FEATURES.to_le_bytes();
    connection.tell(code::SET_FEATURES, &features, &[]).unwrap();
}

impl Guest {
    pub(crate) fn connect(path: &Path) -> Self {
        let mut connection = Connection::open(path).unwrap();
        negotiate(&mut connection);
        let file = memfd_create(c"guest", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, AREA_BYTES as u64).unwrap();
        let offset = FileOffset::new(file.try_clone().unwrap().into(), 0);
        let memory = Arc::new(MmapRegion::from_file(offset, AREA_BYTES).unwrap());
        let mut guest = Self {
            connection,
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
        let mut table = 1u64.to_le_bytes().to_vec();
        for field in [0, AREA_BYTES as u64, 0, 0] {
            table.extend_from_slice(&field.to_le_bytes());
        }
        let files = [self.file.as_fd()];
        self.connection
            .tell(code::SET_MEM_TABLE, &table, &files)
            .unwrap();
    }

    pub(crate) fn start(&mut self, base: u16) {
        let state = |number| vring_state(0, number);
        let mut tell = |code, payload: &[u8], files: &[_]| {
            self.connection.tell(code, payload, files).unwrap();
        };
        tell(code::SET_VRING_NUM, &state(ENTRIES.into()), &[]);
        tell(code::SET_VRING_BASE, &state(base.into()), &[]);
        let mut addresses = state(0).to_vec();
        for address in self.ring.addresses() {
            addresses.extend_from_slice(&address.to_le_bytes());
        }
        addresses.extend_from_slice(&[0; 8]);
        tell(code::SET_VRING_ADDR, &addresses, &[]);
        tell(code::SET_VRING_CALL, &state(0), &[self.call.as_fd()]);
        tell(code::SET_VRING_ERR, &state(0), &[self.error.as_fd()]);
        tell(code::SET_VRING_KICK, &state(0), &[self.kick.as_fd()]);
        tell(code::SET_VRING_ENABLE, &state(1), &[]);
    }

    /// Stops the queue; returns the index of the next chain.
    pub(crate) fn stop(&mut self) -> u32 {
        let state = vring_state(0, 0);
        let (answer, _) = self.connection.ask(code::GET_VRING_BASE, &state).unwrap();
        u32::from_le_bytes(answer[4..].try_into().unwrap())
    }

    pub(crate) fn publish(&mut self) {
        if self.ring.publish() {
            rustix::io::write(&self.kick, &1u64.to_ne_bytes()).unwrap();
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
                let _ = rustix::io::read(&self.call, &mut [0; 8]);
            }
        }
        answers.sort_unstable();
        answers.into_iter().map(|(_, status)| status).collect()
    }

    /// Makes the running queue report errors through another event counter.
    pub(crate) fn change_error(&mut self) {
        self.error = counter();
        let files = [self.error.as_fd()];
        let state = vring_state(0, 0);
        self.connection
            .tell(code::SET_VRING_ERR, &state, &files)
            .unwrap();
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
        let files = [theirs.as_fd()];
        self.connection
            .tell(code::SET_BACKEND_REQ_FD, &[], &files)
            .unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        ours
    }

    pub(crate) fn sectors(&mut self) -> u64 {
        let mut request = [0u32, 60, 0].map(u32::to_le_bytes).concat();
        request.resize(72, 0);
        let (answer, _) = self.connection.ask(code::GET_CONFIG, &request).unwrap();
        u64::from_le_bytes(answer[12..20].try_into().unwrap())
    }

    /// Restarts the queue, with outstanding requests recorded from now on.
    pub(crate) fn track(&mut self) {
        let base = self.stop();
        self.make_record();
        self.start(base.try_into().unwrap());
    }

    /// Requests an empty record, and shares it.
    fn make_record(&mut self) {
        let mut wanted = vec![0; 16];
        wanted.extend_from_slice(&1u16.to_le_bytes());
        wanted.extend_from_slice(&ENTRIES.to_le_bytes());
        // The structure of the `vhost` crate ends with padding.
        wanted.resize(24, 0);
        let (given, file) = self.connection.ask(code::GET_INFLIGHT_FD, &wanted).unwrap();
        self.tracked = Some((given, file.unwrap()));
        self.tell_tracked();
    }

    fn tell_tracked(&mut self) {
        let (given, file) = self.tracked.as_ref().unwrap();
        let files = [file.as_fd()];
        self.connection
            .tell(code::SET_INFLIGHT_FD, given, &files)
            .unwrap();
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
        let (given, file) = self.tracked.as_ref().unwrap();
        let files = [file.as_fd()];
        let told = self.connection.tell(code::SET_INFLIGHT_FD, given, &files);
        told.is_err()
    }

    /// Adds memory at this guest address.
    pub(crate) fn add_memory(&mut self, at: u64, bytes: usize) -> MmapRegion {
        let file = memfd_create(c"module", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes as u64).unwrap();
        // Padding, guest address, size, user address, offset in the file.
        let fields = [0, at, bytes as u64, at, 0].map(u64::to_le_bytes);
        let files = [file.as_fd()];
        self.connection
            .tell(ADD_MEM_REG, &fields.concat(), &files)
            .unwrap();
        MmapRegion::from_file(FileOffset::new(file.into(), 0), bytes).unwrap()
    }

    /// Closes the connection, and keeps everything else.
    pub(crate) fn leave(&mut self) {
        let path = block::temporary("away.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        self.connection = Connection::open(&path).unwrap();
    }

    /// Continues with a back end at index `base`, with the record of outstanding requests if there
    /// is one.
    pub(crate) fn come_back(&mut self, path: &Path, base: u16) {
        if self.tracked.is_some() {
            self.reconnect(path);
        } else {
            self.reconnect_untracked(path, base);
        }
    }

    /// Continues with another back end, which receives the whole state of this one.
    pub(crate) fn reconnect(&mut self, path: &Path) {
        self.connect_anew(path);
        self.tell_tracked();
        self.start(0);
    }

    /// Continues with another back end at index `base`, without a record of outstanding requests.
    pub(crate) fn reconnect_untracked(&mut self, path: &Path, base: u16) {
        self.connect_anew(path);
        self.start(base);
    }

    /// Continues with another back end like a restarted monitor: with an empty record.
    pub(crate) fn reconnect_anew(&mut self, path: &Path) {
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

    fn connect_anew(&mut self, path: &Path) {
        // A back end serves the next connection after the end of this one.
        self.connection = Connection::open(path).unwrap();
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
