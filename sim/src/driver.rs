//! A driver in virtual time: operations of a core against the simulated network.

use crate::network::Arrival;
use crate::world::Shared;
use base::units::CoreId;
use base::{Nanos, Slab, SlabKey, Time};
use reactor::{
    BufferClass, BufferPool, Completion, Driver, DriverStats, FileId, IoSlice, ListenerId, Op,
    OpKey, OpNamespace, Outcome, Received, SendList, SocketId, SocketOptions, Stream, Wait, Wake,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use switch::class_scheduler::{ClassSchedulerRules, Order};
use switch::{Class, ClassScheduler, Knobs, PerClass};

/// Bytes that one receive may bring: small, so that pieces of every size are seen.
const RECEIVE_BYTES: usize = 64 * 1024;

/// Connections of a core, unless it is told otherwise. Every one of them is looked at in every turn.
const SOCKETS: usize = 128;

/// On so many cores packets come in.
const RECEIVE_QUEUES: u64 = 3;

#[derive(Debug)]
struct Socket {
    end: u64,
    /// What arrives is of this class.
    class: Class,
    receiving: Option<(OpKey, Option<IoSlice>)>,
    sending: Option<(Time, OpKey, Box<SendList>, bool)>,
}

/// Runs the operations of one simulated core.
pub struct SimDriver {
    number: u64,
    core: Cell<CoreId>,
    /// Asked where it runs, the thread has moved one time in so many, to one of so many cores.
    wanders: Option<(u64, u32)>,
    world: Rc<RefCell<Shared>>,
    sockets: Slab<Socket>,
    /// Those that are open, in the order of their slots: few of all there may be.
    open: Vec<SlabKey>,
    listeners: Vec<Option<(SocketAddr, Option<OpKey>)>>,
    connecting: Vec<(Time, OpKey, io::Result<u64>)>,
    ready: Vec<Completion>,
    buffers: BufferPool,
    receive_buffers: BufferPool,
    waker: Arc<Flag>,
    busy_until: Time,
    /// When the last turn was, and how long there was nothing to do between turns.
    turned_at: Time,
    slept: Nanos,
    next_room: u16,
    /// In which order classes are received.
    service: ClassScheduler,
    /// The socket whose turn it is to be received from first, counted on and on.
    first: usize,
    stats: DriverStats,
}

#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl SimDriver {
    pub(crate) fn new(world: Rc<RefCell<Shared>>) -> Self {
        let class = |bytes, count| BufferClass { bytes, count };
        let classes = [class(4096, 512), class(128 * 1024, 64), class(1 << 20, 16)];
        let buffers = BufferPool::new(&classes).expect("address space for the simulation");
        let receive_buffers =
            BufferPool::new(&[class(RECEIVE_BYTES, 8)]).expect("address space for the simulation");
        let number = world.borrow_mut().next_driver();
        Self {
            number,
            core: Cell::new(CoreId(0)),
            wanders: None,
            world,
            sockets: Slab::with_capacity(SOCKETS),
            open: Vec::new(),
            listeners: Vec::new(),
            connecting: Vec::new(),
            ready: Vec::new(),
            buffers,
            receive_buffers,
            waker: Arc::default(),
            busy_until: Time::ZERO,
            turned_at: Time::ZERO,
            slept: Nanos::ZERO,
            next_room: 0,
            service: ClassScheduler::new(Knobs::default().service()),
            first: 0,
            stats: DriverStats::default(),
        }
    }

    /// From now on there is room for so many connections.
    ///
    /// # Panics
    /// If the driver has connections already.
    pub fn limit_sockets(&mut self, count: usize) {
        assert!(self.sockets.is_empty(), "a new driver");
        self.sockets = Slab::with_capacity(count);
    }

    /// From now on the driver's connections share the fate of that other one's: both are in the
    /// same host.
    pub fn belongs_to(&mut self, host: &Self) {
        self.number = host.number;
    }

    /// The host that it belongs to.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Connections that are open.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        self.sockets.len()
    }

    /// Until when the core is busy with what it sent, or held up.
    pub(crate) fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// The core is held up until then.
    pub(crate) fn hold(&mut self, until: Time) {
        self.busy_until = self.busy_until.max(until);
    }

    /// Whether a core that sleeps would wake up now: somebody woke it, or an operation is over.
    pub(crate) fn is_woken(&self) -> bool {
        let world = self.world.borrow();
        let now = world.now;
        let accepted = |(address, accept): &(SocketAddr, Option<OpKey>)| {
            accept.is_some() && world.network.has_connection(*address, now)
        };
        let moved = |socket: &Socket| {
            let sent = socket.sending.as_ref().is_some_and(|send| send.0 <= now);
            let receives = socket.receiving.is_some();
            sent || receives && world.network.has_arrival(socket.end, now)
        };
        self.waker.0.load(Ordering::Acquire)
            || !self.ready.is_empty()
            || self.connecting.iter().any(|(at, ..)| *at <= now)
            || self.listeners.iter().flatten().any(accepted)
            || self.open().any(moved)
    }

    /// The driver's thread begins on this core.
    pub fn begin_on(&mut self, core: CoreId) {
        self.core.set(core);
    }

    /// The driver's thread moves among the first `cores` cores: before it is asked where it runs,
    /// one time in `one_in`; never for 0.
    pub fn wander(&mut self, one_in: u64, cores: u32) {
        self.wanders = (one_in > 0).then_some((one_in, cores));
    }

    fn open(&self) -> impl Iterator<Item = &Socket> {
        let open = self.open.iter();
        open.map(|&key| self.sockets.get(key).expect("it is open"))
    }

    /// A socket's owner has done with it.
    fn remove(&mut self, key: SlabKey) -> Option<Socket> {
        self.open.retain(|&other| other != key);
        self.sockets.remove(key)
    }

    fn complete(&mut self, key: OpKey, outcome: Outcome) {
        self.ready.push(Completion { key, outcome });
    }

    fn key(&self, socket: SocketId) -> SlabKey {
        self.sockets
            .key_at(socket.0)
            .expect("the owner of a socket closes it last")
    }

    fn adopt_end(&mut self, end: u64) -> SocketId {
        let socket = Socket {
            end,
            class: Class::DEFAULT,
            receiving: None,
            sending: None,
        };
        let key = self
            .sockets
            .insert(socket)
            .expect("few connections in a simulation");
        let place = self.open.partition_point(|other| other.index < key.index);
        self.open.insert(place, key);
        SocketId(key.index)
    }

    fn send(&mut self, key: OpKey, socket: SocketId, list: Box<SendList>) {
        let slot = self.key(socket);
        let socket = self.sockets.get_mut(slot).expect("just looked up");
        assert!(socket.sending.is_none(), "one send at a time per socket");
        let world = &mut *self.world.borrow_mut();
        let bytes = list.to_bytes(0);
        let cost = Nanos(world.pace.send_per_kib.0 * bytes.len() as u64 / 1024);
        // What a core sends in one turn it sends in order, one after the other.
        self.busy_until = self.busy_until.max(world.now) + cost;
        self.stats.sends += 1;
        self.stats.sent_bytes += bytes.len() as u64;
        let sent = world
            .network
            .send(socket.end, &bytes, self.busy_until, &mut world.prng);
        let stall = Nanos(world.prng.below(world.network.send_stall_max().0 + 1));
        let at = self.busy_until + stall;
        world.schedule(at);
        socket.sending = Some((at, key, list, sent));
    }

    fn connect(&mut self, key: OpKey, address: SocketAddr, timeout: Nanos) {
        let world = &mut *self.world.borrow_mut();
        let now = world.now;
        if world.network.is_unreachable() {
            let at = now + timeout;
            world.schedule(at);
            let silence = Err(io::Error::from(io::ErrorKind::TimedOut));
            self.connecting.push((at, key, silence));
            return;
        }
        let end = world
            .network
            .connect(address, self.number, now, &mut world.prng);
        let end = end.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused));
        let at = now + Nanos(world.prng.below(timeout.0.clamp(1, 1_000_000)));
        world.schedule(at);
        self.connecting.push((at, key, end));
    }

    fn close(&mut self, key: OpKey, socket: SocketId) {
        let slot = self.key(socket);
        let Some(socket) = self.remove(slot) else {
            return;
        };
        let canceled = || io::Error::from(io::ErrorKind::ConnectionAborted);
        if let Some((_, key, list, _)) = socket.sending {
            self.complete(
                key,
                Outcome::Sent {
                    list,
                    result: Err(canceled()),
                },
            );
        }
        if let Some((key, into)) = socket.receiving {
            let result = Err(canceled());
            let received = Received {
                into,
                filled: 0,
                rest: None,
                result,
            };
            self.complete(key, Outcome::Received(received));
        }
        let world = &mut *self.world.borrow_mut();
        world.network.close(socket.end, world.now);
        self.ready.push(Completion {
            key,
            outcome: Outcome::Closed,
        });
    }

    fn release(&mut self, key: OpKey, socket: SocketId) {
        let slot = self.key(socket);
        let Some(socket) = self.remove(slot) else {
            return;
        };
        assert!(socket.sending.is_none(), "nothing is being sent");
        if let Some((key, into)) = socket.receiving {
            let result = Err(io::Error::from(io::ErrorKind::ConnectionAborted));
            let received = Received {
                into,
                filled: 0,
                rest: None,
                result,
            };
            self.complete(key, Outcome::Received(received));
        }
        let stream = Stream::Simulated(socket.end);
        self.complete(key, Outcome::Released(stream));
    }

    fn poll_accepts(&mut self) {
        for slot in 0..self.listeners.len() {
            let Some((address, Some(key))) = self.listeners[slot] else {
                continue;
            };
            loop {
                let world = &mut *self.world.borrow_mut();
                let Some(end) = world.network.accept(address, world.now) else {
                    break;
                };
                let peer = SocketAddr::from(([10, 0, 0, 2], 1024));
                let outcome = Outcome::Accepted(Ok((Stream::Simulated(end), peer)));
                self.ready.push(Completion { key, outcome });
            }
        }
    }

    fn poll_connects(&mut self) {
        let now = self.world.borrow().now;
        let mut index = 0;
        while index < self.connecting.len() {
            if self.connecting[index].0 > now {
                index += 1;
                continue;
            }
            let (_, key, end) = self.connecting.remove(index);
            let socket = end.map(|end| self.adopt_end(end));
            self.complete(key, Outcome::Connected(socket));
        }
    }

    fn poll_sockets(&mut self) {
        let keys = self.open.clone();
        for &key in &keys {
            self.poll_send(key);
        }
        self.poll_receives(keys);
    }

    /// Receives in the order of the classes, as a driver with a kernel does: where something may
    /// arrive that must not wait, what may is received a grant a turn.
    fn poll_receives(&mut self, mut keys: Vec<SlabKey>) {
        if keys.is_empty() {
            return;
        }
        let count = keys.len();
        keys.rotate_left(self.first % count);
        self.first = self.first.wrapping_add(1);
        let strict = self.service.rules().order == Order::Strict;
        let near = strict && self.open().any(|socket| is_urgent(socket.class));
        let now = self.world.borrow().now;
        let mut arrived: PerClass<VecDeque<SlabKey>> = PerClass::from_fn(|_| VecDeque::new());
        for key in keys {
            let world = self.world.borrow();
            let socket = self.sockets.get(key).expect("nobody closes it meanwhile");
            if socket.receiving.is_some() && world.network.has_arrival(socket.end, now) {
                arrived[socket.class].push_back(key);
            }
        }
        loop {
            let backlog = PerClass::from_fn(|class| {
                // How much it is shows when it is received.
                (arrived[class].len() * RECEIVE_BYTES) as u64
            });
            let Some(grant) = self.service.next(now, &backlog) else {
                return;
            };
            let mut bytes = 0;
            while bytes < grant.bytes
                && let Some(key) = arrived[grant.class].pop_front()
            {
                bytes += self.poll_receive(key);
            }
            self.service.served(now, bytes);
            if near && !is_urgent(grant.class) {
                return;
            }
        }
    }

    fn poll_send(&mut self, slot: SlabKey) {
        let now = self.world.borrow().now;
        let Some(socket) = self.sockets.get_mut(slot) else {
            return;
        };
        if socket
            .sending
            .as_ref()
            .is_none_or(|sending| sending.0 > now)
        {
            return;
        }
        let Some((_, key, list, sent)) = socket.sending.take() else {
            return;
        };
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let result = if sent { Ok(()) } else { Err(broken()) };
        self.complete(key, Outcome::Sent { list, result });
    }

    /// Receives from a socket; how many bytes.
    fn poll_receive(&mut self, slot: SlabKey) -> u64 {
        let Some(socket) = self.sockets.get_mut(slot) else {
            return 0;
        };
        let Some((_, into)) = &mut socket.receiving else {
            return 0;
        };
        let wanted = into.as_ref().map_or(0, IoSlice::len);
        // Like the kernel's, a turn has only so many buffers; the next one brings the rest.
        let Some(mut buffer) = self.receive_buffers.take(RECEIVE_BYTES) else {
            return 0;
        };
        let world = &mut *self.world.borrow_mut();
        let limit = wanted + RECEIVE_BYTES;
        let arrival = world
            .network
            .receive(socket.end, limit, world.now, &mut world.prng);
        let mut count = 0;
        let (filled, rest, result) = match arrival {
            Arrival::Nothing => return 0,
            Arrival::End => (0, None, Err(io::ErrorKind::UnexpectedEof.into())),
            Arrival::Broken => (0, None, Err(io::ErrorKind::ConnectionReset.into())),
            Arrival::Bytes(bytes) => {
                self.stats.receives += 1;
                count = bytes.len() as u64;
                self.stats.received_bytes += count;
                let (front, back) = bytes.split_at(wanted.min(bytes.len()));
                if let Some(slice) = into {
                    slice.copy_in(0, front);
                }
                buffer[..back.len()].copy_from_slice(back);
                let rest = (!back.is_empty()).then_some((buffer, back.len()));
                (front.len(), rest, Ok(()))
            }
        };
        if let Some((key, into)) = socket.receiving.take() {
            let received = Received {
                into,
                filled,
                rest,
                result,
            };
            self.ready.push(Completion {
                key,
                outcome: Outcome::Received(received),
            });
        }
        count
    }
}

