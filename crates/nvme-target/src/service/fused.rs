//! Fused Compare and Write: two adjacent commands of a queue that execute as one. `[NVMe Base 2.0
//! §3.4.2, NVM 1.0 §2.1.4]`
//!
//! The halves pass their gates one after another. The first half then waits, with its data and not
//! in flight, for the second one, which represents the pair: it takes the [fence](crate::fences)
//! of the block, then the device compares and writes. If one half fails, the other one does, too.

use crate::command::blocks;
use crate::command::table::CommandKind;
use crate::fences::{DeviceId, Fence};
use crate::limits::COMPARE_AND_WRITE_BLOCKS;
use crate::request::{CommandState, OtherHalf, Slot, Step, status_of_result};
use crate::service::connection::Connection;
use crate::service::core::{Action, CoreState};
use crate::service::input::{Arrival, NotTaken};
use crate::service::requests::Running;
use base::mutation::{self, Mutation};
use base::units::Lba;
use block::{BlockError, Completion, Operation, Request};
use reactor::Context;
use wire::nvme::{Command, IoOpcode, Status};

/// Requests of a pair, by the part of their tag.
const COMMIT: u8 = 0;
const COMPARE: u8 = 1;
const WRITE: u8 = 2;

impl Connection {
    /// Ends the first half that waits, because of `command`, unless it is a second half.
    #[cold]
    pub(super) fn interrupt_pair(
        &mut self,
        command: &Command,
        core: &mut CoreState,
        cx: &mut Context<'_>,
    ) {
        if command.is_fabrics() || command.fuse() != Command::FUSE_SECOND {
            self.end_first(Status::ABORTED_MISSING_FUSED, core, cx);
        }
    }

    /// Ends the first half that waits for the next command, if any.
    pub(super) fn end_first(&mut self, status: Status, core: &mut CoreState, cx: &mut Context<'_>) {
        let first = self.session.first_half;
        self.session.set_first_half(None);
        if let Some(slot) = first.and_then(OtherHalf::slot) {
            core.stores.order();
            self.end_other(slot, status, core, cx);
        }
    }

    /// Ends a half of a pair whose other half has failed: at once if it waits for that one, or else
    /// when it would execute.
    fn end_other(&mut self, slot: u16, status: Status, core: &mut CoreState, cx: &mut Context<'_>) {
        let Some(entry) = self.session.commands.get(slot) else {
            return;
        };
        let waits = entry.state() == CommandState::WaitingForFused;
        entry.fused = Some(OtherHalf::FAILED);
        entry.status = Some(status);
        if waits {
            self.run(slot, core, cx).finish(status);
        }
    }

    /// Connects a half that has just taken its slot with its pair.
    fn join_pair(&mut self, slot: u16, other: OtherHalf, core: &mut CoreState, cx: &Context<'_>) {
        self.session.commands.slot(slot).fused = Some(other);
        if let Some(first) = other.slot() {
            self.session.commands.slot(first).fused = Some(OtherHalf::at(slot));
            self.session.set_first_half(None);
        } else {
            self.session.set_first_half(Some(OtherHalf::at(slot)));
            self.await_second(core, cx);
        }
    }

    /// Limits the time until the host sends the command after a first half, because the queue does
    /// not leave this core before.
    fn await_second(&mut self, core: &mut CoreState, cx: &Context<'_>) {
        self.arm(core, cx.now + core.limits.stall_timeout);
    }
}

impl Arrival<'_, '_> {
    /// Begins a half of a fused pair.
    #[cold]
    pub(super) fn begin_half(&mut self) -> Result<(), NotTaken> {
        self.core.stores.order();
        let (fuse, opcode) = (self.command.fuse(), IoOpcode(self.command.opcode()));
        let begun = match (fuse, opcode) {
            (Command::FUSE_FIRST, IoOpcode::COMPARE) => {
                self.begin_half_as(CommandKind::Compare, OtherHalf::AWAITED)
            }
            (Command::FUSE_SECOND, IoOpcode::WRITE) => self.begin_second(),
            _ => Err(Status::INVALID_FIELD.with_dnr().into()),
        };
        let Err(NotTaken::Refused(status)) = begun else {
            return begun;
        };
        if fuse == Command::FUSE_SECOND {
            let of_pair = status.is(Status::INVALID_FIELD);
            let failed = Status::ABORTED_FAILED_FUSED;
            let status = if of_pair { status } else { failed };
            self.connection.end_first(status, self.core, self.cx);
        } else if fuse == Command::FUSE_FIRST {
            let failed = Some(OtherHalf::FAILED);
            self.connection.session.set_first_half(failed);
            self.connection.await_second(self.core, self.cx);
        }
        begun
    }

