//! The system calls of the arrival decisions, executed in the simulated network.

use super::{RECEIVE_BYTES, Socket};
use crate::network::{Arrival, Concerns, Sent};
use crate::shared::Shared;
use crate::stirred::CoreNumber;
use base::{Nanos, Slab, SlabKey, Time};
use reactor::arrivals::{self, Got, Interest, Wanted};
use reactor::{Buffer, BufferPool, Completion, DriverStats, IoSlice, Outcome, Received};
use std::cell::RefCell;
use std::io;

/// The system calls of the arrival decisions.
pub(super) struct Kernel<'a> {
    pub(super) number: CoreNumber,
    pub(super) busy_until: &'a mut Time,
    pub(super) sockets: &'a mut Slab<Socket>,
    pub(super) receive_buffers: &'a BufferPool,
    pub(super) ready: &'a mut Vec<Completion>,
    pub(super) stats: &'a mut DriverStats,
    pub(super) world: &'a RefCell<Shared>,
    pub(super) now: Time,
}

impl Kernel<'_> {
    /// Completes the receive of a socket.
    pub(super) fn received(
        &mut self,
        key: SlabKey,
        filled: usize,
        rest: Option<(Buffer, usize)>,
        result: io::Result<()>,
    ) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        socket.interest.wanted = Wanted::Nothing;
        if let Some((key, into)) = socket.receiving.take() {
            let received = Received {
                into,
                filled,
                rest,
                result,
            };
            let outcome = Outcome::Received(received);
            self.ready.push(Completion { key, outcome });
        }
    }
}

impl arrivals::Kernel for Kernel<'_> {
    fn interest(&self, key: SlabKey) -> Option<&Interest> {
        self.sockets.get(key).map(|socket| &socket.interest)
    }

    fn interest_mut(&mut self, key: SlabKey) -> Option<&mut Interest> {
        let socket = self.sockets.get_mut(key);
        socket.map(|socket| &mut socket.interest)
    }

    fn free_buffers(&self) -> usize {
        self.receive_buffers.free(0)
    }

    fn receive(&mut self, key: SlabKey, most: usize) -> Got {
        let Some(socket) = self.sockets.get_mut(key) else {
            return Got::Nothing;
        };
        let Some((_, into)) = &mut socket.receiving else {
            return Got::Nothing;
        };
        if self.receive_buffers.free(0) == 0 {
            return Got::NoBuffer;
        }
        let wanted = into.as_ref().map_or(0, IoSlice::len);
        let room = (wanted + RECEIVE_BYTES).min(most);
        if socket.session.is_some() {
            return self.receive_secured(key, most);
        }
        let world = &mut *self.world.borrow_mut();
        let (prng, now) = (&mut world.prng, world.now);
        let mut got = Got::End;
        let (filled, rest, result) = match world.network.receive(socket.end, room, now, prng) {
            Arrival::Nothing => {
                self.stats.empty_receives += 1;
                return Got::Nothing;
            }
            Arrival::End => (0, None, Err(io::ErrorKind::UnexpectedEof.into())),
            Arrival::Broken => (0, None, Err(io::ErrorKind::ConnectionReset.into())),
            Arrival::Bytes(bytes) => {
                self.stats.receives += 1;
                self.stats.received_bytes += bytes as u64;
                got = Got::Bytes(bytes, bytes < room);
                let filled = wanted.min(bytes);
                if let Some(slice) = into {
                    let mut at = 0;
                    world.network.read(socket.end, filled, |bytes| {
                        slice.copy_in(at, bytes);
                        at += bytes.len();
                    });
                }
                let more = bytes - filled;
                let rest = (more > 0).then(|| {
                    let buffer = self.receive_buffers.take(RECEIVE_BYTES);
                    let mut buffer = buffer.expect("one is free");
                    world.network.read_into(socket.end, &mut buffer[..more]);
                    (buffer, more)
                });
                (filled, rest, Ok(()))
            }
        };
        self.received(key, filled, rest, result);
        got
    }

    fn send(&mut self, key: SlabKey, most: usize) -> bool {
        let Some(socket) = self.sockets.get_mut(key) else {
            return false;
        };
        let Some(sending) = &mut socket.sending else {
            return false;
        };
        sending.in_line = false;
        let world = &mut *self.world.borrow_mut();
        let end = socket.end;
        let room = usize::try_from(world.network.room(end)).unwrap_or(usize::MAX);
        let most_now = most.min(room);
        world.outgoing.clear();
        match &mut socket.session {
            // The remainder is read when it is sent: it must stay valid until then.
            None => sending.read(most_now, &mut world.outgoing),
            Some(session) => sending.seal(session, end, most_now, world),
        }
        let left = sending.left();
        let piece = left.min(most);
        let cost = Nanos(world.pace.send_per_kib.0 * piece as u64 / 1024);
        // The sends of a core in one turn follow each other.
        *self.busy_until = world.now.max(*self.busy_until) + cost;
        self.stats.sends += 1;
        let (prng, bytes) = (&mut world.prng, &world.outgoing);
        let more = left > bytes.len();
        match world.network.send(end, bytes, more, *self.busy_until, prng) {
            Sent::Broken => sending.broken = true,
            Sent::Taken(taken) => {
                self.stats.sent_bytes += taken as u64;
                sending.took(taken);
            }
        }
        if !sending.is_over() {
            self.stats.send_stalls += 1;
            sending.list.set_aside(sending.sent);
        }
        let stall = Nanos(world.prng.below(world.network.send_stall_max().0 + 1));
        sending.at = *self.busy_until + stall;
        let concerns = Concerns::Core(self.number);
        world.network.note(sending.at, world.now, concerns);
        // It continues at that time, as if the socket were full.
        false
    }

    fn watch(&mut self, key: SlabKey) {
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.watched = !socket.interest.closing;
            let world = &mut *self.world.borrow_mut();
            if world.network.has_arrival(socket.end, world.now) {
                world.network.stirred.change(self.number);
            }
        }
    }

    fn clock(&self) -> Time {
        self.now
    }
}
