//! An I/O queue on its way from one core to another: what of its connection goes along, beside its
//! stream.
//!
//! Packed by the core that it leaves at a quiet moment (nothing under way, nothing to send, no
//! payload half arrived), unpacked by the core that it comes to. What the host has sent meanwhile
//! waits in the kernel. Must never: be on two cores, or leave its controller waiting for a queue
//! that is gone ([`PollGroup::lose`](crate::service::PollGroup)).

use crate::controller::registry::{ConnectionPlace, SharedController};
use crate::permit::ConnectionPermit;
use crate::session::commands::Terms;
use crate::session::transfer::R2tTerms;
use crate::switch::threads::Counted;
use std::net::SocketAddr;
use std::sync::Arc;
use switch::Class;
use switch::demand::Demand;
use wire::tcp::PduFormat;
use wire::tcp::framer::Framer;

/// A planned move of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedMove {
    /// The core.
    pub(crate) to: usize,
    /// MoveReason.
    pub(crate) reason: MoveReason,
}

/// MoveReason a queue moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveReason {
    /// It is new, and it is that core's turn.
    Dealt,
    /// Application steering says so.
    Steered,
    /// Thread scaling says so.
    Scaled,
}

impl MoveReason {
    /// Returns true if the queue may still return home from there. Thread scaling brings it where
    /// there is less to do than at home: a return would undo the decision, again and again.
    pub(crate) const fn keeps_home(self) -> bool {
        !matches!(self, Self::Scaled)
    }
}

/// State of a connection that moves along.
#[derive(Debug)]
pub(crate) struct Handover {
    /// Place that it left.
    pub(crate) from: ConnectionPlace,
    pub(crate) controller: Arc<SharedController>,
    pub(crate) subsystem: u32,
    pub(crate) terms: Terms,
    pub(crate) class: Class,
    pub(crate) reason: MoveReason,
    /// Until it has arrived.
    pub(crate) counted: Option<Counted>,
    pub(crate) permit: ConnectionPermit,
    pub(crate) ends: (SocketAddr, Option<SocketAddr>),
    pub(crate) framer: Framer,
    pub(crate) format: PduFormat,
    pub(crate) r2t: R2tTerms,
    pub(crate) class_named: bool,
    pub(crate) demand: Demand,
    pub(crate) home: Option<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_thread_scaling_moves_does_not_return_home() {
        let keeps = [MoveReason::Dealt, MoveReason::Steered, MoveReason::Scaled];
        assert_eq!(keeps.map(MoveReason::keeps_home), [true, true, false]);
    }
}