    fn begin_second(&mut self) -> Result<(), NotTaken> {
        match self.connection.session.first_half {
            None => Err(Status::ABORTED_MISSING_FUSED.into()),
            Some(OtherHalf::FAILED) => Err(Status::ABORTED_FAILED_FUSED.into()),
            Some(first) => self.begin_half_as(CommandKind::Write, first),
        }
    }

    fn begin_half_as(&mut self, kind: CommandKind, other: OtherHalf) -> Result<(), NotTaken> {
        let access = &self.connection.access;
        let namespace = self
            .core
            .namespaces
            .get_mut(access.subsystem, self.command.nsid());
        let (rights, limits) = (access.rights.as_deref(), &self.core.limits);
        let host = (self.connection.owner.host_id(), rights);
        let (mut admitted, _) = blocks::check(kind.row(), self.command, host, namespace, limits)?;
        if admitted.run.blocks > COMPARE_AND_WRITE_BLOCKS {
            return Err(Status::ATOMIC_WRITE_UNIT_EXCEEDED.with_dnr().into());
        }
        if let Some(first) = other.slot() {
            let entry = self.connection.session.commands.slot(first);
            let same = (entry.nsid, entry.range.lba, entry.range.blocks)
                == (admitted.nsid, admitted.run.slba, admitted.run.blocks);
            if !same {
                return Err(Status::INVALID_FIELD.with_dnr().into());
            }
        }
        admitted.fused = Some(other);
        let begun = self.with_data(&admitted);
        let transfers = self.connection.session.transferring > 0;
        if other == OtherHalf::AWAITED && transfers && matches!(begun, Err(NotTaken::Stalled(_))) {
            // Data for which buffers are held may arrive behind the command.
            return Err(Status::COMMAND_INTERRUPTED.into());
        }
        begun
    }

    /// Connects a command that has taken a slot with its pair, if it is fused.
    pub(super) fn join_pair(&mut self, slot: u16, other: Option<OtherHalf>) {
        if let Some(other) = other {
            self.connection.join_pair(slot, other, self.core, self.cx);
        }
    }
}

impl Running<'_, '_> {
    /// Lets a second half wait until the first one has its data. `None` for any other command, and
    /// when it has.
    pub(super) fn wait_for_first(&mut self) -> Option<Step> {
        let entry = self.entry();
        let first = entry.fused.filter(|_| entry.is_second_half())?;
        let Some(first) = first.slot() else {
            return Some(self.other_failed());
        };
        if self.waits_for_other(first) {
            return None;
        }
        self.enter(CommandState::WaitingForFused);
        Some(Step::Wait)
    }

    /// Ends a half because of the other one, with the status that it got then.
    fn other_failed(&mut self) -> Step {
        let status = self.entry().status;
        Step::Answer(status.unwrap_or(Status::ABORTED_FAILED_FUSED))
    }

    fn waits_for_other(&mut self, slot: u16) -> bool {
        let entry = self.connection.session.commands.slot(slot);
        entry.state() == CommandState::WaitingForFused
    }

    /// Handles a half that has its data: the first one waits for the second one, which waits for
    /// the fence.
    pub(super) fn execute_half(&mut self, other: OtherHalf) -> Step {
        if other == OtherHalf::FAILED {
            return self.other_failed();
        }
        let (slot, other) = (self.slot, other.slot());
        if !self.entry().is_second_half() {
            self.enter(CommandState::WaitingForFused);
            let resolved = self.resolve();
            if std::mem::take(&mut resolved.entry.accounting.in_flight)
                && let Some(namespace) = resolved.namespace
            {
                namespace.end_flight();
            }
            if let Some(second) = other.filter(|&second| self.waits_for_other(second)) {
                let (core, cx) = (&mut *self.core, &mut *self.cx);
                self.connection.run(second, core, cx).resume();
            }
            return Step::Wait;
        }
        let core = self.core.index;
        let resolved = self.resolve();
        let Some(namespace) = resolved.namespace else {
            return Step::Answer(Status::INVALID_NAMESPACE.with_dnr());
        };
        let fence = Fence {
            device: DeviceId::of(namespace),
            lba: resolved.entry.range.lba,
            core,
            pair: resolved.ticket,
        };
        let now = self.cx.now;
        for slot in other.into_iter().chain([slot]) {
            let mut half = self.connection.run(slot, self.core, self.cx);
            half.enter(CommandState::Executing);
            half.entry().accounting.submitted = now;
        }
        self.core.actions.push(Action::Fence(fence));
        Step::Wait
    }

