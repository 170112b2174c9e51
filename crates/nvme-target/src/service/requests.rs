//! Execution of a command that has a slot: step by step, until it waits or is answered.
//!
//! [`Running::advance`] connects the modules: `command` and `controller` return the next [`Step`];
//! the namespace, its device's channel, the tokens, the buffers and the send side execute it. A
//! waiting command is in exactly one place from which an event resumes it, named by its
//! [state](crate::request::CommandState).

use crate::command::table::{CommandKind, Form};
use crate::command::{blocks, dataset, device, extents, flush};
use crate::limits::Limits;
use crate::namespace::{CoreNamespace, Waiting};
use crate::qos::access::Rights;
use crate::qos::core::Done;
use crate::request::{CommandState, Slot, Step, Ticket, Transitions, status_of_result};
use crate::reservation::state::HostId;
use crate::service::answers::take_buffer;
use crate::service::connection::{Connection, Owner};
use crate::service::core::CoreState;
use crate::service::wait_lists::WaitsFor;
use base::Time;
use base::mutation::{self, Mutation};
use block::{BlockError, Completion, Extents, Request};
use qos::PricedOperation;
use reactor::{BufferPool, Context, IoSlice};
use wire::limits::NSID_BROADCAST;
use wire::nvme::Status;

/// A command that has a slot, with everything needed to execute it.
#[derive(Debug)]
pub(crate) struct Running<'a, 'd> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) slot: u16,
    pub(crate) core: &'a mut CoreState,
    pub(crate) cx: &'a mut Context<'d>,
}

/// The objects that a command refers to, looked up once per step.
pub(super) struct Resolved<'a> {
    pub(super) ticket: Ticket,
    pub(super) entry: &'a mut Slot,
    /// `None` for all namespaces, or if the core does not have the namespace.
    pub(super) namespace: Option<&'a mut CoreNamespace>,
    /// `None` if the host has all rights.
    pub(super) rights: Option<&'a Rights>,
    /// HOSTID.
    pub(super) host: &'a HostId,
    pub(super) limits: &'a Limits,
    pub(super) states: &'a mut Transitions,
}

impl Resolved<'_> {
    /// Returns the status of a command that a reservation excludes, which it may have come to do
    /// since the command arrived.
    #[inline]
    pub(super) fn conflict(&self) -> Option<Status> {
        let namespace = self.namespace.as_deref()?;
        blocks::check_reservation(self.entry.kind.row(), self.host, namespace).err()
    }
}

/// Outcome of an attempt to abort a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aborted {
    /// The command was answered as aborted.
    Yes,
    /// The command is too far advanced, or there is no such command.
    No,
    /// The command begins no further request; it is answered as aborted when the device has
    /// completed the outstanding ones.
    AtEnd(Ticket),
}

impl Running<'_, '_> {
    #[inline]
    pub(crate) fn entry(&mut self) -> &mut Slot {
        self.connection.session.commands.slot(self.slot)
    }

