//! An I/O queue leaves a core, and arrives on another one.

use crate::controller::registry::Place;
use crate::service::core::CoreState;
use crate::session::connection::{Connection, Owner, State};
use crate::session::handover::{Luggage, Moving, Why};
use crate::shares::Purpose;
use base::SlabKey;
use base::mutation::{self, Mutation};
use reactor::{Context, SocketId};

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
            permit: self.permit,
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
        let mut connection = Self::new(nowhere, socket, luggage.ends, luggage.permit, core, cx.now);
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