    /// Executes the pair of this second half, which has its fence.
    pub(super) fn begin_pair(&mut self) {
        if !self.connection.answers() {
            return self.end_pair(COMMIT, Status::ABORTED_BY_REQUEST);
        }
        if let Some(status) = self.resolve().conflict() {
            return self.end_pair(COMMIT, status);
        }
        let cached = self.resolve().namespace.is_some_and(|n| n.has_cache());
        let commits = self.first().is_some_and(|first| first.range.durable) && cached;
        self.submit_part(if commits { COMMIT } else { COMPARE });
    }

    fn first(&mut self) -> Option<&mut Slot> {
        let first = self.entry().fused.and_then(OtherHalf::slot)?;
        self.connection.session.commands.get(first)
    }

    /// Hands a request of the pair to the device, and the following ones while it completes them at
    /// once.
    fn submit_part(&mut self, mut part: u8) {
        loop {
            let ticket = self.connection.ticket(self.slot);
            let entry = self.entry();
            let (nsid, lba, blocks) = (entry.nsid, entry.range.lba, entry.range.blocks);
            let durable = entry.range.durable && !mutation::active(Mutation::FuaIgnored);
            let (operation, data) = match part {
                COMMIT => (Operation::Flush, None),
                COMPARE => {
                    let data = self.first().and_then(|first| first.transfer.data.take());
                    (Operation::Compare, data)
                }
                _ => {
                    let data = self.entry().transfer.data.take();
                    (Operation::Write { durable }, data)
                }
            };
            let flushes = part == COMMIT;
            let request = Request {
                tag: ticket.part_tag(part),
                operation,
                lba: Lba(if flushes { 0 } else { lba }),
                blocks: if flushes { 0 } else { blocks },
                data,
            };
            let class = self.connection.session.output.class();
            let subsystem = self.connection.access.subsystem;
            let done = self.core.submit(subsystem, nsid, class, request, self.cx);
            let Ok(Completion { result, .. }) = done else {
                return;
            };
            match self.part_done(part, result) {
                Some(next) => part = next,
                None => return,
            }
        }
    }

    /// Handles the completion of a request of the pair that the device had queued.
    pub(super) fn part_completed(&mut self, part: u8, result: Result<(), BlockError>) {
        if let Some(next) = self.part_done(part, result) {
            self.submit_part(next);
        }
    }

    /// Handles the outcome of a request of the pair. Returns the next one.
    fn part_done(&mut self, part: u8, result: Result<(), BlockError>) -> Option<u8> {
        let kind = [CommandKind::Flush, CommandKind::Compare, CommandKind::Write];
        let status = status_of_result(result, kind[usize::from(part)]);
        if status.is_success() && part != WRITE {
            return Some(part + 1);
        }
        self.end_pair(part, status);
        None
    }

    /// Ends the pair with the status of its last request, and removes its fence.
    fn end_pair(&mut self, part: u8, status: Status) {
        let (first, second) = if part == WRITE {
            (Status::SUCCESS, status)
        } else {
            (status, Status::ABORTED_FAILED_FUSED)
        };
        let ticket = self.connection.ticket(self.slot);
        self.core.actions.push(Action::Unfence(ticket));
        let first_slot = self.entry().fused.take().and_then(OtherHalf::slot);
        if let Some(slot) = first_slot {
            let mut half = self.connection.run(slot, self.core, self.cx);
            half.entry().fused = None;
            half.finish(first);
        }
        self.finish(second);
    }

    /// Ends the other half of a pair, one half of which has failed.
    pub(super) fn fail_other(&mut self, other: OtherHalf) {
        if let Some(slot) = other.slot() {
            let (core, cx) = (&mut *self.core, &mut *self.cx);
            let status = Status::ABORTED_FAILED_FUSED;
            self.connection.end_other(slot, status, core, cx);
        } else if self.connection.session.first_half == Some(OtherHalf::at(self.slot)) {
            let failed = Some(OtherHalf::FAILED);
            self.connection.session.set_first_half(failed);
        }
    }
}