    #[inline]
    pub(super) fn resolve(&mut self) -> Resolved<'_> {
        let ticket = self.connection.ticket(self.slot);
        let access = &self.connection.access;
        let entry = self.connection.session.commands.slot(self.slot);
        Resolved {
            ticket,
            namespace: self.core.namespaces.get_mut(access.subsystem, entry.nsid),
            entry,
            rights: access.rights.as_deref(),
            host: self.connection.owner.host_id(),
            limits: &self.core.limits,
            states: &mut self.core.states,
        }
    }

    /// Moves the command to another state.
    pub(crate) fn enter(&mut self, next: CommandState) {
        let entry = self.connection.session.commands.slot(self.slot);
        entry.enter(next, &mut self.core.states);
    }

    /// Executes the command from `step` until it waits or is answered.
    pub(crate) fn advance(&mut self, mut step: Step) {
        loop {
            step = match step {
                Step::Admit => self.admit(),
                Step::Prepare => self.prepare(),
                Step::Execute => self.execute(),
                Step::Submit(nsid, request) => self.submit(nsid, request),
                Step::SubmitExtents(nsid, command) => self.submit_extents(nsid, command),
                Step::Continue => self.next_part(),
                Step::PayAgain => self.pay_again(),
                Step::WaitForNamespace(nsid) => {
                    let slot = self.slot;
                    return self.connection.wait_for_namespace(slot, nsid, self.core);
                }
                Step::Answer(status) => {
                    let kind = self.entry().kind;
                    self.finish(status);
                    if kind == CommandKind::Admin {
                        self.connection.deliver_events(self.core, self.cx);
                    }
                    return;
                }
                Step::Wait => return,
            };
        }
    }

    /// Continues a command whose data has arrived completely.
    pub(crate) fn arrived(&mut self) {
        self.enter(CommandState::Dispatched);
        let entry = self.entry();
        let whole = entry.transfer.received == entry.transfer.length;
        debug_assert!(
            whole || entry.kind == CommandKind::Admin,
            "all the data is here"
        );
        entry.accounting.submitted = Time::ZERO;
        let damaged = entry.transfer.damaged && !mutation::active(Mutation::TargetDigestIgnored);
        let step = if damaged {
            // [NVMe-TCP 1.0 §3.6.3.2]: the command fails, the connection stays.
            Step::Answer(Status::TRANSIENT_TRANSPORT_ERROR)
        } else if entry.kind == CommandKind::Admin {
            Step::Execute
        } else if entry.accounting.in_flight {
            Step::Prepare
        } else if entry.extents.is_some() {
            self.read_table()
        } else {
            Step::Admit
        };
        self.advance(step);
    }

    /// Reads the table of a command over extents; from then on the command holds its data's buffers
    /// and counts its bytes as outstanding.
    fn read_table(&mut self) -> Step {
        let Resolved {
            entry,
            namespace,
            rights,
            ..
        } = self.resolve();
        if let Err(status) = extents::read_table(entry, rights, namespace.as_deref()) {
            return Step::Answer(status);
        }
        if entry.transfer.data.is_none() {
            self.connection.release_buffers(self.slot);
        }
        self.connection.begin_outstanding(self.slot, self.core);
        Step::Admit
    }

    /// Continues a command whose gate opened: it passes all gates again.
    pub(crate) fn resume(&mut self) {
        self.enter(CommandState::Dispatched);
        self.advance(Step::Admit);
    }

    /// Continues a command whose tokens are paid; for a Flush of all namespaces, the tokens of one
    /// namespace.
    pub(crate) fn paid(&mut self) {
        let entry = self.entry();
        if entry.nsid == NSID_BROADCAST {
            entry.parts.next += 1;
        } else if std::mem::take(&mut entry.range.pays_flush) {
            self.enter(CommandState::Dispatched);
            let step = self.wait_for_tokens(PricedOperation::Flush, 1);
            return self.advance(step);
        } else {
            entry.accounting.paid = true;
        }
        self.resume();
    }

    /// Handles the completion of a device request of the command, or of one of its extents
    /// (`part`).
    pub(crate) fn completed(
        &mut self,
        part: Option<u8>,
        result: Result<(), BlockError>,
        data: Option<IoSlice>,
    ) {
        let Resolved { entry, states, .. } = self.resolve();
        let step = match part {
            Some(part) if entry.fused.is_some() => return self.part_completed(part, result),
            Some(part) => extents::part_completed(entry, part, result, data),
            None if entry.range.commits => committed(entry, result, states),
            None => device::completed(entry, result, data),
        };
        self.advance(step);
    }

    /// Handles the device's completion of the command over extents.
    pub(crate) fn completed_extents(&mut self, command: Extents) {
        let step = extents::done(self.entry(), command);
        self.advance(step);
    }

    /// Requests the command's data from the host, by R2T.
    pub(crate) fn request_data(&mut self) {
        self.enter(CommandState::Transferring);
        let now = self.cx.now;
        let entry = self.entry();
        assert!(
            entry.transfer.data.is_some(),
            "a host sends data for which there is a buffer"
        );
        entry.accounting.submitted = now;
        self.connection.session.transferring += 1;
        let limits = &self.core.limits;
        let patience = limits.stall_timeout.min(limits.transfer_timeout);
        self.connection.arm(self.core, now + patience);
        if let Some(stalled) = &mut self.connection.session.stalled {
            // The data arrives behind the stalled input, which from now on may use buffers reserved
            // for it.
            let waiters = &mut self.core.waiters;
            let input = waiters.lists.remove(stalled.waits);
            stalled.waits = waiters.lists.push(WaitsFor::SHARE, input);
            waiters.try_all();
        }
        self.connection.send_r2ts(self.slot, self.core, self.cx);
    }

    fn execute(&mut self) -> Step {
        let now = self.cx.now;
        let resolved = self.resolve();
        if let Some(status) = resolved.conflict() {
            return Step::Answer(status);
        }
        let Resolved {
            ticket,
            entry,
            namespace,
            rights,
            limits,
            states,
            ..
        } = resolved;
        if let Some(half) = entry.fused {
            return self.execute_half(half);
        }
        let fence = namespace.as_ref().and_then(|namespace| namespace.fence);
        if fence.is_some_and(|lba| entry.may_change(lba)) {
            return Step::WaitForNamespace(entry.nsid);
        }
        entry.enter(CommandState::Executing, states);
        entry.accounting.submitted = now;
        let namespace = namespace.as_deref();
        if let Some(step) = device::commit(entry, ticket, namespace) {
            return step;
        }
        match entry.kind.row().form {
            Form::Controller => self.execute_admin(),
            Form::Flush => Step::Continue,
            Form::Extents => extents::execute(entry, ticket, namespace),
            _ if entry.range.listed => {
                dataset::clip(entry, limits);
                dataset::execute(entry, rights, namespace)
            }
            _ => device::execute(entry, ticket, namespace),
        }
    }

    fn submit(&mut self, nsid: u32, request: Request) -> Step {
        assert!(
            self.entry().state() == CommandState::Executing,
            "a device sees commands that execute"
        );
        let class = self.connection.session.output.class();
        let subsystem = self.connection.access.subsystem;
        let done = self.core.submit(subsystem, nsid, class, request, self.cx);
        self.core.stamp(self.cx);
        let entry = self.connection.session.commands.slot(self.slot);
        entry.order.line = done.as_ref().err().copied().unwrap_or_default();
        if entry.range.commits {
            let states = &mut self.core.states;
            return done.map_or(Step::Wait, |done| committed(entry, done.result, states));
        }
        match done {
            Err(_) if entry.extents.is_some() => extents::queued(entry),
            Err(_) => device::queued(entry),
            Ok(Completion { tag, result, data }) => match Ticket::part(tag) {
                Some(part) => extents::part_done(entry, part, result, data),
                None => device::done(entry, result, data),
            },
        }
    }

    fn submit_extents(&mut self, nsid: u32, command: Extents) -> Step {
        let class = self.connection.session.output.class();
        let subsystem = self.connection.access.subsystem;
        let done = self.core.submit(subsystem, nsid, class, command, self.cx);
        self.core.stamp(self.cx);
        match done {
            Err(number) => {
                self.entry().order.line = number;
                Step::Wait
            }
            Ok(command) => extents::done(self.entry(), command),
        }
    }

    fn next_part(&mut self) -> Step {
        let answers = self.connection.answers();
        let resolved = self.resolve();
        let conflict = resolved.conflict();
        let Resolved {
            ticket,
            entry,
            namespace,
            limits,
            ..
        } = resolved;
        if entry.extents.is_some() {
            return extents::next(entry, ticket);
        }
        if entry.range.listed {
            // No further piece begins.
            entry.status = entry.status.or(conflict);
            return dataset::next(entry, ticket, namespace.as_deref(), limits, answers);
        }
        let entry = self.connection.session.commands.slot(self.slot);
        let access = &self.connection.access;
        let namespaces = self.core.namespaces.of(access.subsystem);
        flush::next(entry, ticket, access.rights.as_deref(), namespaces, answers)
    }

    /// Completes the command with its status: counts it, and answers it unless its connection ends.
    pub(crate) fn finish(&mut self, status: Status) {
        self.connection.end_outstanding(self.slot, self.core);
        self.connection.end_work(self.slot);
        let status = self.connection.with_retry_delay(status);
        let entry = self.entry();
        assert!(
            entry.parts.outstanding == 0,
            "the device has nothing of a command that ends"
        );
        entry.status = Some(status);
        let fused = entry.fused.take();
        if !entry.kind.sends_data() {
            if mutation::active(Mutation::BufferKept) && !status.is_success() {
                std::mem::forget(entry.transfer.data.take());
            }
            entry.transfer.data = None;
            if let Some(table) = &mut entry.extents {
                table.drop_data();
            }
        }
        let (kind, nsid, cid, opcode) = (entry.kind, entry.nsid, entry.cid, entry.opcode);
        if kind == CommandKind::Shutdown
            && let Owner::Admin(controller) = &mut self.connection.owner
        {
            let before = controller.registers.state();
            controller.end_flush(status.is_success());
            let after = controller.registers.state();
            self.core.count_controller(before, after);
        }
        if kind != CommandKind::Admin {
            self.count(status);
        }
        self.core.touch();
        if !status.is_success() && kind != CommandKind::Admin {
            self.connection.log_error(cid, nsid, opcode, status);
        }
        if self.connection.answers() {
            self.connection.answer(self.slot, self.core, self.cx);
        } else {
            self.connection.free(self.slot, self.core);
        }
        if let Some(half) = fused {
            self.fail_other(half);
        }
    }

    /// Counts the command in its namespace, where it is no longer in flight, and for its tenant.
    fn count(&mut self, status: Status) {
        let now = self.cx.now;
        let Resolved {
            entry, namespace, ..
        } = self.resolve();
        let in_flight = std::mem::take(&mut entry.accounting.in_flight);
        let Some(namespace) = namespace else {
            return;
        };
        let submitted = Some(entry.accounting.submitted).filter(|&at| at > Time::ZERO);
        let done = Done {
            operation: entry.kind.row().price,
            success: status.is_success(),
            bytes: u64::from(entry.transfer.length),
            took: now.since(entry.accounting.began),
            device: submitted.map(|at| now.since(at)),
        };
        namespace.count(&done);
        let (nsid, scheduled) = (entry.nsid, namespace.scheduler.is_some());
        if in_flight {
            namespace.end_flight();
        }
        if let Some(queue) = self.connection.token_queue(nsid).filter(|_| scheduled) {
            self.core.tokens.done(queue, &done);
        }
    }
}

