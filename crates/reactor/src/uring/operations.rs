//! What is with the ring: the table of its operations, and what becomes of their completions.

use super::socket::{self, Socket};
use super::{UringDriver, ring};
use crate::memory::IoSlice;
use crate::op::{
    Allocation, FileId, ListenerId, Op, OpKey, Outcome, SocketId, SocketOptions, Stream,
};
use base::{Nanos, SlabKey};
use io_uring::{cqueue, opcode, squeue, types};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Completions of entries that nobody waits for (cancellations, linked time-outs).
const IGNORED: u64 = u64::MAX;

const POLL_IN: u32 = (libc::POLLIN | libc::POLLRDHUP) as u32;
const POLL_OUT: u32 = libc::POLLOUT as u32;

/// `RWF_DSYNC`: the write completes once its data is on stable storage.
const DURABLE: i32 = libc::RWF_DSYNC;

/// An operation that the ring works on. It owns whatever memory the kernel was given.
#[derive(Debug)]
pub(super) enum RingOp {
    /// Watching the core's event counter.
    Wake,
    /// Watching a socket for something to receive.
    Arrival(SlabKey),
    /// Watching a socket for room to send.
    Room(SlabKey),
    /// Accepting connections.
    Accept(ListenerId, OpKey),
    /// Connecting.
    Connect(OpKey, OwnedFd),
    /// A file operation.
    File(OpKey, Option<IoSlice>),
}

/// An entry of the operation table.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) kind: RingOp,
    /// A time-out that the kernel reads when the entry is submitted.
    timeout: types::Timespec,
}

const fn user_data(key: SlabKey) -> u64 {
    (key.generation as u64) << 32 | key.index as u64
}

fn slab_key(user_data: u64) -> SlabKey {
    let generation = u8::try_from(user_data >> 32 & 0xFF).unwrap_or(0);
    let index = u32::try_from(user_data & 0xFFFF_FFFF).unwrap_or(0);
    SlabKey { index, generation }
}

