//! An I/O queue on its way from one core to another: what of its connection goes along, beside its
//! stream.
//!
//! Packed by the core that it leaves at a quiet moment (nothing under way, nothing to send, no
//! payload half arrived), unpacked by the core that it comes to. What the host has sent meanwhile
//! waits in the kernel. Must never: be on two cores, or leave its controller waiting for a queue
//! that is gone ([`PollGroup::lose`](crate::service::PollGroup)).

use crate::controller::registry::{Place, SharedController};
use crate::permit::ConnectionPermit;
use crate::session::qpair::Terms;
use crate::switch::demand::Demand;
use crate::switch::threads::Counted;
use std::net::SocketAddr;
use std::sync::Arc;
use switch::Class;
use wire::tcp::PduFormat;
use wire::tcp::framer::Framer;

/// Where a queue is to move to, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    /// The core.
    pub(crate) to: usize,
    /// Why.
    pub(crate) why: Why,
}

/// Why a queue moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is new, and it is that core's turn.
    Dealt,
    /// Application steering says so.
    Steered,
    /// Thread scaling says so.
    Scaled,
}

impl Why {
    /// Whether the queue may still go home from there. Thread scaling brings it where there is less
    /// to do than at home: that it went back would undo what was decided, again and again.
    pub(crate) const fn leaves_a_home(self) -> bool {
        !matches!(self, Self::Scaled)
    }
}

/// What of a connection goes along.
#[derive(Debug)]
pub(crate) struct Luggage {
    /// Where it was.
    pub(crate) from: Place,
    pub(crate) controller: Arc<SharedController>,
    pub(crate) subsystem: u32,
    pub(crate) terms: Terms,
    pub(crate) class: Class,
    pub(crate) why: Why,
    /// Until it has arrived.
    pub(crate) counted: Option<Counted>,
    pub(crate) permit: ConnectionPermit,
    pub(crate) ends: (SocketAddr, Option<SocketAddr>),
    pub(crate) framer: Framer,
    pub(crate) format: PduFormat,
    pub(crate) r2ts_max: u16,
    pub(crate) named: bool,
    pub(crate) demand: Demand,
    pub(crate) home: Option<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_thread_scaling_moves_does_not_go_home() {
        let leaves = [Why::Dealt, Why::Steered, Why::Scaled].map(Why::leaves_a_home);
        assert_eq!(leaves, [true, true, false]);
    }
}
