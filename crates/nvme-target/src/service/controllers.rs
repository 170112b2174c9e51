//! The end of controllers and of their queues, commands of other queues that are aborted, and
//! notices to hosts.

use crate::controller::async_events::Notice;
use crate::controller::registry::{ConnectionPlace, SharedController};
use crate::message::CoreMessage;
use crate::request::{CommandState, Ticket, WaitingAbort};
use crate::service::abort::{self, Aborted};
use crate::service::connection::Owner;
use crate::service::core::Action;
use crate::service::events;
use crate::service::poll_group::PollGroup;
use crate::service::requests;
use base::SlabKey;
use reactor::Context;
use std::sync::Arc;
use wire::nvme::Status;
use wire::nvme::admin::ABORT_NOT_ABORTED;

impl PollGroup {
    pub(super) fn run_actions(&mut self, cx: &mut Context<'_>) {
        while let Some(action) = self.core.actions.pop() {
            match action {
                Action::EndController(controller) => self.end_controller(&controller, cx),
                Action::EndOther { controller, asker } => {
                    self.end_controller(&controller, cx);
                    self.end_queues(controller.id, std::iter::once(controller.admin), cx);
                    if !controller.wait_for_end(self.core.index, asker) {
                        self.answer_later(asker, 0, cx);
                    }
                }
                Action::EndQueues(controller) => {
                    let places = std::mem::take(&mut controller.queues().places);
                    self.end_queues(controller.id, places.into_values(), cx);
                }
                Action::Abort { queue, cid, asker } => self.pass_abort(queue, cid, asker, cx),
            }
        }
    }

    /// Ends a controller's I/O queues, and lets it take no more.
    pub(super) fn end_controller(&mut self, controller: &SharedController, cx: &mut Context<'_>) {
        let mut queues = controller.queues();
        queues.dead = true;
        queues.ready = false;
        let places = std::mem::take(&mut queues.places);
        drop(queues);
        self.end_queues(controller.id, places.into_values(), cx);
    }

    pub(super) fn end_queues(
        &mut self,
        cntlid: u16,
        places: impl Iterator<Item = ConnectionPlace>,
        cx: &mut Context<'_>,
    ) {
        for ConnectionPlace { core, connection } in places {
            if core == self.core.index {
                self.end_queue(connection, cntlid, cx);
            } else {
                let note = CoreMessage::EndQueue { connection, cntlid };
                self.core.shared.deliver(core, note);
            }
        }
    }

    pub(super) fn end_queue(&mut self, key: SlabKey, cntlid: u16, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let owned = |controller: &Arc<SharedController>| controller.id == cntlid;
        if connection.controller().is_some_and(owned) {
            connection.close(&mut self.core, cx);
        }
    }

    /// Ends the reset or shutdown of a controller, which waited for its I/O queues.
    pub(super) fn queues_ended(&mut self, admin: SlabKey, cntlid: u16) {
        let connection = self.connections.get_mut(admin);
        if let Some(connection) = connection.filter(|connection| connection.answers())
            && let Owner::Admin(controller) = &mut connection.owner
            && controller.shared.id == cntlid
        {
            let before = controller.registers.state();
            controller.settle();
            self.core
                .count_controller(before, controller.registers.state());
            self.core.touch();
        }
    }

    /// Ends the controllers of hosts that may not use their subsystem any more.
    pub(super) fn end_denied(&mut self, cx: &mut Context<'_>) {
        let rules = self.core.shared.rules();
        for (_, connection) in self.connections.iter_mut() {
            if let Owner::Admin(controller) = &connection.owner
                && controller.shared.is_denied(&rules)
            {
                connection.close(&mut self.core, cx);
            }
        }
    }

    pub(super) fn pass_abort(
        &mut self,
        queue: ConnectionPlace,
        cid: u16,
        asker: Ticket,
        cx: &mut Context<'_>,
    ) {
        let ConnectionPlace { core, connection } = queue;
        let from = self.core.index;
        if core == from {
            if let Some(aborted) = self.abort(connection, cid, (from, asker), cx) {
                self.aborted(asker, aborted, cx);
            }
            return;
        }
        let message = CoreMessage::Abort {
            connection,
            cid,
            from,
            asker,
        };
        if self.core.shared.send(core, message).is_err() {
            self.aborted(asker, false, cx);
        }
    }

    /// Aborts a command for an Abort command of the core `from`. Returns true if it is aborted; `None`
    /// where that is known at the end of the command, which answers the Abort.
    pub(super) fn abort(
        &mut self,
        key: SlabKey,
        cid: u16,
        (from, asker): (usize, Ticket),
        cx: &mut Context<'_>,
    ) -> Option<bool> {
        let Some(connection) = self.connections.get_mut(key) else {
            return Some(false);
        };
        match abort::abort(connection, cid, &mut self.core, cx) {
            Aborted::Yes => Some(true),
            Aborted::No => Some(false),
            Aborted::AtEnd(aborted) => {
                self.core.aborts.push(WaitingAbort {
                    aborted,
                    from,
                    asker,
                });
                None
            }
        }
    }

    /// Answers an Abort command.
    pub(super) fn aborted(&mut self, asker: Ticket, aborted: bool, cx: &mut Context<'_>) {
        if let Some(connection) = self.connections.get_mut(asker.connection)
            && let Owner::Admin(controller) = &mut connection.owner
        {
            controller.aborts -= 1;
        }
        let result = if aborted { 0 } else { ABORT_NOT_ABORTED };
        self.answer_later(asker, u64::from(result), cx);
    }

    /// Answers an admin command that had to wait, with success.
    pub(super) fn answer_later(&mut self, asker: Ticket, result: u64, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(asker.connection) else {
            return;
        };
        let Some(entry) = connection.session.commands.get(asker.slot) else {
            return;
        };
        if entry.state() != CommandState::Executing {
            return;
        }
        entry.result = result;
        requests::finish(connection, asker.slot, Status::SUCCESS, &mut self.core, cx);
        self.reclaim(asker.connection, cx);
    }

    pub(super) fn notify(&mut self, subsystem: Option<u32>, notice: Notice, cx: &mut Context<'_>) {
        for (_, connection) in self.connections.iter_mut() {
            let Owner::Admin(controller) = &mut connection.owner else {
                continue;
            };
            let meant = match subsystem {
                Some(index) => !controller.is_discovery() && connection.access.subsystem == index,
                None => controller.is_discovery(),
            };
            let hidden = matches!(notice, Notice::Namespace(nsid) if !controller.sees(nsid));
            if meant && controller.is_outdated() {
                connection.close(&mut self.core, cx);
            } else if meant && !hidden {
                controller.events.raise(notice);
                events::deliver(connection, &mut self.core, cx);
            }
        }
    }
}
