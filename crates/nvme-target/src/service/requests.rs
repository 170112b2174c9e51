//! The life of a command that has a slot: one step after the other, until it waits or is answered.
//!
//! [`advance`] carries values between the rooms that know one thing each: `command` and
//! `controller` say the next [`Step`]; the namespace, its device's channel, the tokens, the buffers
//! and the send side take it. A command that waits is in exactly one place from which an event
//! brings it back, named by its [state](crate::request::CommandState).

use crate::command::step::Step;
use crate::command::table::{CommandKind, Form};
use crate::command::{cost, dataset, device, extents, flush};
use crate::namespace::{CoreNamespace, Waiting};
use crate::qos::core::{Done, Priced};
use crate::request::{CommandState, Slot, StateCounts, Ticket, status_of_result};
use crate::service::connection::{Connection, Owner};
use crate::service::core::CoreState;
use crate::service::prepare::prepare;
use crate::service::{answers, controller, events};
use base::Time;
use base::mutation::{self, Mutation};
use block::{BlockError, Completion, Extents, Request};
use qos::PricedOperation;
use reactor::{Context, IoSlice};
use wire::limits::NSID_BROADCAST;
use wire::nvme::Status;

/// Takes a command on from `step`, until it waits or is answered.
pub(crate) fn advance(
    connection: &mut Connection,
    slot: u16,
    step: Step,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let mut step = step;
    loop {
        step = match step {
            Step::Admit => admit(connection, slot, core),
            Step::Prepare => prepare(connection, slot, core, cx),
            Step::Execute => execute(connection, slot, core, cx),
            Step::Submit(nsid, request) => submit(connection, slot, nsid, request, core, cx),
            Step::SubmitExtents(nsid, command) => {
                submit_extents(connection, slot, nsid, command, core, cx)
            }
            Step::Continue => next_part(connection, slot, core),
            Step::PayAgain => pay_again(connection, slot, core),
            Step::WaitForNamespace(nsid) => {
                return wait_for_namespace(connection, slot, nsid, core);
            }
            Step::Answer(status) => {
                let kind = connection.session.commands.slot(slot).kind;
                finish(connection, slot, status, core, cx);
                if kind == CommandKind::Admin {
                    events::deliver(connection, core, cx);
                }
                return;
            }
            Step::Wait => return,
        };
    }
}

/// All the data of a command is here.
pub(crate) fn arrived(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.session.commands.slot(slot);
    let whole = entry.transfer.received == entry.transfer.length;
    debug_assert!(
        whole || entry.kind == CommandKind::Admin,
        "all the data is here"
    );
    entry.enter(CommandState::Dispatched, &mut core.states);
    entry.accounting.submitted = Time::ZERO;
    let damaged = entry.transfer.damaged && !mutation::active(Mutation::TargetDigestIgnored);
    let step = if damaged {
        // [NVMe-TCP 1.0 §3.6.3.2]: the connection goes on, the command does not.
        Step::Answer(Status::TRANSIENT_TRANSPORT_ERROR)
    } else if entry.kind == CommandKind::Admin {
        Step::Execute
    } else if entry.accounting.in_flight {
        Step::Prepare
    } else if entry.extents.is_some() {
        read_table(connection, slot, core)
    } else {
        Step::Admit
    };
    advance(connection, slot, step, core, cx);
}

/// Reads the table of a command over extents; what it holds from then on, and what counts as
/// outstanding, is its data.
fn read_table(connection: &mut Connection, slot: u16, core: &mut CoreState) -> Step {
    let entry = connection.session.commands.slot(slot);
    let namespace = core.namespace_ref(connection.access.subsystem, entry.nsid);
    let rights = connection.access.rights.as_deref();
    if let Err(status) = extents::read_table(entry, rights, namespace) {
        return Step::Answer(status);
    }
    if entry.transfer.data.is_none() {
        connection.release_buffers(slot);
    }
    connection.begin_outstanding(slot, core);
    Step::Admit
}

