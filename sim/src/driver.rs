//! A driver in virtual time: the operations of a core, executed in the simulated network.

mod events;
mod handshakes;
mod kernel;
mod operations;
mod secured;
mod shaking;

use crate::network::Concerns;
use crate::shared::{Memory, Shared};
use crate::stirred::{CoreNumber, Woken};
use base::units::CoreId;
use base::{Nanos, Slab, SlabKey, Time};
use kernel::Kernel;
use reactor::arrivals::{Arrivals, DriverStep, Interest};
use reactor::tls::{Attempts, Sealed, Server, Session, Side};
use reactor::{
    BufferClass, BufferPool, Completion, Driver, DriverStats, IoSlice, ListPosition, ListenerId,
    OpKey, Outcome, Received, SendList, SendListPool, SocketId, SocketOptions, Stream, Wait, Wake,
};
use secure::record::Alert;
use shaking::{Dialling, Shaking};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum bytes of one receive: small, so that pieces of every size occur.
const RECEIVE_BYTES: usize = 64 * 1024;

/// Default maximum of connections of a core. All of them are checked whenever one may have changed.
const SOCKETS: usize = 128;

/// Number of cores with a receive queue of the network card.
const RECEIVE_QUEUES: u64 = 3;

/// Duration of a turn without an event. Turns with events take no time, unless the
/// [pace](crate::Pace) sets one. The duration doubles with each consecutive turn without an event,
/// up to a limit: otherwise a core that polls a device or hot sockets takes thousands of turns in a
/// millisecond.
const IDLE_TURN: Nanos = Nanos(200);
const IDLE_TURN_MAX: Nanos = Nanos(IDLE_TURN.0 << 9);

/// An incomplete send.
#[derive(Debug)]
struct Sending {
    key: OpKey,
    list: Box<SendList>,
    /// Bytes of the list that the network has taken; with TLS, that were encrypted.
    sent: usize,
    /// With TLS, encrypted bytes for the network.
    sealed: Option<Sealed>,
    /// With TLS, the next byte of the list.
    position: ListPosition,
    /// Earliest time of the next part.
    at: Time,
    broken: bool,
    /// It is queued for its next part.
    in_line: bool,
}

impl Sending {
    /// Returns true if only its completion remains to be reported.
    fn is_over(&self) -> bool {
        self.broken || self.left() == 0
    }

    /// Bytes that the network has not taken.
    fn left(&self) -> usize {
        let sealed = self.sealed.as_ref();
        let sealed = sealed.map_or(0, |sealed| sealed.unsent().len());
        self.list.bytes() - self.sent + sealed
    }

    /// Appends the next bytes, at most `most`, to `out`.
    fn read(&self, most: usize, out: &mut Vec<u8>) {
        let bytes = self.left().min(most);
        self.list.append_to(self.sent..self.sent + bytes, out);
    }

    /// Notes that the network has taken these bytes.
    fn took(&mut self, bytes: usize) {
        match &mut self.sealed {
            Some(sealed) => sealed.sent(bytes),
            None => self.sent += bytes,
        }
    }
}

#[derive(Debug)]
struct Socket {
    end: u64,
    /// TLS.
    session: Option<Box<Session>>,
    interest: Interest,
    /// The ring reports arrivals.
    watched: bool,
    receiving: Option<(OpKey, Option<IoSlice>)>,
    sending: Option<Sending>,
    closing: Option<OpKey>,
}

/// Sizes of a core's receive buffers.
fn receive_class(memory: &Memory) -> [BufferClass; 1] {
    [BufferClass {
        bytes: RECEIVE_BYTES,
        count: memory.receive_buffers,
    }]
}

#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    accept: Option<OpKey>,
    /// TLS of its connections.
    tls: Option<Arc<Server>>,
}

/// A connection that is being made.
#[derive(Debug)]
struct Connecting {
    /// Time of the result.
    at: Time,
    key: OpKey,
    end: io::Result<u64>,
    tls: Option<Box<Dialling>>,
}

/// The address of every peer.
const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 1024);