/// Handles the result of the flush that precedes a read of committed data; the command then
/// continues.
fn committed(entry: &mut Slot, result: Result<(), BlockError>, states: &mut Transitions) -> Step {
    entry.range.commits = false;
    let status = status_of_result(result, CommandKind::Flush);
    if !status.is_success() {
        return Step::Answer(status);
    }
    entry.enter(CommandState::Dispatched, states);
    Step::Execute
}

impl Connection {
    /// Returns a runnable command of the connection.
    #[inline]
    pub(crate) fn run<'a, 'd>(
        &'a mut self,
        slot: u16,
        core: &'a mut CoreState,
        cx: &'a mut Context<'d>,
    ) -> Running<'a, 'd> {
        Running {
            connection: self,
            slot,
            core,
            cx,
        }
    }

    /// Takes a buffer for the data of a command, or one for each extent of a read.
    ///
    /// # Errors
    /// The list to wait in if too few are free.
    pub(super) fn take_buffers(
        &mut self,
        slot: u16,
        largest: usize,
        pool: &BufferPool,
    ) -> Result<(), WaitsFor> {
        let entry = self.session.commands.slot(slot);
        let taken = match &mut entry.extents {
            Some(table) if entry.kind.sends_data() => {
                let held = table.take_buffers(|length| take_buffer(pool, length));
                held.map(|held| (None, held))
            }
            _ => take_buffer(pool, largest).map(|(data, held)| (Some(data), held)),
        };
        let (data, held) = taken.ok_or_else(|| WaitsFor::buffer_of(largest, pool))?;
        entry.transfer.data = data;
        self.hold(slot, held);
        Ok(())
    }

