//! A TLS handshake in progress: the production code on the simulated network.

use crate::peer::ShakingEnd;
use crate::shared::Shared;
use base::Time;
use reactor::OpKey;
use reactor::tls::{Attempts, Handshake, Session, Shaken, TlsError};
use std::net::SocketAddr;
use std::task::Poll;

/// A connection whose handshake is in progress.
#[derive(Debug)]
pub(super) struct Shaking {
    pub(super) key: OpKey,
    pub(super) end: u64,
    pub(super) deadline: Time,
    pub(super) role: Role,
    /// The peer has no room for more.
    pub(super) is_full: bool,
}

#[derive(Debug)]
pub(super) enum Role {
    /// Of this listener.
    Accept(usize, Box<Handshake>),
    Connect(Box<Dialling>),
}

/// TLS of a connection that is being made.
#[derive(Debug)]
pub(super) struct Dialling {
    pub(super) address: SocketAddr,
    pub(super) attempts: Attempts,
    pub(super) deadline: Time,
}

impl Shaking {
    /// Returns true if it can continue, or its time is over.
    pub(super) fn has_moved(&self, world: &Shared) -> bool {
        let network = &world.network;
        let goes_on = if self.is_full {
            network.room(self.end) > 0
        } else {
            network.has_arrival(self.end, world.now)
        };
        goes_on || self.deadline <= world.now
    }

    /// Continues with the bytes that are there.
    pub(super) fn advance(
        &mut self,
        world: &mut Shared,
    ) -> Poll<Result<Option<Box<Session>>, TlsError>> {
        let mut peer = ShakingEnd {
            world,
            end: self.end,
            is_full: false,
        };
        let result = match &mut self.role {
            Role::Accept(_, handshake) => {
                handshake.advance(&mut peer).map_ok(|shaken| match shaken {
                    Shaken::Secured(session) => Some(session),
                    Shaken::Clear => None,
                })
            }
            Role::Connect(dialling) => dialling.attempts.advance(&mut peer).map_ok(Some),
        };
        self.is_full = peer.is_full;
        result
    }
}