/// The kernel's answer as a result.
fn io_result(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

impl UringDriver {
    /// Gives an operation a place in the table.
    ///
    /// The table has two places for every socket, one for every file operation, and some for
    /// listeners and connects, so it cannot be full.
    fn enter_operation(&mut self, kind: RingOp) -> SlabKey {
        let operation = Operation {
            kind,
            timeout: types::Timespec::new(),
        };
        self.operations.insert(operation).unwrap_or_else(|operation| {
            panic!("the operation table has room for everything that may be in flight: {operation:?}")
        })
    }

    fn push(&mut self, entry: squeue::Entry, key: SlabKey) {
        self.push_raw(&entry.user_data(user_data(key)));
    }

    fn push_raw(&mut self, entry: &squeue::Entry) {
        // Submitting fails only when the kernel is out of memory for good or the ring is broken;
        // a core without its ring cannot answer for the data of anybody.
        self.ring.push(entry).expect("the ring takes entries");
    }

    pub(super) fn watch_waker(&mut self) -> io::Result<()> {
        let fd = types::Fd(self.waker.fd.as_raw_fd());
        let key = self.enter_operation(RingOp::Wake);
        let entry = opcode::PollAdd::new(fd, POLL_IN).multi(true).build();
        self.ring.push(&entry.user_data(user_data(key)))?;
        self.ring.turn()
    }

    /// Lets the ring tell when something arrives on a socket.
    pub(super) fn watch_arrival(&mut self, key: SlabKey) {
        let Some(socket) = self.sockets.get(key) else {
            return;
        };
        if socket.poll_in.is_some() || socket.closing.is_some() {
            return;
        }
        let fd = types::Fd(socket.fd.as_raw_fd());
        let operation = self.enter_operation(RingOp::Arrival(key));
        self.push(opcode::PollAdd::new(fd, POLL_IN).build(), operation);
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.poll_in = Some(user_data(operation));
        }
    }

    /// Lets the ring tell when a socket has room to send.
    pub(super) fn watch_room(&mut self, key: SlabKey) {
        let Some(socket) = self.sockets.get(key) else {
            return;
        };
        if socket.poll_out.is_some() || socket.closing.is_some() {
            return;
        }
        let fd = types::Fd(socket.fd.as_raw_fd());
        let operation = self.enter_operation(RingOp::Room(key));
        self.push(opcode::PollAdd::new(fd, POLL_OUT).build(), operation);
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.poll_out = Some(user_data(operation));
        }
    }

    /// Takes an operation back from the ring; it completes all the same.
    pub(super) fn cancel(&mut self, operation: u64) {
        let entry = opcode::AsyncCancel::new(operation)
            .build()
            .user_data(IGNORED);
        self.push_raw(&entry);
    }

    pub(super) fn start_accept(&mut self, key: OpKey, listener: ListenerId) {
        let slot = self
            .listeners
            .get(listener.0 as usize)
            .and_then(Option::as_ref);
        let Some(fd) = slot.map(|listener| types::Fd(listener.fd.as_raw_fd())) else {
            let error = io::ErrorKind::NotConnected.into();
            self.complete(key, Outcome::Accepted(Err(error)));
            return;
        };
        let operation = self.enter_operation(RingOp::Accept(listener, key));
        let entry = opcode::AcceptMulti::new(fd)
            .flags(libc::SOCK_CLOEXEC)
            .build();
        self.push(entry, operation);
        if let Some(Some(listener)) = self.listeners.get_mut(listener.0 as usize) {
            listener.accept = Some((key, user_data(operation)));
        }
    }

    pub(super) fn start_connect(
        &mut self,
        key: OpKey,
        address: SocketAddr,
        options: &SocketOptions,
        timeout: Nanos,
    ) {
        let fd = match begin_connect(address, options) {
            Ok(fd) => fd,
            Err(error) => return self.complete(key, Outcome::Connected(Err(error))),
        };
        let raw = types::Fd(fd.as_raw_fd());
        let operation = self.enter_operation(RingOp::Connect(key, fd));
        let entry = self.operations.get_mut(operation).expect("just entered");
        entry.timeout = ring::timespec(timeout);
        let timespec: *const types::Timespec = &raw const entry.timeout;
        let poll = opcode::PollAdd::new(raw, POLL_OUT)
            .build()
            .flags(squeue::Flags::IO_LINK);
        let limit = opcode::LinkTimeout::new(timespec)
            .build()
            .user_data(IGNORED);
        let entries = [poll.user_data(user_data(operation)), limit];
        self.ring
            .push_linked(&entries)
            .expect("the ring takes entries");
    }

    pub(super) fn start_file(&mut self, key: OpKey, op: Op) {
        let file = match &op {
            Op::Read { file, .. }
            | Op::Write { file, .. }
            | Op::Sync { file }
            | Op::Allocate { file, .. } => *file,
            _ => unreachable!("only file operations come here"),
        };
        let Some(fd) = self.file_descriptor(file) else {
            let (Op::Read { slice, .. } | Op::Write { slice, .. }) = op else {
                let result = Err(io::ErrorKind::NotFound.into());
                return self.complete(
                    key,
                    Outcome::File {
                        result,
                        slice: None,
                    },
                );
            };
            let result = Err(io::ErrorKind::NotFound.into());
            return self.complete(
                key,
                Outcome::File {
                    result,
                    slice: Some(slice),
                },
            );
        };
        let (entry, slice) = file_entry(fd, op);
        let operation = self.enter_operation(RingOp::File(key, slice));
        self.file_operations += 1;
        self.push(entry, operation);
    }

    fn file_descriptor(&self, file: FileId) -> Option<types::Fd> {
        let file = self.files.get(file.0 as usize)?.as_ref()?;
        Some(types::Fd(file.as_raw_fd()))
    }

    /// An operation of the ring completed.
    pub(super) fn ring_completed(&mut self, data: u64, result: i32, flags: u32) {
        if data == IGNORED {
            return;
        }
        let key = slab_key(data);
        if cqueue::more(flags) {
            return self.ring_event(key, result);
        }
        let Some(operation) = self.operations.remove(key) else {
            debug_assert!(
                false,
                "a completion for an operation that is not in the table"
            );
            return;
        };
        match operation.kind {
            RingOp::Wake => {
                self.waker.reset();
                self.watch_waker().expect("the ring takes entries");
            }
            RingOp::Arrival(socket) => self.arrived(socket),
            RingOp::Room(socket) => {
                if let Some(entry) = self.sockets.get_mut(socket) {
                    entry.poll_out = None;
                }
                self.finish_close(socket);
                self.continue_sending(socket);
            }
            RingOp::Accept(listener, key) => self.accepted_last(listener, key, result),
            RingOp::Connect(key, fd) => {
                let connected = finish_connect(&fd, result).map(|()| self.adopt_fd(fd));
                self.complete(key, Outcome::Connected(connected));
            }
            RingOp::File(key, slice) => {
                self.file_operations -= 1;
                self.complete(
                    key,
                    Outcome::File {
                        result: io_result(result),
                        slice,
                    },
                );
            }
        }
    }

    /// An operation of the ring brought something, and goes on.
    fn ring_event(&mut self, key: SlabKey, result: i32) {
        match self.operations.get(key).map(|operation| &operation.kind) {
            Some(RingOp::Wake) => self.waker.reset(),
            Some(&RingOp::Accept(listener, key)) => self.accepted(listener, key, result),
            _ => debug_assert!(false, "only multishot operations go on"),
        }
    }

    fn arrived(&mut self, key: SlabKey) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        socket.poll_in = None;
        self.finish_close(key);
        let hot = self.heat_up(key);
        // Without a free receive buffer, or after a false alarm, the socket goes on waiting.
        if !self.try_receive(key) && !hot {
            let waits = self.sockets.get(key).is_some_and(|s| s.receiving.is_some());
            if waits {
                self.watch_arrival(key);
            }
        }
    }

    fn accepted(&mut self, listener: ListenerId, key: OpKey, result: i32) {
        let accepted = io_result(result).and_then(|_| {
            let fd = owned(result);
            let slot = self
                .listeners
                .get(listener.0 as usize)
                .and_then(Option::as_ref);
            let listener = slot.ok_or(io::ErrorKind::ConnectionAborted)?;
            socket::configure(&fd, &listener.options)?;
            let peer = rustix::net::getpeername(&fd)?.ok_or(io::ErrorKind::NotConnected)?;
            let peer = SocketAddr::try_from(peer)?;
            Ok((Stream::Socket(fd), peer))
        });
        self.complete(key, Outcome::Accepted(accepted));
    }

    /// The ring accepts no more: because the listener is closed, or because something is short
    /// (descriptors, memory), or for no reason of ours. Only the middle one is worth telling; the
    /// owner submits a new accept after a pause.
    fn accepted_last(&mut self, listener: ListenerId, key: OpKey, result: i32) {
        let open = self
            .listeners
            .get(listener.0 as usize)
            .is_some_and(Option::is_some);
        if result >= 0 {
            self.accepted(listener, key, result);
            if open {
                self.start_accept(key, listener);
            }
        } else {
            let error = io::Error::from_raw_os_error(-result);
            self.complete(key, Outcome::Accepted(Err(error)));
        }
    }

    pub(super) fn adopt_fd(&mut self, fd: OwnedFd) -> SocketId {
        let key = self
            .sockets
            .insert(Socket::new(fd, self.now))
            .unwrap_or_else(|_| {
                panic!("the owner of a core keeps its connections within the driver's limit")
            });
        SocketId(key.index)
    }
}