/// A gate opened that a command waited at: it passes its gates again.
pub(crate) fn resume(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.session.commands.slot(slot);
    entry.enter(CommandState::Dispatched, &mut core.states);
    advance(connection, slot, Step::Admit, core, cx);
}

/// The namespace pauses: its commands that wait for a buffer wait at its gate instead. They are not
/// in flight any more, for the buffers may be held by commands that wait for the end of the pause.
pub(crate) fn leave_flight(connection: &mut Connection, nsid: u32, core: &mut CoreState) {
    for slot in connection.session.commands.occupied() {
        let entry = connection.session.commands.slot(slot);
        let waits = entry.state() == CommandState::WaitingForBuffer && entry.accounting.in_flight;
        if waits && entry.nsid == nsid {
            core.waiters.forget(entry);
            wait_for_namespace(connection, slot, nsid, core);
        }
    }
}

/// The namespace pauses, and its device had no room for a request of a command, or for all of it:
/// the command waits at the gate, once the device has nothing of it.
pub(crate) fn put_back(
    connection: &mut Connection,
    slot: u16,
    nsid: u32,
    waiting: Waiting,
    core: &mut CoreState,
) {
    let entry = connection.session.commands.slot(slot);
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
        // Others may have the buffers meanwhile.
        entry.transfer.data = None;
        if let Some(table) = &mut entry.extents {
            table.drop_data();
        }
        connection.release_buffers(slot);
    }
    wait_for_namespace(connection, slot, nsid, core);
}

/// The tokens of a command are paid, or those of one namespace of a Flush of all.
pub(crate) fn paid(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.session.commands.slot(slot);
    if entry.nsid == NSID_BROADCAST {
        entry.parts.next += 1;
    } else if std::mem::take(&mut entry.range.pays_flush) {
        entry.enter(CommandState::Dispatched, &mut core.states);
        let step = wait_for_tokens(connection, slot, PricedOperation::Flush, 1, core);
        return advance(connection, slot, step, core, cx);
    } else {
        entry.accounting.paid = true;
    }
    resume(connection, slot, core, cx);
}

/// The device is done with a request of a command, or of one of its extents.
pub(crate) fn completed(
    connection: &mut Connection,
    slot: u16,
    (part, result, data): (Option<u8>, Result<(), BlockError>, Option<IoSlice>),
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.session.commands.slot(slot);
    let step = match part {
        Some(part) => extents::part_completed(entry, part, result, data),
        None if entry.range.commits => committed(entry, result, &mut core.states),
        None => device::completed(entry, result, data),
    };
    advance(connection, slot, step, core, cx);
}

/// The device has committed what a command is to read, which goes on then.
fn committed(entry: &mut Slot, result: Result<(), BlockError>, states: &mut StateCounts) -> Step {
    entry.range.commits = false;
    let status = status_of_result(result, CommandKind::Flush);
    if !status.is_success() {
        return Step::Answer(status);
    }
    entry.enter(CommandState::Dispatched, states);
    Step::Execute
}

/// The device is done with a command over extents.
pub(crate) fn completed_extents(
    connection: &mut Connection,
    slot: u16,
    command: Extents,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let step = extents::done(connection.session.commands.slot(slot), command);
    advance(connection, slot, step, core, cx);
}

