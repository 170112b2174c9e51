//! TLS handshakes of a core's connections, within its turns.

use super::shaking::{Dialling, Role, Shaking};
use super::{PEER, SimDriver};
use crate::network::Concerns;
use base::Time;
use reactor::tls::{Handshake, Refused, Server, Session, TlsError};
use reactor::{OpKey, Outcome, Stream};
use std::sync::Arc;
use std::task::Poll;

impl SimDriver {
    /// Begins the handshake of an accepted connection.
    pub(super) fn shake_accepted(
        &mut self,
        listener: usize,
        key: OpKey,
        end: u64,
        server: &Arc<Server>,
    ) {
        let deadline = self.world.borrow().now + server.timeout();
        let handshake = Handshake::accept(Arc::clone(server));
        let role = Role::Accept(listener, Box::new(handshake));
        self.begin_handshake(key, end, deadline, role);
    }

    /// Begins the handshake of a connection that was made.
    pub(super) fn shake_hands(&mut self, key: OpKey, end: u64, dialling: Box<Dialling>) {
        let deadline = dialling.deadline;
        self.begin_handshake(key, end, deadline, Role::Connect(dialling));
    }

    fn begin_handshake(&mut self, key: OpKey, end: u64, deadline: Time, role: Role) {
        {
            let world = &mut *self.world.borrow_mut();
            world.network.adopt(end, self.number);
            let concerns = Concerns::Core(self.number);
            world.network.note(deadline, world.now, concerns);
        }
        let is_full = false;
        self.continue_handshake(Shaking {
            key,
            end,
            deadline,
            role,
            is_full,
        });
    }

    /// Continues the handshakes with arrivals.
    pub(super) fn poll_handshakes(&mut self) {
        for shaking in std::mem::take(&mut self.shaking) {
            if shaking.has_moved(&self.world.borrow()) {
                self.continue_handshake(shaking);
            } else {
                self.shaking.push(shaking);
            }
        }
    }

    fn continue_handshake(&mut self, mut shaking: Shaking) {
        let result = {
            let world = &mut *self.world.borrow_mut();
            let result = match shaking.advance(world) {
                Poll::Ready(result) => result,
                Poll::Pending if shaking.deadline > world.now => return self.shaking.push(shaking),
                Poll::Pending => Err(TlsError::TimedOut),
            };
            if result.is_err() {
                world.network.close(shaking.end, world.now);
            }
            result
        };
        self.finish_handshake(shaking, result);
    }

    fn finish_handshake(
        &mut self,
        shaking: Shaking,
        result: Result<Option<Box<Session>>, TlsError>,
    ) {
        let Shaking { key, end, role, .. } = shaking;
        let outcome = match (role, result) {
            // After the end of the accept, nothing more is accepted.
            (Role::Accept(listener, _), Ok(_)) if self.listeners[listener].is_none() => {
                let world = &mut *self.world.borrow_mut();
                return world.network.close(end, world.now);
            }
            (Role::Accept(..), result) => {
                let refused = |error| Refused { peer: PEER, error }.into();
                let stream = result.map(|session| {
                    let end = self.world.borrow().network.unowned(end);
                    (Stream::Simulated(end, session), PEER)
                });
                Outcome::Accepted(stream.map_err(refused))
            }
            (Role::Connect(_), Ok(session)) => Outcome::Connected(Ok(self.adopt_end(end, session))),
            (Role::Connect(mut dialling), Err(error)) => match dialling.attempts.try_next(error) {
                Ok(()) => {
                    let (address, deadline) = (dialling.address, dialling.deadline);
                    return self.dial(key, address, deadline, Some(dialling));
                }
                Err(error) => Outcome::Connected(Err(error.into())),
            },
        };
        self.complete(key, outcome);
    }
}
