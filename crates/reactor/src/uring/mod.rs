//! The driver that runs operations on a Linux kernel.
//!
//! The ring (io_uring) accepts, connects, does file I/O, watches silent sockets, and is where a
//! core sleeps. A socket with recent data is *hot*: it is received from directly, without blocking,
//! on every turn, and sends are direct as well. A direct call costs less than a pass through the
//! ring, and a polling core sees data at once (docs/design/decisions/0002). A socket that is silent
//! for 200 µs returns to the ring. Nothing is allocated per operation.

mod computing;
mod connections;
mod handshakes;
mod in_flight;
mod listener;
mod operations;
mod receiver;
mod ring;
mod secured;
mod socket;
pub use socket::tune_to_peer;
mod wake;

pub use ring::{Features, SetupError, TaskRun};

use crate::arrivals::{Arrivals, DriverStep};
use crate::chap::Computed;
use crate::clock::monotonic;
use crate::driver::{Driver, DriverStats, Wait, Wake};
use crate::limits::{
    COMPLETION_RING_ENTRIES, LISTENERS_MAX, RECEIVE_BUFFER_BYTES, RECEIVE_BUFFERS,
    SEND_SEGMENTS_MAX, SUBMISSION_RING_ENTRIES,
};
use crate::memory::{BufferClass, BufferPool};
use crate::op::{
    Completion, FileId, ListenerId, ListeningSocket, Op, OpKey, OpNamespace, Outcome, SocketId,
    SocketOptions, Stream,
};
use crate::op_namespace::{OpNamespaceLease, OpNamespaces};
use crate::results::Results;
use crate::send_list::SendListPool;
use crate::tls::TlsMemory;
use crate::tls::pool::{Finished, Shaking};
use base::units::CoreId;
use base::{Nanos, Slab, SlabKey, Time};
use listener::Listener;
use operations::{Operation, RingOp, shared_memory, table_entries};
use ring::Ring;
use rustix::thread::set_current_timer_slack;
use socket::Socket;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use switch::{Class, class_scheduler};
use wake::EventWaker;

/// Options of a driver.
#[derive(Clone, Debug)]
pub struct Options {
    /// The core's payload buffers, smallest first.
    pub buffers: Vec<BufferClass>,
    /// Maximum connections of the core.
    pub sockets: usize,
    /// Maximum file operations in flight; more wait in the driver.
    pub file_operations: usize,
}

impl Default for Options {
    fn default() -> Self {
        use base::units::{KIB, MIB};
        let class = |bytes, count| BufferClass { bytes, count };
        Self {
            buffers: vec![
                class(4 * KIB, 4096),
                class(16 * KIB, 1024),
                class(64 * KIB, 512),
                class(128 * KIB, 512),
                class(MIB, 128),
            ],
            sockets: 4096,
            file_operations: 4096,
        }
    }
}

/// Runs the operations of one core.
#[derive(Debug)]
pub struct UringDriver {
    ring: Ring,
    operations: Slab<Operation>,
    sockets: Slab<Socket>,
    arrivals: Arrivals,
    /// Number of sockets being connected; each has a slot among the sockets.
    connecting: usize,
    listeners: Slab<Listener>,
    files: Vec<Option<Arc<File>>>,
    file_operations: usize,
    file_operations_max: usize,
    /// File operations waiting for a free slot.
    backlog: VecDeque<(OpKey, Op)>,
    ready: Vec<Completion>,
    buffers: BufferPool,
    receive_buffers: BufferPool,
    send_lists: SendListPool,
    iovecs: Vec<libc::iovec>,
    tls: TlsMemory,
    /// Handshakes in progress.
    shaking: Vec<Shaking>,
    results: Arc<Results<Finished>>,
    /// Operations that compute on the thread of [`chap`](crate::chap).
    computing: Vec<OpKey>,
    computed: Arc<Results<Computed>>,
    waker: Arc<EventWaker>,
    op_namespaces: OpNamespaces,
    now: Time,
    slept: Nanos,
    stats: DriverStats,
}