/// Whether nothing of this class may wait.
fn is_urgent(class: Class) -> bool {
    !class.properties().may_wait
}

impl Driver for SimDriver {
    fn now(&self) -> Time {
        self.world.borrow().now
    }

    fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    fn op_namespace(&mut self) -> OpNamespace {
        self.next_room += 1;
        OpNamespace(self.next_room - 1)
    }

    fn submit(&mut self, key: OpKey, op: Op) {
        match op {
            Op::Send { socket, list } => self.send(key, socket, list),
            Op::Receive { socket, into } => {
                let slot = self.key(socket);
                let socket = self.sockets.get_mut(slot).expect("just looked up");
                assert!(
                    socket.receiving.is_none(),
                    "one receive at a time per socket"
                );
                socket.receiving = Some((key, into));
            }
            // What was sent is on its way in either case.
            Op::Close { socket } | Op::Reset { socket } => self.close(key, socket),
            Op::Release { socket } => self.release(key, socket),
            Op::Connect {
                address, timeout, ..
            } => self.connect(key, address, timeout),
            Op::Accept { listener } => {
                let slot = self.listeners.get_mut(listener.0 as usize);
                if let Some((_, accept)) = slot.and_then(Option::as_mut) {
                    *accept = Some(key);
                } else {
                    let error = io::ErrorKind::NotConnected.into();
                    self.complete(key, Outcome::Accepted(Err(error)));
                }
            }
            Op::Read { slice, .. } | Op::Write { slice, .. } => {
                let result = Err(io::ErrorKind::Unsupported.into());
                self.complete(
                    key,
                    Outcome::File {
                        result,
                        slice: Some(slice),
                    },
                );
            }
            Op::Sync { .. } | Op::Allocate { .. } => {
                let result = Err(io::ErrorKind::Unsupported.into());
                self.complete(
                    key,
                    Outcome::File {
                        result,
                        slice: None,
                    },
                );
            }
        }
    }

