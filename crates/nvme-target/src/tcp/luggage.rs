//! An I/O queue on its way from one core to another: what of its connection goes along, beside its
//! stream.
//!
//! Packed by the core that it leaves at a quiet moment (nothing under way, nothing to send, no
//! payload half arrived), unpacked by the core that it comes to. What the host has sent meanwhile
//! waits in the kernel. Must never: be on two cores, or leave its controller waiting for a queue
//! that is gone ([`PollGroup::lose`](crate::poll_group::PollGroup)).

use crate::core::CoreState;
use crate::demand::Demand;
use crate::qpair::Terms;
use crate::registry::{Place, Seat, SharedController};
use crate::shares::Purpose;
use crate::tcp::connection::{Connection, Owner, State};
use crate::threads::Counted;
use base::SlabKey;
use base::mutation::{self, Mutation};
use reactor::{Context, SocketId};
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
    const fn leaves_a_home(self) -> bool {
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
    counted: Option<Counted>,
    seat: Seat,
    ends: (SocketAddr, Option<SocketAddr>),
    framer: Framer,
    format: PduFormat,
    r2ts_max: u16,
    named: bool,
    demand: Demand,
    home: Option<u8>,
}

impl Connection {
    /// Whether nothing is under way that would have to come along.
    pub(crate) fn is_quiet(&self) -> bool {
        self.state == State::Live
            && self.qpair.used() == 0
            && self.output.is_idle()
            && self.stalled.is_none()
            && self.framer.data_remaining().is_none()
    }

    /// Whether the queue takes no further commands, because it is to move.
    pub(super) fn holds_back(&self) -> bool {
        self.moving.is_some() && self.transferring == 0 && self.framer.data_remaining().is_none()
    }

    /// Is to move, at a quiet moment.
    pub(crate) fn leave_for(&mut self, moving: Moving) {
        if let Some(counted) = &mut self.counted {
            counted.move_to(moving.to);
        }
        self.moving = Some(moving);
    }

    /// Is not to move any more from this core: it found no quiet moment. On the way home it is not
    /// asked again, or one whose device is slow would spend its time waiting for such moments.
    pub(crate) fn stay(&mut self, here: usize) {
        let to = self.moving.map(|moving| moving.to);
        self.home = self.home.filter(|&home| to != Some(usize::from(home)));
        if let Some(counted) = &mut self.counted {
            counted.move_to(here);
        }
        self.moving = None;
    }

    /// Leaves a core that has let go of its socket; `None` for what is no I/O queue.
    pub(crate) fn pack(mut self, core: &mut CoreState) -> Option<Luggage> {
        let class = self.output.class()?;
        let why = self.moving.map_or(Why::Steered, |moving| moving.why);
        let demand = self.demand;
        let counted = self.counted.take();
        self.closed(core);
        self.strike_off(core);
        let Owner::Io(controller) = self.owner else {
            return None;
        };
        Some(Luggage {
            from: Place {
                core: core.index,
                connection: self.key,
            },
            controller,
            subsystem: self.subsystem,
            terms: self.qpair.terms(),
            class,
            why,
            counted,
            seat: self.seat,
            ends: (self.peer, self.local),
            framer: self.framer,
            format: self.output.format,
            r2ts_max: self.r2ts_max,
            named: self.named,
            demand,
            home: self.home.filter(|_| why.leaves_a_home()),
        })
    }

    /// Comes to a core, whose driver has adopted its stream as `socket`.
    pub(crate) fn unpack(
        luggage: Luggage,
        socket: SocketId,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Self {
        let nowhere = SlabKey {
            index: 0,
            generation: 0,
        };
        let mut connection = Self::new(nowhere, socket, luggage.ends, luggage.seat, core, cx.now);
        connection.leave_fresh(core);
        connection.state = State::Live;
        // Asked here: the rules may have changed on the way.
        let (rules, from) = (core.shared.rules(), connection.peer.ip());
        connection.rights = luggage.controller.pass_from(&rules, from).rights();
        connection.owner = Owner::Io(luggage.controller);
        connection.subsystem = luggage.subsystem;
        connection.reseat(core);
        connection.qpair.accept(luggage.terms);
        connection.framer = luggage.framer;
        if !mutation::active(Mutation::MoveForgetsDigests) {
            connection.output.format = luggage.format;
        }
        connection.r2ts_max = luggage.r2ts_max;
        connection.demand = luggage.demand;
        connection.home = luggage.home;
        core.switch.load[luggage.class] += luggage.demand.load();
        connection.set_class(luggage.named.then_some(luggage.class), core, cx);
        connection.belongs(Purpose::Data, core);
        drop(luggage.counted);
        connection
    }
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
