//! An I/O queue leaves a core at a quiet moment, and arrives on another one.

use crate::controller::registry::ConnectionPlace;
use crate::service::connection::{Connection, Owner};
use crate::service::connection_state::ConnectionState;
use crate::service::core::CoreState;
use crate::session::handover::{Handover, MoveReason, PlannedMove};
use crate::shares::Purpose;
use base::mutation::{self, Mutation};
use reactor::{Context, SocketId};
use transport::Receiver;

impl Connection {
    /// Returns true while nothing is under way that a move would have to take along.
    pub(crate) fn is_quiet(&self) -> bool {
        self.state() == ConnectionState::Live && self.session.is_quiet()
    }

    /// Plans a move, for the next quiet moment.
    pub(crate) fn plan_move(&mut self, planned: PlannedMove) {
        if let Some(counted) = &mut self.placement.counted {
            counted.move_to(planned.to);
        }
        self.placement.moving = Some(planned);
    }

    /// Gives a planned move up: the queue found no quiet moment. On the way home it is not asked
    /// again, or one with a slow device would spend its time waiting for such moments.
    pub(crate) fn cancel_move(&mut self, here: usize) {
        let placement = &mut self.placement;
        let to = placement.moving.take().map(|planned| planned.to);
        placement.home = placement.home.filter(|&home| to != Some(usize::from(home)));
        if let Some(counted) = &mut placement.counted {
            counted.move_to(here);
        }
    }

    /// Leaves a core that has let go of its socket; `None` for a connection that is no I/O queue.
    pub(crate) fn hand_over(mut self, core: &mut CoreState) -> Option<Handover> {
        let class = self.session.output.class()?;
        let planned = self.placement.moving;
        let reason = planned.map_or(MoveReason::Steered, |planned| planned.reason);
        let demand = self.placement.demand;
        let counted = self.placement.counted.take();
        self.closed(core);
        let Owner::Io(controller) = self.owner else {
            return None;
        };
        Some(Handover {
            from: ConnectionPlace {
                core: core.index,
                connection: self.key,
            },
            controller,
            subsystem: self.access.subsystem,
            terms: self.session.commands.terms(),
            class,
            reason,
            counted,
            permit: self.permit,
            ends: (self.peer, self.local),
            framer: self.session.receiver.into_framer(),
            format: *self.session.output.format(),
            r2t: self.session.r2t,
            class_named: self.placement.class_named,
            demand,
            home: self.placement.home.filter(|_| reason.keeps_home()),
        })
    }

    /// Arrives on a core; its driver has adopted the stream as `socket`.
    pub(crate) fn take_over(
        handover: Handover,
        socket: SocketId,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Self {
        let mut connection = Self::new(socket, handover.ends, handover.permit, core, cx.now);
        connection.leave_fresh(core);
        connection.enter(ConnectionState::Live, core);
        // Asked here: the rules may have changed on the way.
        let (rules, from) = (core.shared.rules(), connection.peer.ip());
        let decision = handover.controller.decide_from(&rules, from);
        connection.access.rights = decision.rights();
        connection.owner = Owner::Io(handover.controller);
        connection.access.subsystem = handover.subsystem;
        connection.assign_token_queues(core);
        let session = &mut connection.session;
        session.connected = true;
        session.commands.accept(handover.terms);
        session.receiver = Receiver::new(handover.framer);
        session.r2t = handover.r2t;
        if !mutation::active(Mutation::MoveForgetsDigests) {
            session.output.set_format(handover.format);
        }
        connection.placement.demand = handover.demand;
        connection.placement.home = handover.home;
        core.switch.load[handover.class] += handover.demand.load();
        let named = handover.class_named.then_some(handover.class);
        connection.set_class(named, core, cx);
        connection.set_purpose(Purpose::Data, core);
        drop(handover.counted);
        connection
    }
}