/// The state of a core between two turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// It takes a turn as soon as it is not busy.
    Awake,
    /// It sleeps until it is woken, or until this time of its own clock.
    Asleep(Time),
}

/// Executes the operations of one simulated core.
///
/// The io_uring driver's own [`Arrivals`] decides which sockets to receive from, in which order,
/// and when the core sleeps. The sockets, and the ring that watches them, are simulated.
pub struct SimDriver {
    number: CoreNumber,
    /// Its host: the number of the host's first driver.
    host: u64,
    core: Cell<CoreId>,
    /// One query in this many for the thread's core finds it moved, to one of this many cores.
    wanders: Option<(u64, u32)>,
    world: Rc<RefCell<Shared>>,
    /// Offset of its machine's clock from the world's time.
    clock: Rc<Cell<Nanos>>,
    sockets: Slab<Socket>,
    /// Open sockets, in the order of their slots: few of all possible ones.
    open: Vec<SlabKey>,
    arrivals: Arrivals,
    listeners: Vec<Option<Listener>>,
    connecting: Vec<Connecting>,
    shaking: Vec<Shaking>,
    ready: Vec<Completion>,
    buffers: BufferPool,
    send_lists: SendListPool,
    receive_buffers: BufferPool,
    /// Memory sizes.
    memory: Memory,
    waker: Arc<Flag>,
    rest: Rest,
    /// Deadline of a rest that starts when the core is no longer busy.
    postponed: Option<Time>,
    busy_until: Time,
    /// Duration of the next turn, if it has no event.
    idle_turn: Nanos,
    /// Time of the last turn, and total idle time between turns.
    turned_at: Time,
    slept: Nanos,
    next_op_namespace: u16,
    stats: DriverStats,
}

/// A flag: set when the core is woken.
#[derive(Debug)]
struct Flag {
    woken: AtomicBool,
    number: CoreNumber,
    others: Woken,
}

impl Wake for Flag {
    fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.others.add(self.number);
        }
    }
}

impl SimDriver {
    pub(crate) fn new(world: Rc<RefCell<Shared>>) -> Self {
        let memory = world.borrow().memory.clone();
        let take = |classes: &[BufferClass]| world.borrow_mut().spare_buffers.take(classes);
        let buffers = take(&memory.buffers);
        let receive_buffers = take(&receive_class(&memory));
        let number = world.borrow_mut().network.stirred.next_core();
        let waker = Flag {
            woken: AtomicBool::new(false),
            number,
            others: world.borrow().network.stirred.woken.clone(),
        };
        Self {
            number,
            host: number.into(),
            core: Cell::new(CoreId(0)),
            wanders: None,
            world,
            clock: Rc::default(),
            sockets: Slab::with_capacity(SOCKETS),
            open: Vec::new(),
            arrivals: Arrivals::new(SOCKETS),
            listeners: Vec::new(),
            connecting: Vec::new(),
            shaking: Vec::new(),
            ready: Vec::new(),
            buffers,
            send_lists: SendListPool::default(),
            receive_buffers,
            memory,
            waker: Arc::new(waker),
            rest: Rest::Awake,
            postponed: None,
            busy_until: Time::ZERO,
            idle_turn: IDLE_TURN,
            turned_at: Time::ZERO,
            slept: Nanos::ZERO,
            next_op_namespace: 0,
            stats: DriverStats::default(),
        }
    }

    /// Borrows the arrival decisions and the kernel that they call, separately.
    fn split(&mut self) -> (&mut Arrivals, Kernel<'_>) {
        let now = self.now();
        let kernel = Kernel {
            number: self.number,
            busy_until: &mut self.busy_until,
            sockets: &mut self.sockets,
            receive_buffers: &self.receive_buffers,
            ready: &mut self.ready,
            stats: &mut self.stats,
            world: &self.world,
            now,
        };
        (&mut self.arrivals, kernel)
    }

