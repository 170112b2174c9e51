//! The one trait with a fake: what a core asks of the world below it.

use crate::memory::BufferPool;
use crate::op::{
    Completion, FileId, ListenerId, Op, OpKey, OpNamespace, SocketId, SocketOptions, Stream,
};
use crate::op_namespace::OpNamespaceLease;
use crate::send_list::SendListPool;
use base::units::CoreId;
use base::{Nanos, Time};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use switch::{Class, class_scheduler};

/// The time that [`Driver::reap`] may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Takes what is there, and returns at once.
    No,
    /// Sleep until something happens, but not beyond this time.
    Until(Time),
}

/// Wakes a core that sleeps in [`Driver::reap`]; may be called from any thread.
pub trait Wake: Send + Sync + std::fmt::Debug {
    /// Makes the core's current or next sleep end at once.
    fn wake(&self);
}

/// A core's world: the kernel through io_uring ([`uring`](crate::uring)), or the simulator.
///
/// One core owns one driver. Operations handed over by [`submit`](Self::submit) start, in order,
/// at the next [`reap`](Self::reap) at the latest. Every one completes exactly once, also when its
/// socket is closed ([`Op::Accept`] once for each connection, and once more in the end). What
/// cannot be started completes with an error; only a key of a socket that is gone, a second close,
/// and a second send or receive on a socket that has one are mistakes of the caller's that panic.
///
/// A signal may end a sleep early; then nothing completes. A sleep may last longer than it was
/// told by what the kernel's timers take, some tens of microseconds.
pub trait Driver {
    /// Returns the time.
    fn now(&self) -> Time;

    /// The core's buffers for payload.
    fn buffers(&self) -> &BufferPool;

    /// The core's send lists.
    fn send_lists(&self) -> &SendListPool;

    /// Returns an operation namespace that is free and stays taken: for what lives as long as the
    /// core.
    fn op_namespace(&mut self) -> OpNamespace;

    /// Leases an operation namespace, which is free again when the lease is gone: for what comes
    /// and goes. An operation that is in flight then may complete later, under a namespace without
    /// an owner.
    fn lease_op_namespace(&mut self) -> OpNamespaceLease {
        OpNamespaceLease::for_ever(self.op_namespace())
    }

    /// Takes an operation.
    fn submit(&mut self, key: OpKey, op: Op);

    /// Starts the submitted operations, waits as told until one completes, and appends the
    /// completions.
    ///
    /// # Errors
    /// When the driver itself is broken (the ring is gone): the core cannot go on.
    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) -> io::Result<()>;

    /// Listens on `address`; port 0 takes a free one. Returns the address in use.
    ///
    /// # Errors
    /// The kernel's: `AddrInUse`, `PermissionDenied`, `AddrNotAvailable`…; or that the core
    /// listens on too many addresses already.
    fn listen(
        &mut self,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<(ListenerId, SocketAddr)>;

    /// Stops listening: from now on connections are refused, also those that were not accepted
    /// yet. An accept that is pending completes once more, with an error.
    fn close_listener(&mut self, listener: ListenerId);

    /// Returns true if [`adopt`](Self::adopt) has room for another connection. Those that are being
    /// connected count.
    fn has_room_for_socket(&self) -> bool {
        true
    }

    /// Takes over a connection that this or another core's driver accepted.
    ///
    /// # Panics
    /// When the driver owns as many connections as it was made for: ask
    /// [`has_room_for_socket`](Self::has_room_for_socket) first, or keep count.
    fn adopt(&mut self, stream: Stream) -> SocketId;

    /// Sets the class of what arrives on this connection; [`Class::DEFAULT`] until then.
    ///
    /// While `Latency` work is active, a core looks at what must not wait first, and takes a quantum
    /// of the rest between two looks that brought nothing; as its rules of
    /// [service](Self::set_service) say. A driver without a kernel may ignore it.
    fn set_class(&mut self, _socket: SocketId, _class: Class) {}

    /// Returns the core that took the connection's last packet in, by the machine's numbers: one of
    /// those that the network card interrupts, and on the loopback the sender's own. `None` where
    /// it is unknown.
    fn incoming_core(&self, _socket: SocketId) -> Option<CoreId> {
        None
    }

    /// Bounds a receive on this connection to `quantum` bytes (a payload with a destination
    /// excepted), and the turn to one connection with a quantum, from which it receives or on which
    /// it sends [a piece](crate::limits::BOUNDED_SEND_BYTES); `None` removes the bound. For a
    /// connection that asks for much while others ask for little. A driver without a kernel may
    /// ignore it.
    fn set_receive_quantum(&mut self, _socket: SocketId, _quantum: Option<NonZeroUsize>) {}

    /// Sets the order in which what arrives is taken. A driver without a kernel may ignore it.
    fn set_service(&mut self, _rules: &class_scheduler::ClassSchedulerRules) {}

    /// Takes over an open file.
    ///
    /// # Errors
    /// When the driver has no room for another one.
    fn open_file(&mut self, file: Arc<File>) -> io::Result<FileId>;

    /// Forgets a file; all its operations must have completed.
    fn close_file(&mut self, file: FileId);

    /// Ends the [watch](Op::Watch) of a file, which completes with an error. A driver without a
    /// kernel watches none.
    fn end_watch(&mut self, _file: FileId) {}

    /// Returns the waker of this core.
    fn waker(&self) -> Arc<dyn Wake>;

    /// The core that the calling thread runs on at this moment, as its machine numbers them; the
    /// thread may be elsewhere a moment later.
    fn core(&self) -> CoreId;

    /// Counters since the start.
    fn stats(&self) -> DriverStats;

    /// Returns the time that it slept in [`reap`](Self::reap) since the start, because nothing
    /// happened. A driver that does not know never slept.
    fn slept(&self) -> Nanos {
        Nanos::ZERO
    }
}

/// Counters of a driver since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverStats {
    /// Times that [`Driver::reap`] ran.
    pub turns: u64,
    /// Times that it slept in the kernel.
    pub sleeps: u64,
    /// System calls that send, and the bytes they took.
    pub sends: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Sends that the kernel could not take whole at once.
    pub send_stalls: u64,
    /// System calls that received something.
    pub receives: u64,
    /// System calls that found nothing to receive.
    pub empty_receives: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Entries handed to io_uring.
    pub ring_submissions: u64,
    /// System calls on the ring.
    pub ring_enters: u64,
    /// Prioritised service of what arrived.
    pub service: class_scheduler::ClassSchedulerCounters,
}