    /// Lets a command wait for the end of a pause; the pause does not wait for the command.
    fn wait_for_namespace(&mut self, slot: u16, nsid: u32, core: &mut CoreState) {
        let ticket = self.ticket(slot);
        let subsystem = self.access.subsystem;
        let entry = self.session.commands.slot(slot);
        let in_flight = std::mem::take(&mut entry.accounting.in_flight);
        entry.enter(CommandState::WaitingForNamespace, &mut core.states);
        core.stats.pause_waits += 1;
        match core.namespaces.get_mut(subsystem, nsid) {
            Some(namespace) => namespace.waiting.push_back(ticket),
            None => core.waiters.released.push_back(ticket),
        }
        if in_flight {
            core.namespaces.end_flight(subsystem, nsid);
        }
    }

    /// Moves a pausing namespace's commands that wait for a buffer to its gate. They are no longer
    /// in flight, because the buffers may be held by commands that wait for the end of the pause.
    pub(crate) fn leave_flight(&mut self, nsid: u32, core: &mut CoreState) {
        for slot in self.session.commands.occupied() {
            let entry = self.session.commands.slot(slot);
            let waits =
                entry.state() == CommandState::WaitingForBuffer && entry.accounting.in_flight;
            if waits && entry.nsid == nsid {
                core.waiters.forget(entry);
                self.wait_for_namespace(slot, nsid, core);
            }
        }
    }

