//! The calls that decisions about arrivals make, answered by the simulated network.

use super::{RECEIVE_BYTES, Socket};
use crate::network::Arrival;
use crate::shared::Shared;
use base::{Slab, SlabKey, Time};
use reactor::arrivals::{self, Got, Interest, Wanted};
use reactor::{BufferPool, Completion, DriverStats, IoSlice, Outcome, Received};
use std::cell::RefCell;
use std::io;

/// The calls that decisions about arrivals make.
pub(super) struct Kernel<'a> {
    pub(super) sockets: &'a mut Slab<Socket>,
    pub(super) receive_buffers: &'a BufferPool,
    pub(super) ready: &'a mut Vec<Completion>,
    pub(super) stats: &'a mut DriverStats,
    pub(super) world: &'a RefCell<Shared>,
    pub(super) now: Time,
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
        let Some(mut buffer) = self.receive_buffers.take(RECEIVE_BYTES) else {
            return Got::NoBuffer;
        };
        let wanted = into.as_ref().map_or(0, IoSlice::len);
        let room = (wanted + RECEIVE_BYTES).min(most);
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
                self.stats.received_bytes += bytes.len() as u64;
                got = Got::Bytes(bytes.len(), bytes.len() < room);
                let (front, back) = bytes.split_at(wanted.min(bytes.len()));
                if let Some(slice) = into {
                    slice.copy_in(0, front);
                }
                buffer[..back.len()].copy_from_slice(back);
                let rest = (!back.is_empty()).then_some((buffer, back.len()));
                (front.len(), rest, Ok(()))
            }
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
        got
    }

    fn watch(&mut self, key: SlabKey) {
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.watched = !socket.interest.closing;
        }
    }

    fn clock(&self) -> Time {
        self.now
    }
}