fn admit(connection: &mut Connection, slot: u16, core: &mut CoreState) -> Step {
    let entry = connection.session.commands.slot(slot);
    debug_assert_eq!(
        entry.state(),
        CommandState::Dispatched,
        "gates are for dispatched commands"
    );
    if entry.nsid == NSID_BROADCAST {
        return admit_to_all(connection, slot, core);
    }
    let (nsid, range) = (entry.nsid, entry.range);
    let ranged = !entry.has_parts();
    let (incarnation, paid) = (entry.accounting.incarnation, entry.accounting.paid);
    let table = entry.extents.as_deref();
    let namespace = core.namespace(connection.access.subsystem, nsid);
    // The identifier may be another namespace's since the command was checked.
    let Some(namespace) = namespace.filter(|namespace| namespace.incarnation == incarnation) else {
        return Step::Answer(Status::INVALID_NAMESPACE.with_dnr());
    };
    if !namespace.is_open() && !mutation::active(Mutation::PauseIgnored) {
        return Step::WaitForNamespace(nsid);
    }
    // The namespace may have become smaller while the command waited.
    let fits = table.map_or_else(
        || namespace.contains(range.lba, u64::from(range.blocks)),
        |table| table.end() <= namespace.blocks,
    );
    if ranged && !fits {
        return Step::Answer(Status::LBA_OUT_OF_RANGE.with_dnr());
    }
    if namespace.scheduler.is_some() && !paid {
        // Not in flight yet: a pause of the namespace never waits for tokens.
        return pay(connection, slot, core);
    }
    namespace.in_flight += 1;
    entry.accounting.in_flight = true;
    Step::Prepare
}

/// Lets a command wait for its tokens. `[ReFlex §3.2]`
fn pay(connection: &mut Connection, slot: u16, core: &mut CoreState) -> Step {
    let subsystem = connection.access.subsystem;
    let entry = connection.session.commands.slot(slot);
    if entry.range.listed && entry.transfer.received < entry.transfer.length {
        // Its data says what it costs; until that is here, nothing of it concerns the namespace.
        return Step::Prepare;
    }
    if core.unscheduled {
        entry.accounting.paid = true;
        return Step::Admit;
    }
    dataset::clip(entry, &core.limits);
    let namespace = core.namespaces.get(subsystem, entry.nsid);
    let shape = namespace.map(|namespace| (namespace.block_shift, namespace.thin));
    let (shift, thin) = shape.unwrap_or((0, true));
    entry.range.pays_flush = entry.range.durable && namespace.is_some_and(CoreNamespace::has_cache);
    entry.parts.paid_blocks = dataset::blocks_to_pay(entry, shift, &core.limits);
    let (operation, units) = cost::of(entry, shift, thin);
    wait_for_tokens(connection, slot, operation, units, core)
}

/// Lets a command pass its gates once more to pay for its next part. A pause does not wait for that.
fn pay_again(connection: &mut Connection, slot: u16, core: &mut CoreState) -> Step {
    let subsystem = connection.access.subsystem;
    let entry = connection.session.commands.slot(slot);
    (entry.accounting.paid, entry.parts.paid_blocks) = (false, None);
    entry.enter(CommandState::Dispatched, &mut core.states);
    if std::mem::take(&mut entry.accounting.in_flight) {
        core.namespaces.end_flight(subsystem, entry.nsid);
    }
    Step::Admit
}

/// A Flush of all namespaces pays for each of them, one after the other; a namespace that is paused
/// is waited for when its turn comes.
fn admit_to_all(connection: &mut Connection, slot: u16, core: &mut CoreState) -> Step {
    let entry = connection.session.commands.slot(slot);
    if entry.accounting.paid {
        // It waited for a namespace that was paused.
        return Step::Execute;
    }
    let (begin, kind) = (entry.parts.next, entry.kind);
    let subsystem = connection.access.subsystem;
    let mut scheduled = core.scheduled(subsystem);
    if kind == CommandKind::Shutdown {
        // A host that shuts down pays where there is something to flush, and waits nowhere else.
        scheduled.retain(|&(nsid, _)| {
            let namespace = core.namespace(subsystem, nsid);
            namespace.is_some_and(|namespace| namespace.has_cache())
        });
    }
    let rights = connection.access.rights.as_deref();
    let mut paying = scheduled
        .into_iter()
        .map(|(nsid, _)| nsid)
        .filter(|&nsid| nsid > begin)
        .filter(|&nsid| connection.token_queue(nsid).is_some())
        .filter(|&nsid| rights.is_none_or(|rights| rights.check_any(nsid).is_ok()));
    let next = paying.next().filter(|_| !core.unscheduled);
    let entry = connection.session.commands.slot(slot);
    let Some(nsid) = next else {
        entry.parts.next = 0;
        entry.accounting.paid = true;
        return Step::Execute;
    };
    entry.parts.next = nsid - 1;
    wait_for_tokens(connection, slot, PricedOperation::Flush, 1, core)
}