    /// Never waits: the world moves its clock when every core has nothing left to do.
    fn reap(&mut self, _wait: Wait, completions: &mut Vec<Completion>) -> io::Result<()> {
        self.stats.turns += 1;
        let now = self.now();
        self.slept += now.since(self.turned_at.max(self.busy_until));
        self.turned_at = now;
        self.waker.0.store(false, Ordering::Release);
        self.poll_accepts();
        self.poll_connects();
        self.poll_sockets();
        completions.append(&mut self.ready);
        Ok(())
    }

    fn listen(
        &mut self,
        address: SocketAddr,
        _options: &SocketOptions,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        let bound = self.world.borrow_mut().network.listen(address);
        let bound = bound.ok_or(io::ErrorKind::AddrInUse)?;
        self.listeners.push(Some((bound, None)));
        let number = u32::try_from(self.listeners.len() - 1).expect("few listeners");
        Ok((ListenerId(number), bound))
    }

    fn close_listener(&mut self, listener: ListenerId) {
        let slot = self.listeners.get_mut(listener.0 as usize);
        if let Some((address, accept)) = slot.and_then(Option::take) {
            self.world.borrow_mut().network.unlisten(address);
            if let Some(key) = accept {
                let error = io::ErrorKind::ConnectionAborted.into();
                self.complete(key, Outcome::Accepted(Err(error)));
            }
        }
    }

