//! Operations and their completions, as data.
//!
//! The layers above hand a [`Driver`](crate::Driver) an [`Op`] under an [`OpKey`] of their own
//! making, and get exactly one [`Completion`] with that key back (only [`Op::Accept`] yields one
//! for each connection, and [`Op::Watch`] one for each event). An operation owns the memory it works on; the completion hands it back.

use crate::SendList;
use crate::memory::{Buffer, IoSlice};
use base::Nanos;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The part of a core that an operation belongs to: a service, or one of its devices' channels.
/// Drivers hand operation namespaces out ([`Driver::op_namespace`](crate::Driver::op_namespace)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpNamespace(pub u16);

/// Names an operation; comes back with its completion. The driver only carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpKey {
    /// The owner of the operation.
    pub op_namespace: OpNamespace,
    /// The kind of the operation, as its owner numbers them.
    pub kind: u8,
    /// Generation of the slot that `index` names.
    pub generation: u8,
    /// Slot in its owner's table.
    pub index: u32,
}

impl OpKey {
    /// A key for the slot `key` of the owner's table.
    #[must_use]
    pub const fn new(op_namespace: OpNamespace, kind: u8, key: base::SlabKey) -> Self {
        Self {
            op_namespace,
            kind,
            generation: key.generation,
            index: key.index,
        }
    }

    /// A key for something of which its owner has only one.
    #[must_use]
    pub const fn single(op_namespace: OpNamespace, kind: u8) -> Self {
        Self {
            op_namespace,
            kind,
            generation: 0,
            index: 0,
        }
    }

    /// The slot of the owner's table.
    #[must_use]
    pub const fn slab_key(self) -> base::SlabKey {
        base::SlabKey {
            index: self.index,
            generation: self.generation,
        }
    }
}

/// A connected socket that a driver owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u32);

/// A listening socket that a driver owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u32);

/// An open file or block device that a driver owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// A connection that no driver owns at the moment: it is on its way from the core that accepted
/// it to the core that will serve it.
#[derive(Debug)]
pub enum Stream {
    /// A connected TCP socket of the kernel.
    Socket(OwnedFd),
    /// One end of a connection in the simulator.
    Simulated(u64),
}

impl Stream {
    /// Returns this end's address, where the kernel knows it.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket(fd) => rustix::net::getsockname(fd).ok()?.try_into().ok(),
            Self::Simulated(_) => None,
        }
    }
}

base::with_defaults! {
    /// Options of a socket. The defaults are what the data path wants.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SocketOptions {
        /// Kernel send and receive buffer in bytes; zero leaves both to the kernel, which fits them to
        /// the bandwidth and the round-trip time of the network, and takes 4 MiB within this machine. A
        /// fixed size is capped by the kernel (`net.core.wmem_max`, often 208 KiB), which caps the
        /// bandwidth of a long path.
        pub buffer_bytes: usize = 0,
        /// Time after which a connection ends if its peer acknowledges nothing of what was sent, or has
        /// no room for any of it (`TCP_USER_TIMEOUT`); zero leaves it to the kernel, which takes a
        /// quarter of an hour.
        pub user_timeout: Nanos = Nanos::from_secs(30),
        /// After how long without traffic the kernel asks the peer whether it is there
        /// (`SO_KEEPALIVE`); it asks three times, a third of that apart. In whole seconds; zero never
        /// asks.
        pub keep_alive: Nanos = Nanos::from_secs(30),
    }
}

/// The change that [`Op::Allocate`] makes to a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The range reads as zeroes and stays allocated.
    ZeroRange,
    /// The range reads as zeroes and its space is given back.
    PunchHole,
}

/// A command for one tag of a queue of a ublk device: its kernel driver holds it until the tag has
/// the next request. `[linux/ublk_cmd.h]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkCommand {
    /// Waits for the tag's first request (`UBLK_IO_FETCH_REQ`).
    Fetch,
    /// Ends the tag's request with this result, bytes or a negative error number, and waits for the
    /// next one (`UBLK_IO_COMMIT_AND_FETCH_REQ`).
    Commit(i32),
}

