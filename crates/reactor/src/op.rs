//! Operations and their completions, as data.
//!
//! Upper layers submit an [`Op`] to a [`Driver`](crate::Driver) under an [`OpKey`] of their choice,
//! and receive exactly one [`Completion`] with that key ([`Op::Accept`]: one per connection;
//! [`Op::Watch`]: one per event). An operation owns the memory it works on; the completion returns
//! it.

use crate::SendList;
use crate::memory::{Buffer, IoSlice};
use crate::simulated::Simulated;
use crate::tls::session::{Proven, Session};
use crate::tls::side::Side;
use base::Nanos;
use secure::chap::{Job, JobResult};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The owner of an operation on a core: a service, or a channel of one of its devices. Drivers
/// assign namespaces ([`Driver::op_namespace`](crate::Driver::op_namespace)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpNamespace(pub u16);

/// Identifies an operation; returned with its completion. The driver does not interpret it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpKey {
    /// The owner of the operation.
    pub op_namespace: OpNamespace,
    /// The kind of the operation, numbered by its owner.
    pub kind: u8,
    /// Generation of the slot `index`.
    pub generation: u8,
    /// Slot in its owner's table.
    pub index: u32,
}

impl OpKey {
    /// Creates a key for the slot `key` of the owner's table.
    #[must_use]
    pub const fn new(op_namespace: OpNamespace, kind: u8, key: base::SlabKey) -> Self {
        Self {
            op_namespace,
            kind,
            generation: key.generation,
            index: key.index,
        }
    }

    /// Creates a key for an operation that its owner has only once.
    #[must_use]
    pub const fn single(op_namespace: OpNamespace, kind: u8) -> Self {
        Self {
            op_namespace,
            kind,
            generation: 0,
            index: 0,
        }
    }

    /// Returns the slot of the owner's table.
    #[must_use]
    pub const fn slab_key(self) -> base::SlabKey {
        base::SlabKey {
            index: self.index,
            generation: self.generation,
        }
    }
}

/// A connected socket owned by a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u32);

/// A listening socket owned by a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u32);

/// An open file or block device owned by a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// A connection that no driver currently owns: it is moving from the core that accepted it to the
/// core that will serve it.
#[derive(Debug)]
pub enum Stream {
    /// A connected TCP socket of the kernel, with the keys of its TLS.
    Socket(OwnedFd, Option<Box<Session>>),
    /// One end of a connection in the simulator, with the keys of its TLS.
    Simulated(Simulated<u64>, Option<Box<Session>>),
}

impl Stream {
    /// Returns the local address; `None` if there is none.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket(fd, _) => rustix::net::getsockname(fd).ok()?.try_into().ok(),
            Self::Simulated(..) => None,
        }
    }

    /// Returns the keys of TLS; `None` without TLS.
    #[must_use]
    pub fn session(&self) -> Option<&Session> {
        match self {
            Self::Socket(_, session) | Self::Simulated(_, session) => session.as_deref(),
        }
    }

    /// Returns what TLS proved about the peer; `None` without TLS.
    #[must_use]
    pub fn proven(&self) -> Option<&Proven> {
        self.session().map(Session::proven)
    }

    /// Returns the connection alone.
    #[must_use]
    pub fn without_session(self) -> Self {
        match self {
            Self::Socket(fd, _) => Self::Socket(fd, None),
            Self::Simulated(end, _) => Self::Simulated(end, None),
        }
    }

    /// Returns the connection with these keys of TLS.
    #[must_use]
    pub fn with_session(self, session: Session) -> Self {
        let session = Some(Box::new(session));
        match self {
            Self::Socket(fd, _) => Self::Socket(fd, session),
            Self::Simulated(end, _) => Self::Simulated(end, session),
        }
    }
}

/// A listening socket that no driver currently owns. Connections wait in it.
#[derive(Debug)]
pub enum ListeningSocket {
    /// A socket of the kernel.
    Socket(OwnedFd),
    /// A listener in the simulator, by its address.
    Simulated(Simulated<SocketAddr>),
}

