//! The end of a connection: it drains, closes, and is forgotten when no device has a command of it.

use crate::command::table::CommandKind;
use crate::controller::registry::{ConnectionPlace, SharedController};
use crate::request::CommandState;
use crate::service::connection::{Connection, Owner};
use crate::service::connection_state::ConnectionState;
use crate::service::core::{Action, CoreState};
use crate::service::requests;
use base::Time;
use base::mutation::{self, Mutation};
use reactor::{Context, Op, OpKey};
use std::sync::Arc;
use switch::doorbell::Mode;
use wire::nvme::Status;

/// Kind of the operation that closes.
pub(crate) const CLOSE: u8 = 3;

impl Connection {
    /// Ends the connection: the driver closes the socket once.
    pub(crate) fn close(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        if self.state() >= ConnectionState::Closing {
            return;
        }
        self.leave_fresh(core);
        self.enter(ConnectionState::Closing, core);
        self.drop_input(core);
        let key = OpKey::new(core.op_namespace, CLOSE, self.key);
        cx.submit(
            key,
            Op::Close {
                socket: self.socket,
            },
        );
        match &self.owner {
            Owner::None => {}
            Owner::Admin(controller) => {
                // At once, so that no queue joins after the admin queue is gone.
                controller.shared.queues().dead = true;
                core.actions
                    .push(Action::EndController(Arc::clone(&controller.shared)));
            }
            Owner::Io(controller) => self.leave_queues(controller, core, cx.now),
        }
    }

    /// The queue is one of its controller's no longer: another one may have its identifier.
    fn leave_queues(&self, controller: &SharedController, core: &CoreState, now: Time) {
        let here = ConnectionPlace {
            core: core.index,
            connection: self.key,
        };
        core.leave_queues(controller, self.session.commands.id, here, now);
    }

    /// Takes Disconnect: no further command of the queue is carried out, and the answer is the last one.
    pub(crate) fn disconnect(&mut self, slot: u16, core: &mut CoreState, cx: &mut Context<'_>) {
        self.disconnecting = Some(slot);
        self.drain(core, cx);
    }

    /// Answers a Disconnect, if every other command of the queue is answered. The queue does not exist
    /// any more when its host learns of that: another connection may have its identifier at once, although
    /// this one stays for a moment. `[NVMe Base 2.0 §6.4]`
    fn disconnected(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        let last = self.session.commands.used() == 1 && self.session.stalled.is_none();
        let Some(slot) = self.disconnecting.take_if(|_| last) else {
            return;
        };
        if let Owner::Io(controller) = &self.owner {
            let controller = Arc::clone(controller);
            self.leave_queues(&controller, core, cx.now);
            // End Controller does not find the queue any more, and need not wait for it.
            self.disarmed = true;
            core.disarm(&controller);
        }
        requests::finish(self, slot, Status::SUCCESS, core, cx);
    }

    /// The driver let go of the socket: whatever waits for the host waits in vain.
    pub(crate) fn closed(&mut self, core: &mut CoreState) {
        self.enter(ConnectionState::Closed, core);
        let unsent = self.session.output.abandon(&mut core.sends());
        self.holding.give_back(unsent);
        if let Some(class) = self.session.output.class() {
            core.connections.classes[class] -= usize::from(self.placement.class_named);
            core.switch.queues[class] -= 1;
            self.placement.counted = None;
            core.switch.load[class] -= self.placement.demand.forget();
        }
        self.release_token_queues(core);
        for slot in self.session.commands.occupied() {
            let entry = self.session.commands.slot(slot);
            // An admin command is never in a device: it waits for another core, or for the end of
            // another controller, which may be far.
            if entry.state() != CommandState::Executing || entry.kind == CommandKind::Admin {
                requests::forget(self, slot, core);
            }
        }
    }

    /// Returns true once, when nothing of the connection can change data any more: its controller
    /// counts such connections.
    pub(crate) fn disarm(&mut self) -> bool {
        let outlives = mutation::active(Mutation::CommandOutlives);
        let harmless = self.state() == ConnectionState::Closed
            && (outlives || !self.session.commands.changes_data());
        harmless && !std::mem::replace(&mut self.disarmed, true)
    }

    /// Returns true once nothing of the connection is left.
    pub(crate) fn is_gone(&self) -> bool {
        self.state() == ConnectionState::Closed && self.session.commands.used() == 0
    }

    /// Carries out no further command, answers those under way, then closes.
    pub(crate) fn drain(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        match self.state() {
            ConnectionState::Live => {
                self.enter(ConnectionState::Draining, core);
                let output = &mut self.session.output;
                output.set_mode(Mode::Immediate, &mut core.sends());
                core.connections.draining.push(self.key);
                self.deadlines.close = cx.now + core.limits.drain_timeout;
                self.arm(core, self.deadlines.close);
                self.drained(core, cx);
            }
            ConnectionState::AwaitingIcReq | ConnectionState::AwaitingConnect => {
                self.close(core, cx);
            }
            _ => {}
        }
    }

    /// Closes a draining connection soon, if nothing is left to answer.
    pub(crate) fn drained(&mut self, core: &mut CoreState, cx: &mut Context<'_>) {
        if self.state() == ConnectionState::Draining {
            self.disconnected(core, cx);
        }
        if self.state() == ConnectionState::Draining && self.is_drained() {
            // Closing while input is unread would reset the connection, and the reset may
            // overtake our last answers: give the host a moment to read them and to close.
            let soon = cx.now + core.limits.linger;
            if soon < self.deadlines.close {
                self.deadlines.close = soon;
                self.arm(core, soon);
            }
        }
    }

    /// Returns true once nothing is left to answer.
    pub(crate) fn is_drained(&self) -> bool {
        let session = &self.session;
        session.commands.used() == 0
            && session.output.is_idle()
            && session.stalled.is_none()
            // With an admin queue its I/O queues end; their commands may be in a device for long.
            && !self.has_queues()
    }

    /// Returns true while I/O queues of this admin queue's controller are connected.
    fn has_queues(&self) -> bool {
        match &self.owner {
            Owner::Admin(controller) => !controller.shared.queues().places.is_empty(),
            Owner::None | Owner::Io(_) => false,
        }
    }
}
