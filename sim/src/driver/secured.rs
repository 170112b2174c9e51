//! Sends and receives of sockets with TLS: records of the production code on the simulated network.

use super::kernel::Kernel;
use super::{RECEIVE_BYTES, Sending, Socket};
use crate::network::{Arrival, Network};
use crate::shared::Shared;
use base::{Prng, SlabKey, Time};
use reactor::arrivals::Got;
use reactor::tls::{Session, SessionEnd};
use secure::record::{Alert, MESSAGE_MAX};
use std::io;

impl Socket {
    /// Ends TLS with an alert, if nothing is being sent.
    pub(super) fn end_session(
        &mut self,
        alert: Alert,
        network: &mut Network,
        now: Time,
        prng: &mut Prng,
    ) {
        if let (Some(session), None) = (&mut self.session, &self.sending) {
            let mut record = [0; MESSAGE_MAX];
            let len = session.alert(alert, &mut record);
            network.send(self.end, &record[..len], false, now, prng);
        }
    }
}

impl Sending {
    /// Appends encrypted bytes, at most `most`, to the bytes that leave the core.
    pub(super) fn seal(
        &mut self,
        session: &mut Session,
        end: u64,
        most: usize,
        world: &mut Shared,
    ) {
        if session.is_over() {
            // A socket that has TLS never sends without it.
            self.broken = true;
            return;
        }
        let sealed = self.sealed.get_or_insert_with(|| world.tls.take());
        let bytes = &mut world.outgoing;
        if sealed.unsent().is_empty() {
            let from = self.position.bytes();
            session.seal(&self.list, &mut self.position, sealed);
            self.sent = self.position.bytes();
            self.list.append_to(from..self.sent, bytes);
            world.network.tap_sealed(end, bytes, sealed.unsent());
            bytes.clear();
        }
        let unsent = sealed.unsent();
        bytes.extend_from_slice(&unsent[..unsent.len().min(most)]);
    }
}

impl Kernel<'_> {
    /// Receives on a socket with TLS; see [`Kernel::receive`](reactor::arrivals::Kernel::receive).
    pub(super) fn receive_secured(&mut self, key: SlabKey, most: usize) -> Got {
        let Some(socket) = self.sockets.get_mut(key) else {
            return Got::Nothing;
        };
        let (Some(session), Some((_, into))) = (&mut socket.session, &mut socket.receiving) else {
            return Got::Nothing;
        };
        let Some(mut buffer) = self.receive_buffers.take(RECEIVE_BYTES) else {
            return Got::NoBuffer;
        };
        let world = &mut *self.world.borrow_mut();
        let (network, prng, now) = (&mut world.network, &mut world.prng, world.now);
        let memory = &mut world.tls.received()[..RECEIVE_BYTES];
        let mut alert = None;
        let (got, result): (_, io::Result<(usize, usize)>) = loop {
            if session.has_ended() {
                break (Got::End, Err(SessionEnd::Closed.into()));
            }
            let begun = session.begin(memory);
            let room = (memory.len() - begun).min(most);
            let bytes = match network.receive(socket.end, room, now, prng) {
                Arrival::Nothing => {
                    self.stats.empty_receives += 1;
                    return Got::Nothing;
                }
                Arrival::End => break (Got::End, Err(SessionEnd::Closed.into())),
                Arrival::Broken => {
                    break (Got::End, Err(io::ErrorKind::ConnectionReset.into()));
                }
                Arrival::Bytes(bytes) => bytes,
            };
            self.stats.receives += 1;
            self.stats.received_bytes += bytes as u64;
            let arrived = &mut memory[..begun + bytes];
            network.read_into(socket.end, &mut arrived[begun..]);
            match session.open(arrived, into.as_mut(), &mut buffer) {
                Ok((0, 0)) => {}
                Ok(lengths) => break (Got::Bytes(bytes, bytes < room), Ok(lengths)),
                Err(end) => {
                    alert = end.alert();
                    break (Got::End, Err(end.into()));
                }
            }
        };
        if let Some(alert) = alert {
            socket.end_session(alert, network, now, prng);
        }
        let (filled, behind) = result.as_ref().ok().copied().unwrap_or_default();
        let rest = (behind > 0).then_some((buffer, behind));
        self.received(key, filled, rest, result.map(drop));
        got
    }
}
