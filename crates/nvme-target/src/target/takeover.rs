//! Passing the connections of a target to another process, and serving those of one.

use super::Target;
use crate::change::ack::{Ack, AckError, Pausing};
use crate::error::TargetError;
use crate::message::{CoreMessage, Message};
use crate::takeover::{Arrival, Departure, Handed};
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
        let departure = Arc::new(Departure::default());
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
            return Ok(Handed(std::mem::take(&mut departure.left())));
        };
        let error = self.stay(&departure).err().unwrap_or(error);
        Err(error.into())
    }

    /// Serves all connections again.
    fn stay(&self, departure: &Departure) -> Result<(), AckError> {
        let ended = self.end_departure();
        let handed = Handed(std::mem::take(&mut departure.left()));
        self.give(handed).and(ended)
    }

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
        let listeners = self.shared.configuration().listeners.len();
        let (given, limits) = (&handed.0, &self.shared.limits);
        if given.listeners.len() != listeners {
            let found = given.listeners.len();
            return invalid(format!(
                "{found} listeners were handed over, not {listeners}"
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
        Ok(self.give(handed).and(ended)?)
    }

    fn give(&self, handed: Handed) -> Result<(), AckError> {
        let open = self.shared.configuration().listeners.clone();
        let socket = self.shared.socket.get().cloned().unwrap_or_default();
        let sockets = handed.0.listeners.into_iter().zip(open);
        let listeners = sockets.map(|(fd, it)| {
            let options = self.socket_options(socket.clone(), it.bound.tls);
            (it.requested, fd, options)
        });
        let ack = Ack::new(1);
        let arrival = Arrival {
            connections: handed.0.connections,
            listeners: listeners.collect(),
            debt: Pausing::new(&ack),
        };
        self.shared
            .deliver(0, CoreMessage::TakeOver(Box::new(arrival)));
        self.shared.wait(&ack)
    }
}