/// Lets a command wait for tokens of its tenant. Access Denied without a tenant; where the tenant
/// was removed this very moment, a status that asks for a retry.
fn wait_for_tokens(
    connection: &mut Connection,
    slot: u16,
    operation: PricedOperation,
    units: u32,
    core: &mut CoreState,
) -> Step {
    let priced = Priced {
        operation,
        units,
        ticket: connection.ticket(slot),
    };
    let paying = connection.session.commands.slot(slot).paying_namespace();
    for _ in 0..2 {
        let Some(queue) = connection.token_queue(paying) else {
            return Step::Answer(Status::ACCESS_DENIED.with_dnr());
        };
        if let Ok(number) = core.tokens.enqueue(queue, priced) {
            let entry = connection.session.commands.slot(slot);
            entry.order.line = number;
            entry.enter(CommandState::WaitingForTokens, &mut core.states);
            return Step::Wait;
        }
        connection.assign_token_queues(core);
    }
    Step::Answer(Status::COMMAND_INTERRUPTED)
}

/// Lets a command wait for the end of a pause, which does not wait for it.
fn wait_for_namespace(connection: &mut Connection, slot: u16, nsid: u32, core: &mut CoreState) {
    let ticket = connection.ticket(slot);
    let subsystem = connection.access.subsystem;
    let entry = connection.session.commands.slot(slot);
    let in_flight = std::mem::take(&mut entry.accounting.in_flight);
    entry.enter(CommandState::WaitingForNamespace, &mut core.states);
    core.stats.pause_waits += 1;
    match core.namespace(subsystem, nsid) {
        Some(namespace) => namespace.waiting.push_back(ticket),
        None => core.waiters.released.push_back(ticket),
    }
    if in_flight {
        core.namespaces.end_flight(subsystem, nsid);
    }
}

