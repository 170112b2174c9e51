//! The driver's contract: operations of a core and their completions.

use super::{IDLE_TURN, Listener, RECEIVE_QUEUES, Rest, SimDriver};
use base::units::CoreId;
use base::{Nanos, Time};
use reactor::arrivals::Wanted;
use reactor::{
    BufferPool, Completion, Driver, DriverStats, FileId, ListenerId, ListeningSocket, Op, OpKey,
    OpNamespace, Outcome, SendListPool, SocketId, SocketOptions, Stream, Wait, Wake,
};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use switch::Class;
use switch::class_scheduler::ClassSchedulerRules;

impl Driver for SimDriver {
    fn now(&self) -> Time {
        self.world.borrow().now + self.clock.get()
    }

    fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    fn send_lists(&self) -> &SendListPool {
        &self.send_lists
    }

    fn op_namespace(&mut self) -> OpNamespace {
        self.next_op_namespace += 1;
        OpNamespace(self.next_op_namespace - 1)
    }

    fn submit(&mut self, key: OpKey, op: Op) {
        match op {
            Op::Send { socket, list } => self.send(key, socket, list),
            Op::Receive { socket, into } => {
                let slot = self.key(socket);
                let socket = self.sockets.get_mut(slot).expect("just looked up");
                if socket.closing.is_some() {
                    return self.abort_receive(Some((key, into)));
                }
                assert!(
                    socket.receiving.is_none(),
                    "one receive at a time per socket"
                );
                socket.interest.wanted = if into.is_some() {
                    Wanted::Payload
                } else {
                    Wanted::Anything
                };
                socket.receiving = Some((key, into));
                let (arrivals, mut kernel) = self.split();
                let now = kernel.now;
                arrivals.wanted(slot, now, &mut kernel);
            }
            // Sent data is in flight in either case.
            Op::Close { socket } => self.close(key, socket, true),
            Op::Reset { socket } => self.close(key, socket, false),
            Op::Release { socket } => self.release(key, socket),
            Op::Connect {
                address,
                timeout,
                options,
                ..
            } => self.connect(key, address, timeout, options.tls),
            Op::Accept { listener } => {
                let slot = self.listeners.get_mut(listener.0 as usize);
                if let Some(listener) = slot.and_then(Option::as_mut) {
                    listener.accept = Some(key);
                    self.world.borrow_mut().network.stirred.change(self.number);
                } else {
                    let error = io::ErrorKind::NotConnected.into();
                    self.complete(key, Outcome::Accepted(Err(error)));
                }
            }
            Op::Read { slice, .. } | Op::Write { slice, .. } => self.no_file(key, Some(slice)),
            Op::Sync { .. } | Op::Allocate { .. } | Op::Ublk { .. } => self.no_file(key, None),
            Op::Compute { job } => {
                let world = Rc::clone(&self.world);
                let mut random = |bytes: &mut [u8]| world.borrow_mut().prng.fill(bytes);
                let result = job.run(&mut random);
                self.complete(key, Outcome::Computed(Ok(result)));
            }
            Op::Watch { .. } => {
                let result = Err(io::ErrorKind::Unsupported.into());
                self.complete(key, Outcome::Readable(result));
            }
        }
    }

    /// Never waits: the world advances its clock when no core has work.
    fn reap(&mut self, _wait: Wait, completions: &mut Vec<Completion>) -> io::Result<()> {
        self.stats.turns += 1;
        let now = self.world.borrow().now;
        self.rest = Rest::Awake;
        self.slept += now.since(self.turned_at.max(self.busy_until));
        self.turned_at = now;
        if self.waker.woken.swap(false, Ordering::AcqRel) {
            self.idle_turn = IDLE_TURN;
        }
        if self.looks_at_sockets() {
            self.look_at_sockets();
        }
        completions.append(&mut self.ready);
        Ok(())
    }

    fn listen(
        &mut self,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        let mut world = self.world.borrow_mut();
        let bound = world.network.listen(address, Some(self.number));
        drop(world);
        let bound = bound.ok_or(io::ErrorKind::AddrInUse)?;
        Ok((self.listens(bound, options), bound))
    }

    fn close_listener(&mut self, listener: ListenerId) {
        let slot = self.listeners.get_mut(listener.0 as usize);
        if let Some(listener) = slot.and_then(Option::take) {
            self.world.borrow_mut().network.unlisten(listener.address);
            if let Some(key) = listener.accept {
                let error = io::ErrorKind::NotConnected.into();
                self.complete(key, Outcome::Accepted(Err(error)));
            }
        }
    }

    fn release_listener(&mut self, listener: ListenerId) -> io::Result<ListeningSocket> {
        let slot = self.listeners.get_mut(listener.0 as usize);
        let taken = slot.and_then(Option::take);
        let Listener {
            address, accept, ..
        } = taken.ok_or(io::ErrorKind::NotConnected)?;
        let mut world = self.world.borrow_mut();
        let socket = world.network.release_listener(address);
        drop(world);
        if let Some(key) = accept {
            let error = io::ErrorKind::NotConnected.into();
            self.complete(key, Outcome::Accepted(Err(error)));
        }
        Ok(ListeningSocket::Simulated(socket))
    }

    fn adopt_listener(
        &mut self,
        socket: ListeningSocket,
        options: &SocketOptions,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        let ListeningSocket::Simulated(socket) = socket else {
            unreachable!("a socket of the kernel does not reach the simulation");
        };
        let address = socket.into_name();
        let mut world = self.world.borrow_mut();
        world.network.adopt_listener(address, self.number);
        drop(world);
        Ok((self.listens(address, options), address))
    }

    fn has_room_for_socket(&self) -> bool {
        !self.sockets.is_full()
    }

    fn adopt(&mut self, stream: Stream) -> SocketId {
        let Stream::Simulated(end, session) = stream else {
            unreachable!("a socket of the kernel does not reach the simulation");
        };
        self.adopt_end(end.into_name(), session)
    }

    fn set_class(&mut self, socket: SocketId, class: Class) {
        let (slot, now) = (self.key(socket), self.now());
        if let Some(socket) = self.sockets.get_mut(slot) {
            self.arrivals.set_class(&mut socket.interest, class, now);
        }
    }

    fn set_receive_quantum(&mut self, socket: SocketId, quantum: Option<NonZeroUsize>) {
        let key = self.key(socket);
        let quantum = quantum.map_or(usize::MAX, NonZeroUsize::get);
        let (arrivals, mut kernel) = self.split();
        arrivals.set_quantum(key, quantum, &mut kernel);
    }

    /// Returns a core per connection, like a network card with several receive queues.
    fn incoming_core(&self, socket: SocketId) -> Option<CoreId> {
        let end = self.sockets.get(self.key(socket))?.end;
        let queue = end / 2 % RECEIVE_QUEUES;
        u32::try_from(queue).ok().map(CoreId)
    }

    fn set_service(&mut self, rules: &ClassSchedulerRules) {
        self.arrivals.set_service(rules);
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
        DriverStats {
            service: *self.arrivals.service_counters(),
            ..self.stats
        }
    }

    fn slept(&self) -> Nanos {
        self.slept
    }
}
