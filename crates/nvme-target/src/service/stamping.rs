//! Time stamps of I/O commands while a trace is open.

use crate::command::blocks::Admitted;
use crate::command::table::Form;
use crate::service::connection::Connection;
use crate::service::core::CoreState;
use crate::service::input::Arrival;
use crate::trace::core::Origin;
use crate::trace::stamps::{Stage, Stamps};
use base::Time;
use reactor::Context;
use std::sync::Arc;
use wire::nvme::{Command, Status};

impl CoreState {
    /// Reads the clock for the next transition of a command, while a trace is open: a device may
    /// take long within a turn.
    #[inline]
    pub(crate) fn stamp(&mut self, cx: &Context<'_>) {
        if self.traces.is_on() {
            self.states.now = cx.driver.now();
        }
    }
}

impl Connection {
    /// Returns the stamps of a command that begins now.
    #[cold]
    pub(crate) fn stamps(
        &self,
        command: &Command,
        admitted: &Admitted,
        core: &mut CoreState,
        now: Time,
    ) -> Box<Stamps> {
        let mut stamps = core.traces.begin(now);
        (stamps.opcode, stamps.cid, stamps.nsid) = (command.opcode(), command.cid(), admitted.nsid);
        let form = admitted.kind.row().form;
        if matches!(form, Form::Read | Form::Write | Form::Data | Form::Blocks) {
            let namespace = core.namespace_ref(self.access.subsystem, admitted.nsid);
            let shift = namespace.map_or(0, |namespace| namespace.block_shift);
            stamps.slba = Some(admitted.run.slba);
            stamps.bytes = u64::from(admitted.run.blocks) << shift;
        }
        stamps
    }

    /// Moves the stamps of a command to its answer, which is about to be appended.
    #[inline]
    pub(super) fn stamp_answer(&mut self, slot: u16, core: &mut CoreState) {
        let entry = self.session.commands.slot(slot);
        if let Some(mut stamps) = entry.stamps.take() {
            stamps.charge(entry.state().stage(), core.states.now);
            stamps.status = entry.status.unwrap_or(Status::INTERNAL_ERROR);
            let mark = self.session.output.filling_mark();
            core.traces.answered(self.key, mark, stamps);
        }
    }

    /// Ends the stamps of answers that the socket has taken.
    #[cold]
    pub(super) fn end_traced(&self, core: &mut CoreState, now: Time) {
        let Some(controller) = self.controller() else {
            return;
        };
        let shared = Arc::clone(&core.shared);
        let origin = Origin {
            core: core.index,
            queue: self.session.commands.id,
            controller,
            shared: &shared,
        };
        let output = &self.session.output;
        let traces = &mut core.traces;
        while let Some(mut stamps) = traces.next_sent(self.key, |mark| output.has_left(mark)) {
            stamps.charge(Stage::Send, now);
            traces.end(stamps, origin);
        }
    }
}

impl Arrival<'_, '_> {
    /// Creates the stamps of a command that was executed on arrival. Its answer was appended, or
    /// waits in a slot.
    #[cold]
    pub(super) fn stamp_answered(&mut self, admitted: &Admitted) {
        let (command, now) = (self.command, self.cx.now);
        let mut stamps = self.connection.stamps(command, admitted, self.core, now);
        stamps.charge(Stage::Core, self.cx.driver.now());
        let (key, session) = (self.connection.key, &mut self.connection.session);
        match session.commands.find(command.cid()) {
            Some(slot) => session.commands.slot(slot).stamps = Some(stamps),
            None => {
                let mark = session.output.filling_mark();
                self.core.traces.answered(key, mark, stamps);
            }
        }
    }
}