fn execute(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Step {
    let ticket = connection.ticket(slot);
    let subsystem = connection.access.subsystem;
    let entry = connection.session.commands.slot(slot);
    entry.enter(CommandState::Executing, &mut core.states);
    entry.accounting.submitted = cx.now;
    let namespace = core.namespace_ref(subsystem, entry.nsid);
    if let Some(step) = device::commit(entry, ticket, namespace) {
        return step;
    }
    match entry.kind.row().form {
        Form::Controller => controller::execute(connection, slot, core, cx),
        Form::Flush => Step::Continue,
        Form::Extents => extents::execute(entry, ticket, namespace),
        _ if entry.range.listed => {
            let rights = connection.access.rights.as_deref();
            dataset::clip(entry, &core.limits);
            dataset::execute(entry, rights, namespace)
        }
        _ => device::execute(entry, ticket, namespace),
    }
}

fn submit(
    connection: &mut Connection,
    slot: u16,
    nsid: u32,
    request: Request,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Step {
    let state = connection.session.commands.slot(slot).state();
    assert!(
        state == CommandState::Executing,
        "a device sees commands that execute"
    );
    let class = connection.session.output.class();
    let done = core.submit(connection.access.subsystem, nsid, class, request, cx);
    let entry = connection.session.commands.slot(slot);
    entry.order.line = done.as_ref().err().copied().unwrap_or_default();
    if entry.range.commits {
        return done.map_or(Step::Wait, |done| {
            committed(entry, done.result, &mut core.states)
        });
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

fn submit_extents(
    connection: &mut Connection,
    slot: u16,
    nsid: u32,
    command: Extents,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Step {
    let class = connection.session.output.class();
    let subsystem = connection.access.subsystem;
    let done = core.submit(subsystem, nsid, class, command, cx);
    let entry = connection.session.commands.slot(slot);
    match done {
        Err(number) => {
            entry.order.line = number;
            Step::Wait
        }
        Ok(command) => extents::done(entry, command),
    }
}

fn next_part(connection: &mut Connection, slot: u16, core: &mut CoreState) -> Step {
    let ticket = connection.ticket(slot);
    let answers = connection.answers();
    let subsystem = connection.access.subsystem;
    let entry = connection.session.commands.slot(slot);
    if entry.extents.is_some() {
        return extents::next(entry, ticket);
    }
    if entry.range.listed {
        let namespace = core.namespace_ref(subsystem, entry.nsid);
        return dataset::next(entry, ticket, namespace, &core.limits, answers);
    }
    let rights = connection.access.rights.as_deref();
    flush::next(
        entry,
        ticket,
        rights,
        core.namespaces.of(subsystem),
        answers,
    )
}

/// A command has its status: it is counted, and answered unless its connection ends.
pub(crate) fn finish(
    connection: &mut Connection,
    slot: u16,
    status: Status,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    connection.end_outstanding(slot, core);
    connection.end_work(slot);
    let status = answers::with_retry_delay(connection, status);
    let entry = connection.session.commands.slot(slot);
    assert!(
        entry.parts.outstanding == 0,
        "the device has nothing of a command that ends"
    );
    entry.status = Some(status);
    if !entry.kind.sends_data() {
        if mutation::active(Mutation::BufferKept) && !status.is_success() {
            std::mem::forget(entry.transfer.data.take());
        }
        entry.transfer.data = None;
        if let Some(table) = &mut entry.extents {
            table.drop_data();
        }
    }
    let in_flight = std::mem::take(&mut entry.accounting.in_flight);
    let (kind, nsid, cid, opcode) = (entry.kind, entry.nsid, entry.cid, entry.opcode);
    if kind == CommandKind::Shutdown
        && let Owner::Admin(controller) = &mut connection.owner
    {
        let before = controller.registers.state();
        controller.end_flush(status.is_success());
        core.count_controller(before, controller.registers.state());
    }
    if kind != CommandKind::Admin {
        count(connection, slot, status, core, cx.now);
    }
    if in_flight {
        core.namespaces
            .end_flight(connection.access.subsystem, nsid);
    }
    core.touch();
    if !status.is_success() && kind != CommandKind::Admin {
        answers::log_error(connection, cid, nsid, opcode, status);
    }
    if connection.answers() {
        answers::answer(connection, slot, core, cx);
    } else {
        connection.free(slot, core);
    }
}

/// Counts a command in its namespace, and for its tenant.
fn count(connection: &mut Connection, slot: u16, status: Status, core: &mut CoreState, now: Time) {
    let entry = connection.session.commands.slot(slot);
    let (operation, nsid, accounting) = (entry.kind.row().price, entry.nsid, entry.accounting);
    let bytes = u64::from(entry.transfer.length);
    let took = now.since(accounting.began);
    let success = status.is_success();
    let Some(namespace) = core.namespace(connection.access.subsystem, nsid) else {
        return;
    };
    namespace.count(operation, success, bytes, took);
    if namespace.scheduler.is_none() {
        return;
    }
    let submitted = Some(accounting.submitted).filter(|&at| at > Time::ZERO);
    if let Some(queue) = connection.token_queue(nsid) {
        let done = Done {
            operation,
            success,
            bytes,
            took,
            device: submitted.map(|at| now.since(at)),
        };
        core.tokens.done(queue, &done);
    }
}

/// Drops a command of a connection that is gone.
pub(crate) fn forget(connection: &mut Connection, slot: u16, core: &mut CoreState) {
    connection.end_outstanding(slot, core);
    connection.end_work(slot);
    let entry = connection.session.commands.slot(slot);
    let (in_flight, nsid) = (entry.accounting.in_flight, entry.nsid);
    core.waiters.forget(entry);
    if entry.state() == CommandState::Transferring {
        connection.session.transferring -= 1;
    }
    connection.free(slot, core);
    if in_flight {
        core.namespaces
            .end_flight(connection.access.subsystem, nsid);
    }
}
