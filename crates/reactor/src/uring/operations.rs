//! The table of the ring's operations, and the handling of their completions.

use super::socket::{self, Socket};
use super::{UringDriver, ring};
use crate::limits::LISTENERS_MAX;
use crate::memory::IoSlice;
use crate::op::{Allocation, FileId, Op, OpKey, Outcome, SocketId, SocketOptions, UblkCommand};
use crate::tls::Session;
use crate::tls::pool::ConnectTls;
use base::{Nanos, Slab, SlabKey};
use io_uring::{cqueue, opcode, squeue, types};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// User data of entries without an owner (cancellations, linked timeouts).
const IGNORED: u64 = u64::MAX;

const POLL_IN: u32 = (libc::POLLIN | libc::POLLRDHUP) as u32;
const POLL_OUT: u32 = libc::POLLOUT as u32;

/// `RWF_DSYNC`: the write completes once its data is on stable storage.
const DURABLE: i32 = libc::RWF_DSYNC;

/// Maximum bytes of one kernel transfer (`MAX_RW_COUNT`): larger transfers return a short count.
const TRANSFER_MAX: u32 = 0x7FFF_F000;

/// Largest offset; the kernel interprets −1 as the file's own position.
const OFFSET_MAX: u64 = i64::MAX.unsigned_abs();

/// Maximum consecutive restarts of a watch. The kernel ends a watch when it is out of room; for an
/// always readable file it ends each watch at once, which would keep a core busy.
const WATCH_ENDS_MAX: u8 = 16;

/// Error of a connect when its core has no room for another connection.
const NO_ROOM: &str =
    "the limit of connections per core is reached; close connections, or raise the limit";

/// Returns the maximum number of operations in flight, summed over their users.
pub(super) const fn table_entries(sockets: usize, file_operations: usize) -> usize {
    // A socket is watched for arrivals and for room; before that, it was a connect.
    sockets * 2
        // A listener accepts, or pauses before it accepts again.
        + LISTENERS_MAX
        + file_operations
        // The event counter.
        + 1
}

/// Returns the error for reading into memory with other readers.
pub(super) fn shared_memory() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "cannot read into a shared buffer",
    )
}

/// An operation of the ring. It owns all memory that was passed to the kernel.
#[derive(Debug)]
pub(super) enum RingOp {
    /// Watches the core's event counter.
    Wake,
    /// Watches a socket for data to receive.
    Arrival(SlabKey),
    /// Watches a socket for room to send.
    SendSpace(SlabKey),
    /// Accepts connections.
    Accept(SlabKey, OpKey),
    /// Pauses before accepting again.
    AcceptPause(SlabKey, OpKey),
    /// Connects.
    Connect(OpKey, OwnedFd, Option<Box<ConnectTls>>),
    /// A file operation.
    File(OpKey, Option<IoSlice>),
    /// A command held by a ublk device.
    Ublk(OpKey),
    /// Watches a file for readability.
    Watch(Watch),
}

/// The watch of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    pub(super) key: OpKey,
    file: FileId,
    /// It is ending, and is not restarted.
    ending: bool,
    /// Consecutive times that the kernel ended it.
    ends: u8,
}

/// An entry of the operation table.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) kind: RingOp,
    /// A timeout that the kernel reads when the entry is submitted.
    timeout: types::Timespec,
}

/// Adds an operation to the table; see [`UringDriver::enter_operation`].
pub(super) fn enter(operations: &mut Slab<Operation>, kind: RingOp) -> SlabKey {
    let operation = Operation {
        kind,
        timeout: types::Timespec::new(),
    };
    operations.insert(operation).unwrap_or_else(|operation| {
        panic!("the operation table has room for everything that may be in flight: {operation:?}")
    })
}

/// Watches a socket for data to receive.
pub(super) fn poll_in(fd: &OwnedFd) -> squeue::Entry {
    opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), POLL_IN).build()
}

/// Watches a socket for room to send.
pub(super) fn poll_out(fd: &OwnedFd) -> squeue::Entry {
    opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), POLL_OUT).build()
}