fn file_entry(fd: types::Fd, op: Op) -> (squeue::Entry, Option<IoSlice>) {
    let len = |slice: &IoSlice| u32::try_from(slice.len()).expect("a transfer is below 4 GiB");
    match op {
        Op::Read { offset, slice, .. } => {
            let entry = opcode::Read::new(fd, slice.address(), len(&slice))
                .offset(offset)
                .build();
            (entry, Some(slice))
        }
        Op::Write {
            offset,
            slice,
            durable,
            ..
        } => {
            let flags = if durable { DURABLE } else { 0 };
            let entry = opcode::Write::new(fd, slice.address().cast_const(), len(&slice));
            (entry.offset(offset).rw_flags(flags).build(), Some(slice))
        }
        Op::Sync { .. } => {
            let entry = opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build();
            (entry, None)
        }
        Op::Allocate {
            allocation,
            offset,
            len,
            ..
        } => {
            let mode = match allocation {
                Allocation::ZeroRange => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
                Allocation::PunchHole => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            };
            (
                opcode::Fallocate::new(fd, len)
                    .offset(offset)
                    .mode(mode)
                    .build(),
                None,
            )
        }
        _ => unreachable!("only file operations come here"),
    }
}

fn begin_connect(address: SocketAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
    use socket2::{Domain, Protocol, Socket as Raw, Type};
    let raw = Raw::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    raw.set_nonblocking(true)?;
    let fd: OwnedFd = raw.into();
    socket::configure(&fd, options)?;
    match rustix::net::connect(&fd, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(fd),
        Err(error) => Err(error.into()),
    }
}

fn finish_connect(fd: &OwnedFd, result: i32) -> io::Result<()> {
    if result == -libc::ECANCELED {
        return Err(io::ErrorKind::TimedOut.into());
    }
    io_result(result)?;
    match rustix::net::sockopt::socket_error(fd)? {
        Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[expect(
    unsafe_code,
    reason = "the kernel hands the descriptor over as a number"
)]
fn owned(fd: i32) -> OwnedFd {
    // SAFETY: an accept that completed with this number made the descriptor for us alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
