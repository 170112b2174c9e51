//! One end of a connection without a core: raw bytes, for tests that play a peer with arbitrary
//! behaviour.

use crate::network::{Arrival, Sent};
use crate::peer::ShakingEnd;
use crate::world::World;
use reactor::tls::{Handshake, Session, Shaken, TlsError};
use reactor::{ListPosition, SendList};
use secure::record::RECORD_MAX;
use std::net::SocketAddr;
use std::task::Poll;

/// Origin of raw connections; hosts count from 1.
const ORIGIN: u64 = u64::MAX;

/// Maximum bytes of one receive.
const RECEIVE_BYTES: usize = 64 * 1024;

/// One end of a simulated connection. Dropping it leaves the connection open and silent.
#[derive(Debug)]
pub struct RawEnd {
    world: World,
    number: u64,
}

/// State of a connection after a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawState {
    /// More may arrive.
    Open,
    /// The peer closed it, or it broke; no more data arrives.
    Ended,
}

impl World {
    /// Connects to a listener; `None` if there is none, or it refuses.
    #[must_use]
    pub fn dial(&self, address: SocketAddr) -> Option<RawEnd> {
        let shared = &mut *self.shared.borrow_mut();
        let number = shared
            .network
            .connect(address, ORIGIN, shared.now, &mut shared.prng)?;
        let world = self.clone();
        Some(RawEnd { world, number })
    }

    /// Listens without a driver; port 0 takes the next free one. `None` if the address is in use.
    #[must_use]
    pub fn listen(&self, address: SocketAddr) -> Option<SocketAddr> {
        self.shared.borrow_mut().network.listen(address, None)
    }

    /// Accepts the next connection that has arrived at a listener of [`listen`](Self::listen).
    #[must_use]
    pub fn accept(&self, address: SocketAddr) -> Option<RawEnd> {
        let shared = &mut *self.shared.borrow_mut();
        let number = shared.network.accept(address, shared.now)?;
        let world = self.clone();
        Some(RawEnd { world, number })
    }

    /// Returns true if a connection has arrived at such a listener.
    #[must_use]
    pub fn has_connection(&self, address: SocketAddr) -> bool {
        let shared = self.shared.borrow();
        shared.network.has_connection(address, shared.now)
    }
}

impl RawEnd {
    /// Sends `bytes`; false if the connection is broken, or lacks room for all of them.
    pub fn send(&self, bytes: &[u8]) -> bool {
        let shared = &mut *self.world.shared.borrow_mut();
        let sent = shared
            .network
            .send(self.number, bytes, false, shared.now, &mut shared.prng);
        sent == Sent::Taken(bytes.len())
    }

    /// Appends the arrived bytes to `out`.
    pub fn receive(&self, out: &mut Vec<u8>) -> RawState {
        let shared = &mut *self.world.shared.borrow_mut();
        loop {
            let (end, now) = (self.number, shared.now);
            let prng = &mut shared.prng;
            match shared.network.receive(end, RECEIVE_BYTES, now, prng) {
                Arrival::Nothing => return RawState::Open,
                Arrival::End | Arrival::Broken => return RawState::Ended,
                Arrival::Bytes(bytes) => shared
                    .network
                    .read(end, bytes, |bytes| out.extend_from_slice(bytes)),
            }
        }
    }

    /// Continues the TLS handshake of this end.
    pub(crate) fn shake(&self, handshake: &mut Handshake) -> Poll<Result<Shaken, TlsError>> {
        handshake.advance(&mut ShakingEnd {
            world: &mut self.world.shared.borrow_mut(),
            end: self.number,
            is_full: false,
        })
    }

    /// As [`send`](Self::send), with TLS.
    pub(crate) fn send_sealed(&self, session: &mut Session, bytes: &[u8]) -> bool {
        let mut list = SendList::new();
        list.push_header(bytes);
        let mut sealed = {
            let shared = &mut *self.world.shared.borrow_mut();
            let mut sealed = shared.tls.take();
            session.seal(&list, &mut ListPosition::default(), &mut sealed);
            shared
                .network
                .tap_sealed(self.number, bytes, sealed.unsent());
            sealed
        };
        let is_sent = self.send(sealed.unsent());
        sealed.sent(sealed.unsent().len());
        self.world.shared.borrow_mut().tls.give_back(sealed);
        is_sent
    }

    /// As [`receive`](Self::receive), with TLS.
    pub(crate) fn receive_sealed(&self, session: &mut Session, out: &mut Vec<u8>) -> RawState {
        let mut arrived = Vec::new();
        let state = self.receive(&mut arrived);
        let mut memory = vec![0; RECORD_MAX + arrived.len()];
        let begun = session.begin(&mut memory);
        memory.truncate(begun + arrived.len());
        memory[begun..].copy_from_slice(&arrived);
        let mut data = vec![0; memory.len()];
        match session.open(&mut memory, None, &mut data) {
            Ok((_, bytes)) => out.extend_from_slice(&data[..bytes]),
            Err(_) => return RawState::Ended,
        }
        state
    }

    /// Returns true if [`receive`](Self::receive) would find anything.
    #[must_use]
    pub fn has_arrival(&self) -> bool {
        let shared = self.world.shared.borrow();
        shared.network.has_arrival(self.number, shared.now)
    }

    /// Closes this end; the peer sees the end of the stream after the data sent before.
    pub fn close(self) {
        let shared = &mut *self.world.shared.borrow_mut();
        shared.network.close(self.number, shared.now);
    }

    /// Breaks the connection; the peer may lose data sent before.
    pub fn reset(self) {
        let shared = &mut *self.world.shared.borrow_mut();
        shared
            .network
            .reset(self.number, shared.now, &mut shared.prng);
    }
}
