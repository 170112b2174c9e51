//! An I/O queue in transit from one core to another: the parts of its connection that move in
//! addition to its stream.
//!
//! The old core packs it at a quiet moment (nothing in flight, nothing to send, no partial
//! payload); the new core unpacks it. Data that the host sends in the meantime waits in the kernel.
//! Invariants: a queue is never on two cores, and its controller never waits for a lost queue
//! ([`PollGroup::lose`](crate::service::PollGroup)).

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
    /// The destination core.
    pub(crate) to: usize,
    /// The reason of the move.
    pub(crate) reason: MoveReason,
}

/// Why a queue moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveReason {
    /// The queue is new, and it is that core's turn.
    Dealt,
    /// Application steering decided it.
    Steered,
    /// Thread scaling decided it.
    Scaled,
    /// Another process takes the target over.
    TakenOver,
}

impl MoveReason {
    /// Returns true if the queue may still return home afterwards. Thread scaling moves it to a
    /// thread with less load than its home: a return would undo the decision repeatedly.
    pub(crate) const fn keeps_home(self) -> bool {
        matches!(self, Self::Dealt | Self::Steered)
    }
}

/// State of a connection that moves with it.
#[derive(Debug)]
pub(crate) struct Handover {
    /// The place that it left.
    pub(crate) from: ConnectionPlace,
    pub(crate) controller: Arc<SharedController>,
    pub(crate) subsystem: u32,
    pub(crate) terms: Terms,
    pub(crate) class: Class,
    pub(crate) reason: MoveReason,
    /// The entry in the new thread's queue count, kept until the queue has arrived.
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