/// An operation for a driver.
#[derive(Debug)]
pub enum Op {
    /// Accepts connections until the listener is closed: a completion each, and one with the error
    /// `ECANCELED` at the end. One at a time per listener (another fails with `AlreadyExists`).
    ///
    /// While the process is short of descriptors or memory there is a completion with that error
    /// every [`ACCEPT_PAUSE`](crate::limits::ACCEPT_PAUSE), for its owner to know; accepting goes
    /// on by itself as soon as it can, and connections wait in the kernel until then. A peer that
    /// is gone before it was accepted is passed over.
    Accept {
        /// The listener.
        listener: ListenerId,
    },
    /// Connects a new socket. Fails with `ResourceBusy` where the core has no room for another one.
    Connect {
        /// The peer.
        address: SocketAddr,
        /// Options of the socket.
        options: SocketOptions,
        /// After this long without an answer the operation fails with `TimedOut`.
        timeout: Nanos,
    },
    /// Receives what has arrived, as soon as anything has. One at a time per socket. Fails with
    /// `InvalidInput` where `into` is a shared buffer.
    Receive {
        /// The connection.
        socket: SocketId,
        /// Memory for the first bytes; what follows them, and everything where this is `None`, goes
        /// into a receive buffer of the driver's.
        into: Option<IoSlice>,
    },
    /// Sends all of the list. One at a time per socket.
    Send {
        /// The connection.
        socket: SocketId,
        /// The bytes.
        list: Box<SendList>,
    },
    /// Ends the connection: pending operations complete with an error, and so do those that are
    /// submitted later; this one completes last. Once per socket.
    Close {
        /// The connection.
        socket: SocketId,
    },
    /// Ends the connection as [`Close`](Self::Close) does, and what the peer was not sent yet it
    /// never gets: the kernel drops it and resets the connection.
    Reset {
        /// The connection.
        socket: SocketId,
    },
    /// Hands the connection out, for another core to [adopt](crate::Driver::adopt). A receive that
    /// is pending completes with an error and has taken nothing; what has arrived and was not
    /// received goes along. Nothing may be being sent. Once per socket, like
    /// [`Close`](Self::Close).
    Release {
        /// The connection.
        socket: SocketId,
    },
    /// Reads from a file into the whole slice. Fails with `InvalidInput` where that is a shared
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
        /// Complete only once the data is on stable storage (`RWF_DSYNC`).
        durable: bool,
    },
    /// Puts everything written before on stable storage (`fdatasync`).
    Sync {
        /// The file.
        file: FileId,
    },
    /// Zeroes or gives back a range of a file (`fallocate`).
    Allocate {
        /// The file.
        file: FileId,
        /// The change.
        allocation: Allocation,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Length, in bytes.
        len: u64,
    },
    /// Tells when something can be read from a file, such as an event counter: a completion each
    /// time that something arrives, one at the beginning if something is there already, and one
    /// with the error `ECANCELED` after [`end_watch`](crate::Driver::end_watch). Nothing is read.
    Watch {
        /// The file.
        file: FileId,
    },
    /// Gives a ublk device's kernel driver a command (`IORING_OP_URING_CMD`), which completes with 0
    /// when the tag has a request, and with `ENODEV` when the device stops. All commands of a queue
    /// must come from one thread. No address goes along: the device must copy at its user's request
    /// (`UBLK_F_USER_COPY`), and others refuse it. A driver that ends does not wait for it.
    Ublk {
        /// The device, `/dev/ublkcN`.
        file: FileId,
        /// Number of the queue.
        queue: u16,
        /// Number of the tag in the queue.
        tag: u16,
        /// The command.
        command: UblkCommand,
    },
}

/// The end of an operation.
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
    /// A connection came in, or accepting met an error; more may follow under the same key until
    /// the listener is closed.
    Accepted(io::Result<(Stream, SocketAddr)>),
    /// A connection was made, or was not.
    Connected(io::Result<SocketId>),
    /// Something was received, or the connection ended.
    Received(Received),
    /// The whole list is with the kernel, or the connection is broken.
    Sent {
        /// The list, for reuse.
        list: Box<SendList>,
        /// `Ok` if all of it was sent.
        result: io::Result<()>,
    },
    /// The connection is gone, and so are all its operations.
    Closed,
    /// The connection has no owner and no outstanding operation.
    Released(Stream),
    /// A file operation ended, or a ublk device's tag has a request.
    File {
        /// Bytes that were read or written: a short count is the caller's to continue.
        result: io::Result<usize>,
        /// The memory of the operation, where it had any.
        slice: Option<IoSlice>,
    },
    /// Something can be read from a watched file, or, with an error, the watch has ended.
    Readable(io::Result<()>),
}

/// The result of a receive.
#[derive(Debug)]
pub struct Received {
    /// The slice that the operation named, handed back.
    pub into: Option<IoSlice>,
    /// Bytes that went to the front of `into`.
    pub filled: usize,
    /// The bytes after them: a receive buffer and how many bytes of it are valid. A core has only
    /// [`RECEIVE_BUFFERS`](crate::limits::RECEIVE_BUFFERS) of them and receives nothing while all
    /// are taken: drop it before the turn ends.
    pub rest: Option<(Buffer, usize)>,
    /// `Ok` where something was received; `UnexpectedEof` where the peer closed the connection.
    pub result: io::Result<()>,
}