impl ListeningSocket {
    /// Returns the address that it is bound to; `None` if the kernel does not know one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket(fd) => rustix::net::getsockname(fd).ok()?.try_into().ok(),
            Self::Simulated(listener) => Some(listener.name()),
        }
    }
}

base::with_defaults! {
    /// Options of a socket. The defaults are those of the data path.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SocketOptions {
        /// Kernel send and receive buffer in bytes. 0: sized by the kernel, according to the
        /// bandwidth and round-trip time of the network, and 4 MiB within this machine. The kernel
        /// caps a fixed size (`net.core.wmem_max`, often 208 KiB), which limits the bandwidth of a
        /// long path.
        pub buffer_bytes: usize = 0,
        /// Time after which a connection ends if its peer acknowledges no sent data, or has no room
        /// for any (`TCP_USER_TIMEOUT`). 0: the kernel's default, about 15 minutes.
        pub user_timeout: Nanos = Nanos::from_secs(30),
        /// Idle time after which the kernel probes the peer (`SO_KEEPALIVE`): three probes, a third
        /// of that time apart. In whole seconds; 0 disables probes.
        pub keep_alive: Nanos = Nanos::from_secs(30),
        /// TLS of a listener's connections, or of a connection that is made. `None`: without it.
        pub tls: Option<Side> = None,
    }
}

/// The effect of [`Op::Allocate`] on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The range reads as zeroes and stays allocated.
    ZeroRange,
    /// The range reads as zeroes and is deallocated.
    PunchHole,
}

/// A command for one tag of a ublk device's queue: the kernel driver holds it until the tag has its
/// next request. `[linux/ublk_cmd.h]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkCommand {
    /// Waits for the tag's first request (`UBLK_IO_FETCH_REQ`).
    Fetch,
    /// Completes the tag's request with this result, bytes or a negative error number, and waits
    /// for the next one (`UBLK_IO_COMMIT_AND_FETCH_REQ`).
    Commit(i32),
}

/// An operation for a driver.
#[derive(Debug)]
pub enum Op {
    /// Accepts connections until the listener is closed: one completion per connection, and one
    /// with the error `ECANCELED` at the end. One at a time per listener (a second one fails with
    /// `AlreadyExists`).
    ///
    /// While the process is out of descriptors or memory, a completion with that error informs the
    /// owner every [`ACCEPT_PAUSE`](crate::limits::ACCEPT_PAUSE). Accepting resumes by itself as
    /// soon as possible, and connections wait in the kernel until then. A peer that disconnects
    /// before it is accepted is skipped.
    Accept {
        /// The listener.
        listener: ListenerId,
    },
    /// Connects a new socket. Fails with `ResourceBusy` if the core has no room for another one.
    Connect {
        /// The peer.
        address: SocketAddr,
        /// Options of the socket.
        options: SocketOptions,
        /// Time without a response after which the operation fails with `TimedOut`.
        timeout: Nanos,
    },
    /// Receives arrived data as soon as there is any. One at a time per socket. Fails with
    /// `InvalidInput` if `into` is a shared buffer.
    Receive {
        /// The connection.
        socket: SocketId,
        /// Memory for the first bytes. Later bytes, or all bytes if this is `None`, go into a
        /// receive buffer of the driver.
        into: Option<IoSlice>,
    },
    /// Sends all of the list. One at a time per socket.
    Send {
        /// The connection.
        socket: SocketId,
        /// The bytes.
        list: Box<SendList>,
    },
    /// Closes the connection: pending and later operations complete with an error; this one
    /// completes last. Once per socket.
    Close {
        /// The connection.
        socket: SocketId,
    },
    /// Closes the connection as [`Close`](Self::Close) does, but drops unsent data and resets the
    /// connection.
    Reset {
        /// The connection.
        socket: SocketId,
    },
    /// Releases the connection, for another core to [adopt](crate::Driver::adopt). A pending
    /// receive completes with an error and without data; data that has arrived and was not received
    /// moves along. No send may be outstanding. Once per socket, like [`Close`](Self::Close).
    Release {
        /// The connection.
        socket: SocketId,
    },
    /// Reads from a file into the whole slice. Fails with `InvalidInput` if the slice is a shared
    /// buffer.
    Read {
        /// The file.
        file: FileId,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Destination.
        slice: IoSlice,
    },
    /// Writes the whole slice to a file.
    Write {
        /// The file.
        file: FileId,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Source.
        slice: IoSlice,
        /// Completes only once the data is on stable storage (`RWF_DSYNC`).
        durable: bool,
    },
    /// Puts all earlier writes on stable storage (`fdatasync`).
    Sync {
        /// The file.
        file: FileId,
    },
    /// Zeroes or deallocates a range of a file (`fallocate`).
    Allocate {
        /// The file.
        file: FileId,
        /// The effect.
        allocation: Allocation,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Length, in bytes.
        len: u64,
    },
    /// Computes for DH-HMAC-CHAP, on a thread of its own if that takes milliseconds. Fails with
    /// `ResourceBusy` while [`CHAP_JOBS_MAX`](crate::limits::CHAP_JOBS_MAX) jobs wait.
    Compute {
        /// The job.
        job: Job,
    },
    /// Watches a file, such as an event counter, for readability: one completion per event, one at
    /// the start if it is already readable, and one with the error `ECANCELED` after
    /// [`end_watch`](crate::Driver::end_watch). Reads nothing.
    Watch {
        /// The file.
        file: FileId,
    },
    /// Sends a command to a ublk device's kernel driver (`IORING_OP_URING_CMD`). It completes with
    /// 0 when the tag has a request, and with `ENODEV` when the device stops. All commands of a
    /// queue must come from one thread. The command carries no address, so only devices with
    /// `UBLK_F_USER_COPY` accept it. A driver that ends does not wait for it.
    Ublk {
        /// The device, `/dev/ublkcN`.
        file: FileId,
        /// Index of the queue.
        queue: u16,
        /// Index of the tag in the queue.
        tag: u16,
        /// The command.
        command: UblkCommand,
    },
}