    /// The core has no work before `deadline`: decides whether it sleeps. Returns false if it takes
    /// another turn immediately.
    pub(crate) fn rest(&mut self, deadline: Time) -> bool {
        let polls = self.world.borrow_mut().polls();
        let wait = if polls.is_some() {
            Wait::No
        } else {
            Wait::Until(deadline)
        };
        let completed = !self.ready.is_empty();
        let (arrivals, mut kernel) = self.split();
        let now = kernel.now;
        self.rest = match arrivals.turn(wait, now, completed, &mut kernel) {
            DriverStep::Sleep(until) => Rest::Asleep(until),
            DriverStep::Turn => Rest::Awake,
        };
        while let Some(slot) = self.arrivals.take_close() {
            self.finish_close(slot);
        }
        let idle = self.rest == Rest::Awake && self.ready.is_empty();
        if idle || polls.is_some() {
            // A turn without an event takes time, too.
            let until = self.world.borrow().now + polls.unwrap_or(self.idle_turn);
            self.hold(until);
        }
        self.idle_turn = if idle {
            Nanos(2 * self.idle_turn.0).min(IDLE_TURN_MAX)
        } else {
            IDLE_TURN
        };
        self.stats.sleeps += u64::from(self.rest != Rest::Awake);
        self.rest != Rest::Awake
    }