    fn has_room_for_socket(&self) -> bool {
        !self.sockets.is_full()
    }

    fn adopt(&mut self, stream: Stream) -> SocketId {
        let Stream::Simulated(end) = stream else {
            unreachable!("a socket of the kernel does not reach the simulation");
        };
        self.adopt_end(end)
    }

    fn set_class(&mut self, socket: SocketId, class: Class) {
        let slot = self.key(socket);
        self.sockets.get_mut(slot).expect("just looked up").class = class;
    }

    /// By connection, as a network card with some receive queues has it.
    fn incoming_core(&self, socket: SocketId) -> Option<CoreId> {
        let end = self.sockets.get(self.key(socket))?.end;
        let queue = end / 2 % RECEIVE_QUEUES;
        u32::try_from(queue).ok().map(CoreId)
    }

    fn set_service(&mut self, rules: &ClassSchedulerRules) {
        self.service.reconfigure(*rules);
    }

    fn open_file(&mut self, _file: Arc<File>) -> io::Result<FileId> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn close_file(&mut self, _file: FileId) {}

    fn core(&self) -> CoreId {
        if let Some((one_in, cores)) = self.wanders {
            let prng = &mut self.world.borrow_mut().prng;
            if prng.chance(1, one_in) {
                let core = u32::try_from(prng.below(u64::from(cores))).expect("a few cores");
                self.core.set(CoreId(core));
            }
        }
        self.core.get()
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.waker) as Arc<dyn Wake>
    }

    fn stats(&self) -> DriverStats {
        self.stats
    }

    fn slept(&self) -> Nanos {
        self.slept
    }
}

/// A core that ends with connections open has crashed: nobody closes them.
impl Drop for SimDriver {
    fn drop(&mut self) {
        let Ok(mut world) = self.world.try_borrow_mut() else {
            return;
        };
        let world = &mut *world;
        let open = self.sockets.iter().map(|(_, socket)| socket.end);
        let connected = self.connecting.iter();
        let connected = connected.filter_map(|(_, _, end)| end.as_ref().ok().copied());
        for end in open.chain(connected) {
            world.network.reset(end, world.now, &mut world.prng);
        }
        for (address, _) in self.listeners.iter().flatten() {
            world.network.unlisten(*address);
        }
    }
}

impl std::fmt::Debug for SimDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimDriver")
            .field("sockets", &self.sockets)
            .finish_non_exhaustive()
    }
}