/// The completion of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The operation's key.
    pub key: OpKey,
    /// The result.
    pub outcome: Outcome,
}

/// The result of an operation, by its kind.
#[derive(Debug)]
pub enum Outcome {
    /// A connection was accepted, or accepting failed; more completions may follow under the same
    /// key until the listener is closed. With TLS it comes after the handshake, and a failed
    /// handshake is an error with [`Refused`](crate::tls::Refused).
    Accepted(io::Result<(Stream, SocketAddr)>),
    /// The result of connecting.
    Connected(io::Result<SocketId>),
    /// Data was received, or the connection ended.
    Received(Received),
    /// The kernel has accepted the whole list, or the connection is broken.
    Sent {
        /// The list, for reuse.
        list: Box<SendList>,
        /// `Ok` if all of it was sent.
        result: io::Result<()>,
    },
    /// The connection and all its operations have ended.
    Closed,
    /// The connection has no owner and no outstanding operation.
    Released(Stream),
    /// A file operation ended, or a ublk device's tag has a request.
    File {
        /// Bytes read or written: the caller must continue after a short count.
        result: io::Result<usize>,
        /// The memory of the operation, if it had any.
        slice: Option<IoSlice>,
    },
    /// The result of a job, or no job ran.
    Computed(io::Result<JobResult>),
    /// A watched file is readable, or, with an error, the watch has ended.
    Readable(io::Result<()>),
}

/// The result of a receive.
#[derive(Debug)]
pub struct Received {
    /// The slice given with the operation.
    pub into: Option<IoSlice>,
    /// Bytes at the front of `into` that were filled.
    pub filled: usize,
    /// The bytes after them: a receive buffer and its number of valid bytes. A core has only
    /// [`RECEIVE_BUFFERS`](crate::limits::RECEIVE_BUFFERS) of them and receives nothing while all
    /// are in use: drop it before the turn ends.
    pub rest: Option<(Buffer, usize)>,
    /// `Ok` if data was received; `UnexpectedEof` if the peer closed the connection.
    pub result: io::Result<()>,
}

/// Returns true for the error of an accept's last completion, after its listener was closed or
/// released, maybe before the accept began.
#[must_use]
pub fn accept_has_ended(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED) || error.kind() == io::ErrorKind::NotConnected
}
