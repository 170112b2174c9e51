//! An end of a connection during its TLS handshake.

use crate::network::{Arrival, Peeked, Sent};
use crate::shared::Shared;
use reactor::tls::Peer;
use std::io::{self, ErrorKind};

/// The end of a connection, for a handshake. No bit of a handshake is flipped: where its message is
/// refused depends on random bytes, and the same seed must give the same run.
pub(crate) struct ShakingEnd<'a> {
    pub(crate) world: &'a mut Shared,
    /// The end's number.
    pub(crate) end: u64,
    /// The peer had no room for more.
    pub(crate) is_full: bool,
}

impl Peer for ShakingEnd<'_> {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (network, now) = (&mut self.world.network, self.world.now);
        match network.receive(self.end, into.len(), now, &mut self.world.prng) {
            Arrival::Nothing => Err(ErrorKind::WouldBlock.into()),
            Arrival::End => Ok(0),
            Arrival::Broken => Err(ErrorKind::ConnectionReset.into()),
            Arrival::Bytes(bytes) => {
                network.read_into(self.end, &mut into[..bytes]);
                Ok(bytes)
            }
        }
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        match self.world.network.peek(self.end, self.world.now) {
            Peeked::Nothing => Err(ErrorKind::WouldBlock.into()),
            Peeked::End => Ok(None),
            Peeked::Broken => Err(ErrorKind::ConnectionReset.into()),
            Peeked::Byte(byte) => Ok(Some(byte)),
        }
    }

    fn send(&mut self, from: &[u8]) -> io::Result<usize> {
        let (network, now) = (&mut self.world.network, self.world.now);
        network.spare(self.end, from.len());
        match network.send(self.end, from, false, now, &mut self.world.prng) {
            Sent::Broken => Err(ErrorKind::BrokenPipe.into()),
            Sent::Taken(0) if !from.is_empty() => {
                self.is_full = true;
                Err(ErrorKind::WouldBlock.into())
            }
            Sent::Taken(taken) => Ok(taken),
        }
    }
}