/// Converts the kernel's result.
pub(super) fn io_result(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

impl UringDriver {
    /// Adds an operation to the table.
    ///
    /// [`table_entries`] counts a slot for everything that may be in flight, and callers bound
    /// everything in flight, so the table cannot be full.
    pub(super) fn enter_operation(&mut self, kind: RingOp) -> SlabKey {
        enter(&mut self.operations, kind)
    }

    /// Sets the timeout of an operation, and returns its address for the kernel. It is stored in
    /// the table, where it stays until the operation completes.
    pub(super) fn set_timeout(
        &mut self,
        operation: SlabKey,
        span: Nanos,
    ) -> *const types::Timespec {
        let entry = self.operations.get_mut(operation).expect("just entered");
        entry.timeout = ring::timespec(span);
        &raw const entry.timeout
    }

    pub(super) fn push(&mut self, entry: squeue::Entry, key: SlabKey) {
        self.ring.push(entry.user_data(key.tag()));
    }

    pub(super) fn watch_waker(&mut self) {
        let fd = types::Fd(self.waker.fd.as_raw_fd());
        let key = self.enter_operation(RingOp::Wake);
        let entry = opcode::PollAdd::new(fd, POLL_IN).multi(true).build();
        self.push(entry, key);
    }

    /// Cancels an operation in the ring; it still completes.
    pub(super) fn cancel(&mut self, operation: u64) {
        let entry = opcode::AsyncCancel::new(operation)
            .build()
            .user_data(IGNORED);
        self.ring.push(entry);
    }

    pub(super) fn start_connect(
        &mut self,
        key: OpKey,
        address: SocketAddr,
        options: &SocketOptions,
        timeout: Nanos,
    ) {
        let begun = if self.room_for_socket() {
            begin_connect(address, options)
        } else {
            Err(io::Error::new(io::ErrorKind::ResourceBusy, NO_ROOM))
        };
        let fd = match begun {
            Ok(fd) => fd,
            Err(error) => return self.complete(key, Outcome::Connected(Err(error))),
        };
        self.connecting += 1;
        let raw = types::Fd(fd.as_raw_fd());
        let tls =
            ConnectTls::new(address, options, self.now + timeout, begin_connect).map(Box::new);
        let operation = self.enter_operation(RingOp::Connect(key, fd, tls));
        let timespec = self.set_timeout(operation, timeout);
        let poll = opcode::PollAdd::new(raw, POLL_OUT)
            .build()
            .flags(squeue::Flags::IO_LINK);
        // A kernel with memory for the first entry only starts it without the second: the
        // connection's own timeout then ends it (`net.ipv4.tcp_syn_retries`, about 2 minutes).
        let limit = opcode::LinkTimeout::new(timespec)
            .build()
            .user_data(IGNORED);
        let entries = [poll.user_data(operation.tag()), limit];
        self.ring.push_together(&entries);
    }

    pub(super) fn start_file(&mut self, key: OpKey, op: Op) {
        if let Op::Watch { file } = op {
            return self.start_watch(Watch {
                key,
                file,
                ending: false,
                ends: 0,
            });
        }
        let file = match &op {
            Op::Read { file, .. }
            | Op::Write { file, .. }
            | Op::Sync { file }
            | Op::Allocate { file, .. }
            | Op::Ublk { file, .. } => *file,
            _ => unreachable!("only file operations come here"),
        };
        let refused = match (&op, self.file_descriptor(file)) {
            (_, None) => Err(io::ErrorKind::NotFound.into()),
            (Op::Read { slice, .. }, _) if !slice.is_writable() => Err(shared_memory()),
            (Op::Read { offset, .. } | Op::Write { offset, .. }, _) if *offset > OFFSET_MAX => {
                Err(io::ErrorKind::InvalidInput.into())
            }
            (_, Some(fd)) => Ok(fd),
        };
        let fd = match refused {
            Ok(fd) => fd,
            Err(error) => {
                let slice = match op {
                    Op::Read { slice, .. } | Op::Write { slice, .. } => Some(slice),
                    _ => None,
                };
                let result = Err(error);
                return self.complete(key, Outcome::File { result, slice });
            }
        };
        let (entry, kind) = match op {
            Op::Ublk {
                queue,
                tag,
                command,
                ..
            } => (ublk_entry(fd, queue, tag, command), RingOp::Ublk(key)),
            op => {
                let (entry, slice) = file_entry(fd, op);
                (entry, RingOp::File(key, slice))
            }
        };
        let operation = self.enter_operation(kind);
        self.file_operations += 1;
        self.push(entry, operation);
    }

    /// Starts watching a file for readability.
    fn start_watch(&mut self, watch: Watch) {
        let Some(fd) = self.file_descriptor(watch.file) else {
            let gone = Err(io::ErrorKind::NotFound.into());
            return self.complete(watch.key, Outcome::Readable(gone));
        };
        let operation = self.enter_operation(RingOp::Watch(watch));
        self.file_operations += 1;
        let entry = opcode::PollAdd::new(fd, POLL_IN).multi(true).build();
        self.push(entry, operation);
    }

    /// Ends the watch of a file, if there is one.
    pub(super) fn stop_watch(&mut self, file: FileId) {
        let watched = self
            .operations
            .iter()
            .find(|(_, entry)| matches!(&entry.kind, RingOp::Watch(watch) if watch.file == file))
            .map(|(operation, _)| operation);
        if let Some(operation) = watched {
            let entry = self.operations.get_mut(operation);
            if let Some(RingOp::Watch(watch)) = entry.map(|entry| &mut entry.kind) {
                watch.ending = true;
            }
            self.cancel(operation.tag());
        }
        let waits = |op: &Op| matches!(op, Op::Watch { file: watched } if *watched == file);
        if let Some(index) = self.backlog.iter().position(|(_, op)| waits(op)) {
            let (key, _) = self.backlog.remove(index).expect("it was just found");
            self.complete(key, Outcome::Readable(Err(super::canceled())));
        }
    }

    /// Handles the end of a watch, requested or not.
    fn watch_ended(&mut self, watch: Watch, result: i32) {
        self.file_operations -= 1;
        let error = match io_result(result) {
            Err(error) => error,
            Ok(_) if watch.ending => super::canceled(),
            Ok(_) if watch.ends == WATCH_ENDS_MAX => io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot wait for a file that is always readable",
            ),
            Ok(_) => {
                // The kernel was out of room to continue by itself.
                self.complete(watch.key, Outcome::Readable(Ok(())));
                let ends = watch.ends + 1;
                return self.start_watch(Watch { ends, ..watch });
            }
        };
        self.complete(watch.key, Outcome::Readable(Err(error)));
    }

    fn file_descriptor(&self, file: FileId) -> Option<types::Fd> {
        let file = self.files.get(file.0 as usize)?.as_ref()?;
        Some(types::Fd(file.as_raw_fd()))
    }

    /// Handles a completed operation of the ring.
    pub(super) fn ring_completed(&mut self, data: u64, result: i32, flags: u32) {
        if data == IGNORED {
            return;
        }
        let key = SlabKey::from_tag(data);
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
                self.watch_waker();
            }
            RingOp::Arrival(socket) => self.arrived(socket),
            RingOp::SendSpace(socket) => {
                if let Some(entry) = self.sockets.get_mut(socket) {
                    entry.poll_out = None;
                }
                self.finish_close(socket);
                self.continue_sending(socket);
            }
            RingOp::Accept(listener, key) => self.accept_ended(listener, key, result),
            RingOp::AcceptPause(listener, key) => self.accept_again(listener, key),
            RingOp::Connect(key, fd, tls) => match (finish_connect(&fd, result), tls) {
                (Ok(()), Some(tls)) => self.shake_hands(key, fd, *tls),
                (result, _) => {
                    self.connecting -= 1;
                    let connected = result.map(|()| self.adopt_fd(fd, None));
                    self.complete(key, Outcome::Connected(connected));
                }
            },
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
            RingOp::Ublk(key) => {
                self.file_operations -= 1;
                let result = io_result(result);
                self.complete(
                    key,
                    Outcome::File {
                        result,
                        slice: None,
                    },
                );
            }
            RingOp::Watch(watch) => self.watch_ended(watch, result),
        }
    }

    /// Handles an event of a ring operation that continues.
    fn ring_event(&mut self, key: SlabKey, result: i32) {
        let entry = self.operations.get_mut(key);
        match entry.map(|operation| &mut operation.kind) {
            // Every write to the counter is a separate event, whatever its value.
            Some(RingOp::Wake) => {}
            Some(&mut RingOp::Accept(listener, key)) => self.accepted(listener, key, result),
            Some(RingOp::Watch(watch)) => {
                watch.ends = 0;
                let key = watch.key;
                self.complete(key, Outcome::Readable(Ok(())));
            }
            _ => debug_assert!(false, "only multishot operations go on"),
        }
    }

    fn arrived(&mut self, key: SlabKey) {
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.poll_in = None;
        }
        self.finish_close(key);
        let now = self.now;
        let (arrivals, mut receiver) = self.split();
        arrivals.arrived(key, now, &mut receiver);
    }

    /// Returns true if there is room for another socket in addition to those being connected.
    pub(super) fn room_for_socket(&self) -> bool {
        self.sockets.len() + self.connecting < self.sockets.capacity()
    }

    pub(super) fn adopt_fd(&mut self, fd: OwnedFd, session: Option<Box<Session>>) -> SocketId {
        let key = self
            .sockets
            .insert(Socket::new(fd, session, self.now))
            .unwrap_or_else(|_| {
                panic!("the owner of a core keeps its connections within the driver's limit")
            });
        SocketId(key.index)
    }
}

