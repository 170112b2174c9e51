//! Passing the connections of a target to another process, and serving those of one.

use super::Target;
use crate::change::ack::{Ack, AckError, Pausing};
use crate::error::TargetError;
use crate::message::{CoreMessage, Message};
use crate::shared::Shared;
use crate::takeover::{Arrival, Departure, Handed, Left};
use crate::tls::OpenListener;
use reactor::ListeningSocket;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

impl Target {
    /// Releases all listeners and connections for another process: commands in flight are answered,
    /// later ones are handed over. The devices are idle when this returns, and no other change may be
    /// made until [`take_over`](Self::take_over). Cores have `patience` to release what they have, and
    /// once more for queues that were on their way between them.
    ///
    /// # Errors
    /// A core that cannot release everything in time, for example because a device does not answer;
    /// then the target serves all connections again.
    pub fn depart(&self, patience: Duration) -> Result<Handed, TargetError> {
        let order = self.change()?;
        let departure = Arc::new(Departure::new(self.shared.cores().len()));
        let leave = || {
            let leaves = |debt| CoreMessage::Depart {
                departure: Arc::clone(&departure),
                debt,
            };
            self.tell_all(leaves).wait(patience)
        };
        // A queue on its way between two cores arrives before the second message.
        let done = leave().and_then(|()| leave());
        drop(order);
        let Err(error) = done else {
            let mut left = std::mem::take(&mut *departure.left());
            left.newest = self.shared.controllers().newest();
            left.reservations = self.reservations();
            return Ok(Handed(left));
        };
        let error = self.end_departure().err().unwrap_or(error);
        Err(error.into())
    }

    /// Cancels the departure. The last core that ends it has what was released served again, a core
    /// that answers late once it does.
    fn end_departure(&self) -> Result<(), AckError> {
        let stays = |debt| CoreMessage::Stay { debt };
        self.shared.wait(&self.tell_all(stays))
    }

    fn tell_all(&self, message: impl Fn(Pausing) -> CoreMessage) -> Arc<Ack> {
        let cores = self.shared.cores().clone();
        let ack = Ack::new(cores.len());
        for core in cores {
            core.send_always(Message(message(Pausing::new(&ack))));
        }
        ack
    }

    /// Checks that the target can serve connections of another process.
    ///
    /// # Errors
    /// Another set of listeners or subsystems, or lower limits.
    pub fn check_handed(&self, handed: &Handed) -> Result<(), TargetError> {
        let invalid = |reason: String| Err(TargetError::Invalid(reason));
        let (given, limits) = (&handed.0, &self.shared.limits);
        let given_listeners = given.listeners.iter().map(ListeningSocket::address);
        let found: BTreeSet<_> = given_listeners.collect();
        let listeners = self.shared.configuration().listeners.clone();
        let expected = listeners.iter().map(|it| Some(it.bound.address)).collect();
        if found != expected {
            return invalid(format!(
                "listeners at {found:?} were handed over, not at {expected:?}"
            ));
        }
        if given.connections.len() > limits.connections {
            let found = given.connections.len();
            return invalid(format!("{found} connections exceed the limit"));
        }
        let mut identifiers = BTreeSet::new();
        for connection in &given.connections {
            let Some(queue) = &connection.queue.queue else {
                continue;
            };
            let Some(controller) = &queue.controller else {
                continue;
            };
            if !identifiers.insert(queue.cntlid) {
                return invalid(format!("two controllers have the ID {}", queue.cntlid));
            }
            if let Some(nqn) = &controller.subsystem {
                self.subsystem(nqn)?;
            }
        }
        Ok(())
    }

    /// Serves connections: those of another process, once [checked](Self::check_handed), or its own
    /// after [`depart`](Self::depart).
    ///
    /// # Errors
    /// The first core does not answer in time; it serves them once it does.
    pub fn take_over(&self, handed: Handed) -> Result<(), TargetError> {
        // A core that does not answer serves once it does: messages arrive in order.
        let ended = self.end_departure();
        let reserved = self.take_reservations(&handed.0.reservations);
        Ok(self.give(handed).and(ended).and(reserved)?)
    }

    fn give(&self, handed: Handed) -> Result<(), AckError> {
        let ack = Ack::new(1);
        self.shared.controllers().set_newest(handed.0.newest);
        self.shared.serve(handed.0, Some(Pausing::new(&ack)));
        self.shared.wait(&ack)
    }
}

impl Shared {
    /// Has the first core serve connections and listeners that were released.
    pub(crate) fn serve(&self, left: Left, debt: Option<Pausing>) {
        let open = self.configuration().listeners.clone();
        let sockets = left.listeners.into_iter();
        let listeners = sockets.filter_map(|socket| {
            let is_it = |it: &&OpenListener| Some(it.bound.address) == socket.address();
            let Some(it) = open.iter().find(is_it) else {
                tracing::error!("a listener that was handed over is none of the target's: closed");
                return None;
            };
            let options = self.socket.get().cloned().unwrap_or_default();
            Some((
                it.requested,
                socket,
                self.socket_options(options, it.bound.tls),
            ))
        });
        let arrival = Arrival {
            connections: left.connections,
            listeners: listeners.collect(),
            debt,
        };
        self.deliver(0, CoreMessage::TakeOver(Box::new(arrival)));
    }
}
