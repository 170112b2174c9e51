//! The trait between a core and the kernel; the simulator and the tests implement it, too.

use crate::memory::BufferPool;
use crate::op::{
    Completion, FileId, ListenerId, ListeningSocket, Op, OpKey, OpNamespace, SocketId,
    SocketOptions, Stream,
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

/// The time that [`Driver::reap`] may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Returns at once with the available completions.
    No,
    /// Sleeps until something completes, at most until this time.
    Until(Time),
}

/// Wakes a core that sleeps in [`Driver::reap`]; callable from any thread.
pub trait Wake: Send + Sync + std::fmt::Debug {
    /// Ends the core's current or next sleep at once.
    fn wake(&self);
}

/// The environment of a core: the kernel through io_uring ([`uring`](crate::uring)), or the
/// simulator.
///
/// One core owns one driver. Operations from [`submit`](Self::submit) start, in order, by the next
/// [`reap`](Self::reap). Each completes exactly once, even if its socket is closed ([`Op::Accept`]
/// once per connection, and once more at the end). An operation that cannot start completes with an
/// error. Only caller errors panic: the key of a removed socket, a second close, and a second send
/// or receive on a socket that has one.
///
/// A signal may end a sleep early without a completion. A sleep may exceed its limit by the latency
/// of the kernel's timers, some tens of microseconds.
pub trait Driver {
    /// Returns the current time.
    fn now(&self) -> Time;

    /// The core's payload buffers.
    fn buffers(&self) -> &BufferPool;

    /// The core's send lists.
    fn send_lists(&self) -> &SendListPool;

    /// Takes a free operation namespace permanently: for owners that live as long as the core.
    fn op_namespace(&mut self) -> OpNamespace;

    /// Leases an operation namespace until the lease is dropped: for owners with a shorter life. An
    /// operation that is then still in flight may complete later, under a namespace without an
    /// owner.
    fn lease_op_namespace(&mut self) -> OpNamespaceLease {
        OpNamespaceLease::for_ever(self.op_namespace())
    }

    /// Accepts an operation.
    fn submit(&mut self, key: OpKey, op: Op);

    /// Starts the submitted operations, waits as `wait` says until one completes, and appends the
    /// completions.
    ///
    /// # Errors The driver itself has failed (its ring is lost): the core cannot continue.
    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) -> io::Result<()>;

    /// Listens on `address`; port 0 selects a free one. Returns the address in use.
    ///
    /// # Errors The kernel's error: `AddrInUse`, `PermissionDenied`, `AddrNotAvailable`…; or the
    /// core already has the maximum number of listeners.
    fn listen(
        &mut self,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<(ListenerId, SocketAddr)>;

    /// Stops listening: from now on connections are refused, including those not yet accepted. A
    /// pending accept completes once more, with an error.
    fn close_listener(&mut self, listener: ListenerId);

    /// Stops accepting on a listener and returns its socket, which still listens: connections wait
    /// in the kernel until the socket is [adopted](Self::adopt_listener), maybe in another process.
    /// The pending accept completes for connections accepted before, and once more, with an error.
    ///
    /// # Errors
    /// There is no such listener, or no descriptor is left.
    fn release_listener(&mut self, listener: ListenerId) -> io::Result<ListeningSocket>;

    /// Takes over a listening socket. Returns its address.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    fn adopt_listener(
        &mut self,
        socket: ListeningSocket,
        options: &SocketOptions,
    ) -> io::Result<(ListenerId, SocketAddr)>;

    /// Returns true if [`adopt`](Self::adopt) has room for another connection. Connections being
    /// established count.
    fn has_room_for_socket(&self) -> bool {
        true
    }

    /// Takes over a connection that this or another core's driver accepted.
    ///
    /// # Panics If the driver already owns its maximum number of connections: check
    /// [`has_room_for_socket`](Self::has_room_for_socket) first, or keep count.
    fn adopt(&mut self, stream: Stream) -> SocketId;

    /// Sets the class of arrivals on this connection; [`Class::DEFAULT`] until then.
    ///
    /// While `Latency` work is active, a core checks urgent arrivals first, and receives a quantum
    /// of the rest between two checks that found nothing, according to its
    /// [service](Self::set_service) rules. A driver without a kernel may ignore it.
    fn set_class(&mut self, _socket: SocketId, _class: Class) {}

    /// Returns the core that received the connection's last packet, by the machine's numbering: one
    /// of those that the network card interrupts, and on the loopback the sender's own. `None` if
    /// unknown.
    fn incoming_core(&self, _socket: SocketId) -> Option<CoreId> {
        None
    }

    /// Limits each receive on this connection to `quantum` bytes (except a payload with a
    /// destination), and each turn to one connection with a quantum, on which it receives or sends
    /// [a piece](crate::limits::BOUNDED_SEND_BYTES); `None` removes the limit. For connections of
    /// heavy hosts while light hosts are active. A driver without a kernel may ignore it.
    fn set_receive_quantum(&mut self, _socket: SocketId, _quantum: Option<NonZeroUsize>) {}

    /// Sets the receive order of arrivals. A driver without a kernel may ignore it.
    fn set_service(&mut self, _rules: &class_scheduler::ClassSchedulerRules) {}

    /// Takes over an open file.
    ///
    /// # Errors The driver already has its maximum number of files.
    fn open_file(&mut self, file: Arc<File>) -> io::Result<FileId>;

    /// Removes a file; all its operations must have completed.
    fn close_file(&mut self, file: FileId);

    /// Ends the [watch](Op::Watch) of a file, which completes with an error. A driver without a
    /// kernel has no watches.
    fn end_watch(&mut self, _file: FileId) {}

    /// Returns the waker of this core.
    fn waker(&self) -> Arc<dyn Wake>;

    /// The core on which the calling thread currently runs, by the machine's numbering; the thread
    /// may move at any time.
    fn core(&self) -> CoreId;

    /// Counters since creation.
    fn stats(&self) -> DriverStats;

    /// Returns the total time slept in [`reap`](Self::reap) without events. Zero if the driver does
    /// not measure it.
    fn slept(&self) -> Nanos {
        Nanos::ZERO
    }
}

/// Counters of a driver since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverStats {
    /// Calls of [`Driver::reap`].
    pub turns: u64,
    /// Calls that slept in the kernel.
    pub sleeps: u64,
    /// System calls that send.
    pub sends: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Sends that the kernel could not accept completely at once.
    pub send_stalls: u64,
    /// System calls that received something.
    pub receives: u64,
    /// System calls that found nothing to receive.
    pub empty_receives: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Connections with TLS of which a key is nearly worn
    /// ([`RECORDS_WORN`](crate::limits::RECORDS_WORN)).
    pub worn_keys: u64,
    /// Entries submitted to io_uring.
    pub ring_submissions: u64,
    /// System calls on the ring.
    pub ring_enters: u64,
    /// Counters of the prioritised receive order.
    pub service: class_scheduler::ClassSchedulerCounters,
}