fn file_entry(fd: types::Fd, op: Op) -> (squeue::Entry, Option<IoSlice>) {
    let len = |slice: &IoSlice| {
        u32::try_from(slice.len()).map_or(TRANSFER_MAX, |len| len.min(TRANSFER_MAX))
    };
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

/// The entry of a command for a ublk device: queue, tag, result, and an address of 0.
#[expect(
    clippy::host_endian_bytes,
    reason = "the kernel's structure has this machine's order"
)]
fn ublk_entry(fd: types::Fd, queue: u16, tag: u16, command: UblkCommand) -> squeue::Entry {
    /// `_IOWR('u', number, struct ublksrv_io_cmd)`, a structure of 16 bytes.
    const fn code(number: u32) -> u32 {
        3 << 30 | 16 << 16 | (b'u' as u32) << 8 | number
    }
    let (code, result) = match command {
        UblkCommand::Fetch => (code(0x20), 0),
        UblkCommand::Commit(result) => (code(0x21), result),
    };
    let mut payload = [0; 16];
    payload[..2].copy_from_slice(&queue.to_ne_bytes());
    payload[2..4].copy_from_slice(&tag.to_ne_bytes());
    payload[4..8].copy_from_slice(&result.to_ne_bytes());
    opcode::UringCmd16::new(fd, code).cmd(payload).build()
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
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {
            socket::tune_to_peer(&fd, address, options);
            Ok(fd)
        }
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