    /// Returns true while the core is busy with a send, or stalled.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy_until > self.world.borrow().now
    }

    /// Defers the decision on its [rest](Self::rest) until the core is no longer busy.
    pub(crate) const fn postpone(&mut self, deadline: Time) {
        self.postponed = Some(deadline);
    }

    /// Takes the deadline of a deferred rest.
    pub(crate) const fn take_postponed(&mut self) -> Option<Time> {
        self.postponed.take()
    }

    /// Returns the time of the next wake-up without an event, in world time.
    pub(crate) fn wakes_at(&self) -> Time {
        match self.rest {
            Rest::Awake => Time::ZERO,
            Rest::Asleep(Time::NEVER) => Time::NEVER,
            Rest::Asleep(until) => Time(until.0.saturating_sub(self.clock.get().0)),
        }
    }

    /// Advances the clock of the driver's machine by `by`.
    pub(crate) fn jump_clock(&self, by: Nanos) {
        self.clock.set(Nanos(self.clock.get().0 + by.0));
    }

    /// Shares the clock of `other`: both drivers are on the same machine.
    pub(crate) fn shares_clock_with(&mut self, other: &Self) {
        self.clock = Rc::clone(&other.clock);
    }

    /// Sets the maximum number of connections.
    ///
    /// # Panics
    /// If the driver already has connections.
    pub fn limit_sockets(&mut self, count: usize) {
        assert!(self.sockets.is_empty(), "a new driver");
        self.sockets = Slab::with_capacity(count);
        self.arrivals = Arrivals::new(count);
    }

    /// Joins the host of `host`: network faults of a host affect the connections of all its
    /// drivers.
    pub fn belongs_to(&mut self, host: &Self) {
        self.host = host.host;
        self.shares_clock_with(host);
    }

    /// Returns the number of its host.
    pub(crate) const fn host(&self) -> u64 {
        self.host
    }

    /// Returns its number among all drivers of the world.
    pub(crate) const fn number(&self) -> CoreNumber {
        self.number
    }

    /// Free payload buffers of each size.
    #[must_use]
    pub fn free_buffers(&self) -> Vec<usize> {
        self.buffers.usage().map(|(_, free, _)| free).collect()
    }

    /// Number of open connections.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        self.sockets.len()
    }

    /// Time until which the core is busy with a send, or stalled.
    pub(crate) fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// Stalls the core until `until`.
    pub(crate) fn hold(&mut self, until: Time) {
        self.busy_until = self.busy_until.max(until);
    }

    /// Returns true if a sleeping core would wake now: it was woken, or an operation has completed.
    pub(crate) fn is_woken(&self) -> bool {
        self.rest == Rest::Awake
            || self.waker.woken.load(Ordering::Acquire)
            || !self.ready.is_empty()
            || self.looks_at_sockets() && self.has_moved()
    }

    /// Places the driver's thread on `core`.
    pub fn begin_on(&mut self, core: CoreId) {
        self.core.set(core);
    }

    /// Moves the driver's thread among the first `cores` cores: on one in `one_in` queries for its
    /// core; 0 for never.
    pub fn wander(&mut self, one_in: u64, cores: u32) {
        self.wanders = (one_in > 0).then_some((one_in, cores));
    }

    fn open(&self) -> impl Iterator<Item = &Socket> {
        let open = self.open.iter();
        open.map(|&key| self.sockets.get(key).expect("it is open"))
    }

    /// Removes a socket after its owner has closed it.
    fn forget(&mut self, key: SlabKey) -> Option<Socket> {
        let (arrivals, mut kernel) = self.split();
        arrivals.closes(key, &mut kernel);
        self.open.retain(|&other| other != key);
        let socket = self.sockets.remove(key)?;
        self.arrivals.closed(&socket.interest);
        Some(socket)
    }

    fn complete(&mut self, key: OpKey, outcome: Outcome) {
        self.ready.push(Completion { key, outcome });
    }

    /// Fails an operation on a file: there are no files here.
    fn no_file(&mut self, key: OpKey, slice: Option<IoSlice>) {
        let result = Err(io::ErrorKind::Unsupported.into());
        self.complete(key, Outcome::File { result, slice });
    }

    fn key(&self, socket: SocketId) -> SlabKey {
        self.sockets
            .key_at(socket.0)
            .expect("the owner of a socket closes it last")
    }

    fn adopt_end(&mut self, end: u64, session: Option<Box<Session>>) -> SocketId {
        self.world.borrow_mut().network.adopt(end, self.number);
        let socket = Socket {
            end,
            session,
            interest: Interest::new(self.now()),
            watched: false,
            receiving: None,
            sending: None,
            closing: None,
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
        if socket.closing.is_some() {
            let result = Err(io::ErrorKind::ConnectionAborted.into());
            return self.complete(key, Outcome::Sent { list, result });
        }
        assert!(socket.sending.is_none(), "one send at a time per socket");
        socket.sending = Some(Sending {
            key,
            list,
            sent: 0,
            sealed: None,
            position: ListPosition::default(),
            at: Time::ZERO,
            broken: false,
            in_line: false,
        });
        self.continue_sending(slot);
    }

    /// Continues the send in flight.
    fn continue_sending(&mut self, slot: SlabKey) {
        if let Some(socket) = self.sockets.get_mut(slot)
            && let Some(sending) = &mut socket.sending
        {
            sending.in_line = true;
            let (arrivals, mut kernel) = self.split();
            arrivals.sends(slot, &mut kernel);
            // Earlier data may still be queued.
            self.world.borrow_mut().network.stirred.change(self.number);
        }
    }

    fn connect(&mut self, key: OpKey, address: SocketAddr, timeout: Nanos, tls: Option<Side>) {
        let deadline = self.world.borrow().now + timeout;
        let tls = match tls {
            Some(Side::Client(client)) => Some(Box::new(Dialling {
                address,
                attempts: Attempts::new(client),
                deadline,
            })),
            _ => None,
        };
        self.dial(key, address, deadline, tls);
    }

    /// Makes a connection, until `deadline`.
    fn dial(
        &mut self,
        key: OpKey,
        address: SocketAddr,
        deadline: Time,
        tls: Option<Box<Dialling>>,
    ) {
        let world = &mut *self.world.borrow_mut();
        let now = world.now;
        let (at, end) = if world.network.is_unreachable() {
            (deadline, Err(io::ErrorKind::TimedOut.into()))
        } else {
            let end = world
                .network
                .connect(address, self.host, now, &mut world.prng);
            let longest = deadline.since(now).0.clamp(1, 1_000_000);
            let at = now + Nanos(world.prng.below(longest));
            (at, end.ok_or(io::ErrorKind::ConnectionRefused.into()))
        };
        world.network.note(at, now, Concerns::Core(self.number));
        self.connecting.push(Connecting { at, key, end, tls });
    }

    /// Closes a socket; with TLS, its peer learns that nothing follows if `says_so`.
    fn close(&mut self, closing: OpKey, socket: SocketId, says_so: bool) {
        let slot = self.key(socket);
        let (arrivals, mut kernel) = self.split();
        arrivals.closes(slot, &mut kernel);
        arrivals.close_in_turn(slot);
        let socket = self.sockets.get_mut(slot).expect("just looked up");
        assert!(socket.closing.is_none(), "a socket is closed once");
        socket.closing = Some(closing);
        socket.watched = false;
        if says_so {
            let world = &mut *self.world.borrow_mut();
            let (network, prng) = (&mut world.network, &mut world.prng);
            socket.end_session(Alert::CLOSE_NOTIFY, network, world.now, prng);
        }
        let (sending, receiving) = (socket.sending.take(), socket.receiving.take());
        if let Some(Sending {
            key, list, sealed, ..
        }) = sending
        {
            self.give_back(sealed);
            let result = Err(io::ErrorKind::ConnectionAborted.into());
            self.complete(key, Outcome::Sent { list, result });
        }
        self.abort_receive(receiving);
    }

    /// Closes a socket when its close is due.
    fn finish_close(&mut self, slot: SlabKey) {
        if let Some(socket) = self.forget(slot)
            && let Some(closing) = socket.closing
        {
            let now = self.world.borrow().now;
            self.world.borrow_mut().network.close(socket.end, now);
            self.complete(closing, Outcome::Closed);
        }
    }

    /// Returns the memory of a send.
    fn give_back(&self, sealed: Option<Sealed>) {
        if let Some(sealed) = sealed {
            self.world.borrow_mut().tls.give_back(sealed);
        }
    }

    /// Completes the receive of a socket that is being closed.
    fn abort_receive(&mut self, receiving: Option<(OpKey, Option<IoSlice>)>) {
        if let Some((key, into)) = receiving {
            let received = Received {
                into,
                filled: 0,
                rest: None,
                result: Err(io::ErrorKind::ConnectionAborted.into()),
            };
            self.complete(key, Outcome::Received(received));
        }
    }

    /// Adds a listener at an address of the network.
    fn listens(&mut self, address: SocketAddr, options: &SocketOptions) -> ListenerId {
        self.listeners.push(Some(Listener {
            address,
            accept: None,
            tls: match &options.tls {
                Some(Side::Server(server)) => Some(Arc::clone(server)),
                _ => None,
            },
        }));
        let number = u32::try_from(self.listeners.len() - 1).expect("few listeners");
        ListenerId(number)
    }

    fn release(&mut self, key: OpKey, socket: SocketId) {
        let slot = self.key(socket);
        let Some(socket) = self.forget(slot) else {
            return;
        };
        assert!(socket.sending.is_none(), "nothing is being sent");
        self.abort_receive(socket.receiving);
        let end = self.world.borrow().network.unowned(socket.end);
        let stream = Stream::Simulated(end, socket.session);
        self.complete(key, Outcome::Released(stream));
    }
}

/// A core that ends with open connections has crashed: the connections are not closed.
impl Drop for SimDriver {
    fn drop(&mut self) {
        let Ok(mut world) = self.world.try_borrow_mut() else {
            return;
        };
        let world = &mut *world;
        let open = self.sockets.iter().map(|(_, socket)| socket.end);
        let connected = self.connecting.iter();
        let connected = connected.filter_map(|it| it.end.as_ref().ok().copied());
        let shaking = self.shaking.iter().map(|it| it.end);
        for end in open.chain(connected).chain(shaking) {
            world.network.reset(end, world.now, &mut world.prng);
        }
        for listener in self.listeners.iter().flatten() {
            world.network.unlisten(listener.address);
        }
        let spare = &mut world.spare_buffers;
        spare.keep(&self.memory.buffers, &self.buffers);
        spare.keep(&receive_class(&self.memory), &self.receive_buffers);
    }
}

impl std::fmt::Debug for SimDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimDriver")
            .field("sockets", &self.sockets)
            .finish_non_exhaustive()
    }
}
