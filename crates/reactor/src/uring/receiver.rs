//! The kernel calls of the arrival decisions: receives, and the ring's poll entries.

use super::UringDriver;
use super::operations::{Operation, RingOp, enter, poll_in, poll_out};
use super::ring::Ring;
use super::socket::{self, Attempt, Receiving, Sending, Socket};
use crate::arrivals::{Arrivals, Got, Interest, Kernel, Wanted};
use crate::clock::monotonic;
use crate::driver::DriverStats;
use crate::memory::{BufferPool, IoSlice};
use crate::op::{Completion, Outcome, Received};
use crate::tls::TlsMemory;
use base::{Slab, SlabKey, Time};
use std::io;

/// The part of a driver that receives.
pub(super) struct Receiver<'a> {
    ring: &'a mut Ring,
    operations: &'a mut Slab<Operation>,
    pub(super) sockets: &'a mut Slab<Socket>,
    receive_buffers: &'a BufferPool,
    pub(super) ready: &'a mut Vec<Completion>,
    pub(super) stats: &'a mut DriverStats,
    iovecs: &'a mut Vec<libc::iovec>,
    pub(super) tls: &'a mut TlsMemory,
}

impl UringDriver {
    /// Splits the driver into the decisions and the kernel that they call.
    #[inline]
    pub(super) fn split(&mut self) -> (&mut Arrivals, Receiver<'_>) {
        let receiver = Receiver {
            ring: &mut self.ring,
            operations: &mut self.operations,
            sockets: &mut self.sockets,
            receive_buffers: &self.receive_buffers,
            ready: &mut self.ready,
            stats: &mut self.stats,
            iovecs: &mut self.iovecs,
            tls: &mut self.tls,
        };
        (&mut self.arrivals, receiver)
    }
}

impl Receiver<'_> {
    /// Makes the ring report when a socket has room to send.
    pub(super) fn watch_room(&mut self, key: SlabKey) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        if socket.poll_out.is_some() || socket.closing.is_some() {
            return;
        }
        let operation = enter(self.operations, RingOp::SendSpace(key));
        let data = operation.tag();
        self.ring.push(poll_out(&socket.fd).user_data(data));
        socket.poll_out = Some(data);
    }
}

impl Kernel for Receiver<'_> {
    #[inline]
    fn interest(&self, key: SlabKey) -> Option<&Interest> {
        self.sockets.get(key).map(|socket| &socket.interest)
    }

    #[inline]
    fn interest_mut(&mut self, key: SlabKey) -> Option<&mut Interest> {
        let socket = self.sockets.get_mut(key);
        socket.map(|socket| &mut socket.interest)
    }

    #[inline]
    fn free_buffers(&self) -> usize {
        self.receive_buffers.free(0)
    }

    fn receive(&mut self, key: SlabKey, most: usize) -> Got {
        let Some(socket) = self.sockets.get_mut(key) else {
            return Got::Nothing;
        };
        let Some(receiving) = &mut socket.receiving else {
            return Got::Nothing;
        };
        let Some(mut buffer) = self.receive_buffers.take(1) else {
            return Got::NoBuffer;
        };
        if socket.session.is_some() {
            return self.receive_secured(key, most, buffer);
        }
        let wanted = receiving.into.as_ref().map_or(0, IoSlice::len);
        let room = receiving.room(buffer.len()).min(most);
        let mut got = Got::End;
        let (filled, rest, result) =
            match socket::receive(&socket.fd, receiving.into.as_mut(), &mut buffer, most) {
                Attempt::WouldBlock => {
                    self.stats.empty_receives += 1;
                    return Got::Nothing;
                }
                Attempt::Moved(0) => (0, None, Err(io::ErrorKind::UnexpectedEof.into())),
                Attempt::Failed(error) => (0, None, Err(error)),
                Attempt::Moved(bytes) => {
                    self.stats.receives += 1;
                    self.stats.received_bytes += bytes as u64;
                    got = Got::Bytes(bytes, bytes < room);
                    let filled = bytes.min(wanted);
                    let rest = (bytes > filled).then_some((buffer, bytes - filled));
                    (filled, rest, Ok(()))
                }
            };
        socket.interest.wanted = Wanted::Nothing;
        if let Some(Receiving { key, into }) = socket.receiving.take() {
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

    fn send(&mut self, key: SlabKey, most: usize) -> bool {
        let Some(socket) = self.sockets.get_mut(key) else {
            return false;
        };
        let Some(sending) = &mut socket.sending else {
            return false;
        };
        if socket.session.is_some() {
            return self.send_secured(key, most);
        }
        let mut left = most;
        let result = loop {
            match socket::send(&socket.fd, &sending.list, sending.sent, left, self.iovecs) {
                Attempt::Moved(bytes) => {
                    self.stats.sends += 1;
                    self.stats.sent_bytes += bytes as u64;
                    sending.sent += bytes;
                    left -= bytes;
                    if sending.sent >= sending.list.bytes() {
                        break Ok(());
                    }
                    if left == 0 {
                        sending.list.set_aside(sending.sent);
                        return true;
                    }
                }
                Attempt::WouldBlock => {
                    self.stats.send_stalls += 1;
                    sending.list.set_aside(sending.sent);
                    self.watch_room(key);
                    return false;
                }
                Attempt::Failed(error) => break Err(error),
            }
        };
        if let Some(Sending { key, list, .. }) = socket.sending.take() {
            let outcome = Outcome::Sent { list, result };
            self.ready.push(Completion { key, outcome });
        }
        false
    }

    fn watch(&mut self, key: SlabKey) {
        let Some(socket) = self.sockets.get_mut(key) else {
            return;
        };
        if socket.poll_in.is_some() || socket.closing.is_some() {
            return;
        }
        let operation = enter(self.operations, RingOp::Arrival(key));
        let data = operation.tag();
        self.ring.push(poll_in(&socket.fd).user_data(data));
        socket.poll_in = Some(data);
    }

    #[inline]
    fn clock(&self) -> Time {
        monotonic()
    }
}