impl UringDriver {
    /// Creates a driver on the calling thread, which must be the one that uses it, and makes this
    /// thread's timers exact.
    ///
    /// # Errors [`SetupError`], which includes the remedy.
    pub fn new(options: &Options) -> Result<Self, SetupError> {
        let other = |what| move |source| SetupError::Other { what, source };
        // A late deadline adds latency: the kernel's default timer slack is 50 µs. If it cannot be
        // reduced, timers still work.
        let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
        let entries = table_entries(options.sockets, options.file_operations);
        let buffers = BufferPool::new(&options.buffers).map_err(other("map buffers"))?;
        let receive = BufferClass {
            bytes: RECEIVE_BUFFER_BYTES,
            count: RECEIVE_BUFFERS,
        };
        let receive_buffers = BufferPool::new(&[receive]).map_err(other("map receive buffers"))?;
        let ring = Ring::new(SUBMISSION_RING_ENTRIES, COMPLETION_RING_ENTRIES)?;
        let waker = Arc::new(EventWaker::new().map_err(other("create an eventfd"))?);
        let mut driver = Self {
            ring,
            operations: Slab::with_capacity(entries),
            sockets: Slab::with_capacity(options.sockets),
            arrivals: Arrivals::new(options.sockets),
            connecting: 0,
            listeners: Slab::with_capacity(LISTENERS_MAX),
            files: Vec::new(),
            file_operations: 0,
            file_operations_max: options.file_operations,
            backlog: VecDeque::new(),
            ready: Vec::with_capacity(256),
            buffers,
            receive_buffers,
            send_lists: SendListPool::default(),
            iovecs: Vec::with_capacity(SEND_SEGMENTS_MAX),
            tls: TlsMemory::default(),
            shaking: Vec::new(),
            results: Results::new(Arc::clone(&waker) as Arc<dyn Wake>),
            computing: Vec::new(),
            computed: Results::new(Arc::clone(&waker) as Arc<dyn Wake>),
            waker,
            op_namespaces: OpNamespaces::default(),
            now: monotonic(),
            slept: Nanos::ZERO,
            stats: DriverStats::default(),
        };
        driver.watch_waker();
        let watched = driver.ring.turn();
        watched.map_err(other("poll the eventfd"))?;
        Ok(driver)
    }