    /// Moves a command to the gate of its pausing namespace because its device had no room for the
    /// command's request, or for a part of it. This happens once the device has no request of the
    /// command.
    pub(crate) fn put_back(
        &mut self,
        slot: u16,
        nsid: u32,
        waiting: Waiting,
        core: &mut CoreState,
    ) {
        let entry = self.session.commands.slot(slot);
        match waiting {
            Waiting::Request(_) if entry.range.commits => {
                entry.range.commits = false;
                entry.range.durable = true;
            }
            Waiting::Request(request) if entry.has_parts() => {
                entry.parts.outstanding -= 1;
                if entry.range.listed {
                    dataset::put_back(entry, request.blocks);
                } else {
                    flush::put_back(entry, nsid);
                }
                if entry.parts.outstanding > 0 {
                    return;
                }
            }
            Waiting::Request(request) => entry.transfer.data = request.data,
            Waiting::Extents(command) => {
                if let Some(table) = &mut entry.extents {
                    table.extents = command.extents;
                }
            }
        }
        if entry.kind.sends_data() {
            // Other commands may use the buffers in the meantime.
            entry.transfer.data = None;
            if let Some(table) = &mut entry.extents {
                table.drop_data();
            }
            self.release_buffers(slot);
        }
        self.wait_for_namespace(slot, nsid, core);
    }

    /// Drops a command of a closed connection.
    pub(crate) fn forget(&mut self, slot: u16, core: &mut CoreState) {
        self.end_outstanding(slot, core);
        self.end_work(slot);
        let entry = self.session.commands.slot(slot);
        let (in_flight, nsid) = (entry.accounting.in_flight, entry.nsid);
        core.waiters.forget(entry);
        if entry.state() == CommandState::Transferring {
            self.session.transferring -= 1;
        }
        self.free(slot, core);
        if in_flight {
            core.namespaces.end_flight(self.access.subsystem, nsid);
        }
    }

    /// Aborts a command that has no request in the device, or stops its further requests. `[NVMe
    /// Base 2.0 §5.1]`
    pub(crate) fn abort(
        &mut self,
        cid: u16,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) -> Aborted {
        if !self.answers() {
            return Aborted::No;
        }
        let Some(slot) = self.session.commands.find(cid) else {
            return Aborted::No;
        };
        let ticket = self.ticket(slot);
        let subsystem = self.access.subsystem;
        let entry = self.session.commands.slot(slot);
        let aborted = match entry.state() {
            CommandState::WaitingForNamespace
            | CommandState::WaitingForBuffer
            | CommandState::WaitingForFused => true,
            CommandState::WaitingForTokens => {
                let (paying, number) = (entry.paying_namespace(), entry.order.line);
                let queue = self.token_queue(paying);
                queue.is_some_and(|queue| core.tokens.withdraw(queue, number, ticket))
            }
            CommandState::Executing if entry.range.listed => {
                if entry.parts.outstanding == 0 || !dataset::is_open(entry) {
                    return Aborted::No;
                }
                entry.status = Some(Status::ABORTED_BY_REQUEST);
                if mutation::active(Mutation::AbortAnsweredEarly) {
                    return Aborted::Yes;
                }
                return Aborted::AtEnd(ticket);
            }
            CommandState::Executing => {
                let namespace = (subsystem, entry.nsid);
                core.namespaces
                    .withdraw(namespace, entry.order.line, ticket)
                    || mutation::active(Mutation::AbortFreesSlot)
            }
            _ => false,
        };
        if aborted {
            core.waiters.forget(self.session.commands.slot(slot));
            self.run(slot, core, cx).finish(Status::ABORTED_BY_REQUEST);
            return Aborted::Yes;
        }
        Aborted::No
    }
}