    /// Returns another descriptor of the ring. While it is open, the kernel cancels outstanding
    /// operations when the thread ends, instead of when the driver is dropped.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn share_ring(&self) -> io::Result<OwnedFd> {
        self.ring.share()
    }

    /// Returns the kernel's features.
    #[must_use]
    pub fn features(&self) -> Features {
        self.ring.features
    }

    /// Makes the kernel raise this event counter (an `eventfd`) whenever the ring has something to
    /// reap; once per driver. After [`prepare_sleep`](Self::prepare_sleep) it signals everything
    /// that would have ended a sleep, except deadlines.
    ///
    /// # Errors The kernel's error, also if a counter is already registered.
    pub fn raise_on_completion(&mut self, counter: BorrowedFd<'_>) -> io::Result<()> {
        self.ring.register_event(counter)
    }

    /// Returns the event counter that a [waker](Driver::waker) raises. A thread that waits
    /// elsewhere must watch it, too: a kernel that raises one counter because of another does so
    /// with delay, and some kernels only once.
    #[must_use]
    pub fn wake_counter(&self) -> BorrowedFd<'_> {
        self.waker.fd.as_fd()
    }

    /// Resets the waker's counter.
    pub fn reset_wake_counter(&self) {
        self.waker.reset();
    }

    /// Does everything that a sleeping [`reap`](Driver::reap) does before it sleeps, for a thread
    /// that then waits elsewhere. Returns true if nothing is there and the counters will signal
    /// every event; otherwise call it again before waiting.
    ///
    /// # Errors As [`reap`](Driver::reap).
    pub fn prepare_sleep(&mut self, completions: &mut Vec<Completion>) -> io::Result<bool> {
        let next = self.look(Wait::Until(Time::NEVER));
        self.ring.turn()?;
        let before = completions.len();
        // Events from the ring, such as an arrival, may require a direct receive.
        let told = self.finish_turn(completions);
        let is_idle = next != DriverStep::Turn && !told && completions.len() == before;
        // A socket is watched only once the kernel has its entry.
        Ok(is_idle && !self.ring.is_short())
    }

    /// Receives due data, or prepares everything for a sleep.
    fn look(&mut self, wait: Wait) -> DriverStep {
        // Before a sleep that only a completing operation must end.
        self.release_guards();
        self.stats.turns += 1;
        self.now = monotonic();
        let (now, completed) = (self.now, !self.ready.is_empty());
        let (arrivals, mut receiver) = self.split();
        let next = arrivals.turn(wait, now, completed, &mut receiver);
        while let Some(key) = self.arrivals.take_close() {
            self.let_go(key);
        }
        next
    }

    /// Processes the ring's completions, and passes on completed operations. Returns true if the
    /// ring had any.
    fn finish_turn(&mut self, completions: &mut Vec<Completion>) -> bool {
        let told = self.reap_ring();
        if !self.shaking.is_empty() {
            self.take_shaken();
        }
        if !self.computing.is_empty() {
            self.take_computed();
        }
        self.start_backlog();
        self.release_guards();
        completions.append(&mut self.ready);
        told
    }

    fn complete(&mut self, key: OpKey, outcome: Outcome) {
        self.ready.push(Completion { key, outcome });
    }

    fn socket_key(&self, socket: SocketId) -> SlabKey {
        self.sockets
            .key_at(socket.0)
            .expect("the owner of a socket closes it last")
    }

    /// Returns true if anything in flight must not outlive the driver.
    fn is_waited_for(&self) -> bool {
        let waited = |kind: &RingOp| {
            matches!(
                kind,
                RingOp::File(..) | RingOp::Accept(..) | RingOp::AcceptPause(..)
            )
        };
        self.operations.iter().any(|(_, entry)| waited(&entry.kind))
    }

    /// Processes the ring's completions. Returns true if there were any.
    fn reap_ring(&mut self) -> bool {
        let mut told = false;
        while let Some(entry) = self.ring.pop() {
            told = true;
            self.ring_completed(entry.user_data(), entry.result(), entry.flags());
        }
        told
    }

    fn start_backlog(&mut self) {
        while self.file_operations < self.file_operations_max {
            let Some((key, op)) = self.backlog.pop_front() else {
                return;
            };
            self.start_file(key, op);
        }
    }
}

impl Driver for UringDriver {
    fn now(&self) -> Time {
        monotonic()
    }

    fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    fn send_lists(&self) -> &SendListPool {
        &self.send_lists
    }

    fn op_namespace(&mut self) -> OpNamespace {
        self.op_namespaces.take()
    }

    fn lease_op_namespace(&mut self) -> OpNamespaceLease {
        let mut op_namespaces = std::mem::take(&mut self.op_namespaces);
        let lease = op_namespaces.lease(self.stats.turns, |op_namespace| {
            self.has_operation_of(op_namespace)
        });
        self.op_namespaces = op_namespaces;
        lease
    }

    fn submit(&mut self, key: OpKey, op: Op) {
        match op {
            Op::Send { socket, list } => self.submit_send(key, socket, list),
            Op::Receive { socket, into } => self.submit_receive(key, socket, into),
            Op::Close { socket } => {
                let slot = self.socket_key(socket);
                self.close(slot, key);
            }
            Op::Reset { socket } => {
                let slot = self.socket_key(socket);
                self.reset(slot, key);
            }
            Op::Release { socket } => self.release(key, socket),
            Op::Accept { listener } => self.submit_accept(key, listener),
            Op::Connect {
                address,
                options,
                timeout,
            } => {
                self.start_connect(key, address, &options, timeout);
            }
            Op::Compute { job } => self.start_computing(key, job),
            Op::Read { .. }
            | Op::Write { .. }
            | Op::Sync { .. }
            | Op::Allocate { .. }
            | Op::Watch { .. }
            | Op::Ublk { .. } => {
                self.backlog.push_back((key, op));
                self.start_backlog();
            }
        }
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) -> io::Result<()> {
        match self.look(wait) {
            DriverStep::Turn => self.ring.turn()?,
            DriverStep::Sleep(until) => {
                let now = self.now;
                self.stats.sleeps += 1;
                let span = if until == Time::NEVER {
                    Nanos(Time::NEVER.0)
                } else {
                    until.since(now)
                };
                self.ring.sleep(span)?;
                self.now = monotonic();
                self.slept += self.now.since(now);
            }
        }
        self.finish_turn(completions);
        Ok(())
    }

    fn listen(
        &mut self,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        self.listen_on(address, options)
    }

    fn close_listener(&mut self, listener: ListenerId) {
        self.stop_listening(listener);
    }

    fn release_listener(&mut self, listener: ListenerId) -> io::Result<ListeningSocket> {
        self.hand_listener_on(listener).map(ListeningSocket::Socket)
    }

    fn adopt_listener(
        &mut self,
        socket: ListeningSocket,
        options: &SocketOptions,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        let ListeningSocket::Socket(fd) = socket else {
            unreachable!("a simulated listener does not reach a kernel");
        };
        self.adopt_listening(fd, options)
    }

    fn has_room_for_socket(&self) -> bool {
        self.room_for_socket()
    }

    fn adopt(&mut self, stream: Stream) -> SocketId {
        let Stream::Socket(fd, session) = stream else {
            unreachable!("a simulated stream does not reach a kernel");
        };
        self.adopt_fd(fd, session)
    }

    fn set_class(&mut self, socket: SocketId, class: Class) {
        let key = self.socket_key(socket);
        let Some(entry) = self.sockets.get_mut(key) else {
            return;
        };
        self.arrivals
            .set_class(&mut entry.interest, class, self.now);
    }

    fn set_receive_quantum(&mut self, socket: SocketId, quantum: Option<NonZeroUsize>) {
        let key = self.socket_key(socket);
        let quantum = quantum.map_or(usize::MAX, NonZeroUsize::get);
        let (arrivals, mut receiver) = self.split();
        arrivals.set_quantum(key, quantum, &mut receiver);
    }

    fn incoming_core(&self, socket: SocketId) -> Option<CoreId> {
        let entry = self.sockets.get(self.socket_key(socket))?;
        let core = rustix::net::sockopt::socket_incoming_cpu(&entry.fd).ok()?;
        // The kernel returns −1 if nothing has arrived yet.
        (core != u32::MAX).then_some(CoreId(core))
    }

    fn set_service(&mut self, rules: &class_scheduler::ClassSchedulerRules) {
        self.arrivals.set_service(rules);
    }

    fn open_file(&mut self, file: Arc<File>) -> io::Result<FileId> {
        let index = self
            .files
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.files.len());
        if index == self.files.len() {
            self.files.push(None);
        }
        self.files[index] = Some(file);
        let number =
            u32::try_from(index).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(FileId(number))
    }

    fn close_file(&mut self, file: FileId) {
        if let Some(slot) = self.files.get_mut(file.0 as usize) {
            *slot = None;
        }
    }

    fn end_watch(&mut self, file: FileId) {
        self.stop_watch(file);
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.waker) as Arc<dyn Wake>
    }

    #[inline]
    fn core(&self) -> CoreId {
        CoreId(u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(0))
    }

    fn stats(&self) -> DriverStats {
        DriverStats {
            ring_submissions: self.ring.submissions,
            ring_enters: self.ring.enters,
            service: *self.arrivals.service_counters(),
            ..self.stats
        }
    }

    fn slept(&self) -> Nanos {
        self.slept
    }
}

impl Drop for UringDriver {
    /// Waits for file operations, which use memory of this process until they complete, and for
    /// accepts, which create descriptors on completion. The kernel drops everything else by itself.
    fn drop(&mut self) {
        self.backlog.clear();
        let listeners: Vec<_> = self.listeners.iter().map(|(key, _)| key.index).collect();
        for listener in listeners {
            self.stop_listening(ListenerId(listener));
        }
        while self.is_waited_for() {
            if self.ring.sleep(Nanos::from_secs(1)).is_err() {
                // It is unknown when the kernel stops using that memory: it is leaked, and so are
                // the guards.
                std::mem::forget(self.op_namespaces.guards.take());
                std::mem::forget(std::mem::replace(
                    &mut self.operations,
                    Slab::with_capacity(0),
                ));
                return;
            }
            self.reap_ring();
        }
    }
}

fn canceled() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

#[cfg(test)]
mod tests;
