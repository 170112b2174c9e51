//! Answers and R2Ts on their way to the host.
//!
//! C2HData and CapsuleResp `[NVMe-TCP 1.0 §3.3.2.1]`, and R2T. Where the send side has no space, the
//! slot waits, and [`resume`] sends what waited, in order.

use crate::command::table::{CommandKind, Row};
use crate::request::CommandState;
use crate::service::connection::{Connection, Owner};
use crate::service::core::CoreState;
use crate::session::output::Unsent;
use base::mutation::{self, Mutation};
use qos::PricedOperation;
use reactor::{BufferPool, Context, IoSlice};
use switch::doorbell::Urgency;
use wire::nvme::log_page::ErrorEntry;
use wire::nvme::{Command, Completion, Status};
use wire::tcp::{DataAlignment, IcResp};

/// CRD of CRDT1, the only retry delay that Identify reports.
const RETRY_DELAY: u8 = 1;

/// Returns a status as the host gets it: with a retry delay for an interrupted command, where the
/// host has enabled such delays; without, hosts send the command again at once.
/// `[NVMe Base 2.0 §3.3.3.2.1, §5.27.1.18]`
#[inline]
pub(crate) fn with_retry_delay(connection: &Connection, status: Status) -> Status {
    let delays = || {
        let controller = connection.controller();
        controller.is_some_and(|controller| controller.queues().behavior.acre == 1)
    };
    if status == Status::COMMAND_INTERRUPTED && delays() {
        return status.with_crd(RETRY_DELAY);
    }
    status
}

/// Answers ICReq, or lets the answer wait for space.
pub(crate) fn initialized(connection: &mut Connection, core: &mut CoreState, cx: &mut Context<'_>) {
    let output = &mut connection.session.output;
    if output.make_room_last(0, &mut core.sends(), cx) {
        push_ic_resp(connection, core, cx);
    } else {
        output.wait(Unsent::IcResp, &mut core.sends());
    }
}

/// Appends ICResp, for which there is space. The session has the terms. `[NVMe-TCP 1.0 §3.3.1]`
fn push_ic_resp(connection: &mut Connection, core: &mut CoreState, cx: &Context<'_>) {
    let format = connection.session.output.format();
    let response = IcResp {
        controller_alignment: DataAlignment::DWORD,
        header_digest: format.header_digest,
        data_digest: format.data_digest,
        max_h2c_data: core.limits.h2c_data_bytes,
    };
    connection.session.output.push_bytes(&response.to_bytes());
    connection.appended(0, Urgency::Urgent, core, cx);
}

/// Answers a command that has no slot with an error.
#[cold]
pub(crate) fn refuse(
    connection: &mut Connection,
    command: &Command,
    status: Status,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let (cid, nsid) = (command.cid(), command.nsid());
    let status = with_retry_delay(connection, status);
    log_error(connection, cid, nsid, command.opcode(), status);
    if matches!(connection.owner, Owner::Io(_))
        && let Some(namespace) = core.namespace(connection.access.subsystem, nsid)
    {
        let stats = &mut namespace.stats;
        match Row::of(command.opcode()).map(|row| row.price) {
            Some(PricedOperation::Read) => stats.read_errors += 1,
            Some(PricedOperation::Write) => stats.write_errors += 1,
            Some(PricedOperation::Flush) => stats.flush_errors += 1,
            _ => stats.other_errors += 1,
        }
    }
    respond(connection, cid, status, 0, core, cx);
}

/// Answers a command that has no slot; the answer leaves soon.
pub(crate) fn respond(
    connection: &mut Connection,
    cid: u16,
    status: Status,
    result: u64,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let sq_head = connection.session.commands.reported_head();
    let completion = Completion {
        result,
        ..Completion::new(cid, sq_head, status)
    };
    complete(connection, completion, Urgency::Urgent, core, cx);
}

/// Answers a command that has no slot, and no data to send.
#[inline]
pub(crate) fn complete(
    connection: &mut Connection,
    completion: Completion,
    urgency: Urgency,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    if connection
        .session
        .output
        .make_room_last(0, &mut core.sends(), cx)
    {
        connection.session.output.push_completion(completion);
        connection.appended(0, urgency, core, cx);
        return;
    }
    // There is always a slot: the queue's depth was checked when the command came.
    let commands = &mut connection.session.commands;
    if let Some(slot) = commands.take(completion.cid, &mut core.states) {
        let entry = commands.slot(slot);
        (entry.status, entry.result) = (Some(completion.status), completion.result);
        answer(connection, slot, core, cx);
    }
}

/// Puts an error into the controller's error log.
pub(crate) fn log_error(connection: &Connection, cid: u16, nsid: u32, opcode: u8, status: Status) {
    let Some(controller) = connection.controller() else {
        return;
    };
    controller.log_error(ErrorEntry {
        sq_id: connection.session.commands.id,
        cid,
        status_field: status.0 << 1,
        parameter_location: 0xffff,
        nsid,
        opcode,
        trtype: transport_of(status),
        ..ErrorEntry::default()
    });
}

/// Returns the TRTYPE of an error: 0 for one that has nothing to do with the transport.
/// `[NVMe Base 2.0 §5.16.1.2]`
fn transport_of(status: Status) -> u8 {
    if status.is(Status::TRANSIENT_TRANSPORT_ERROR) {
        wire::fabrics::DiscoveryLogEntry::TRTYPE_TCP
    } else {
        0
    }
}

/// Sends as many R2Ts for a command as may be outstanding; none once the connection terminates,
/// which may be while the command waited.
pub(crate) fn send_r2ts(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    // Each PDU of data gets here: where an R2T waits already, it is the next one.
    let waits = connection.session.commands.slot(slot).transfer.r2t_waits;
    if waits || !connection.answers() {
        return;
    }
    while connection.session.has_r2t(slot) {
        let output = &mut connection.session.output;
        if !output.make_room(0, &mut core.sends(), cx) {
            output.wait(Unsent::OfSlot(slot), &mut core.sends());
            connection.session.commands.slot(slot).transfer.r2t_waits = true;
            return;
        }
        let Some(r2t) = connection.session.next_r2t(slot) else {
            return;
        };
        connection.session.output.push_r2t(r2t);
        connection.appended(0, Urgency::Urgent, core, cx);
        core.stats.r2ts += 1;
    }
}

/// Sends the answer of a command that is done, or lets it wait for space.
pub(crate) fn answer(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.session.commands.slot(slot);
    let (bytes, pdus) = (entry.answer_bytes(), entry.answer_pdus());
    let output = &mut connection.session.output;
    let first = output.waiting.is_empty();
    if first && output.make_room_for(bytes, pdus, &mut core.sends(), cx) {
        push_answer(connection, slot, core, cx);
        return;
    }
    output.wait(Unsent::OfSlot(slot), &mut core.sends());
    let entry = connection.session.commands.slot(slot);
    entry.enter(CommandState::Answering, &mut core.states);
}

/// Appends the answer of a command, for which there is space.
fn push_answer(connection: &mut Connection, slot: u16, core: &mut CoreState, cx: &Context<'_>) {
    let commands = &mut connection.session.commands;
    let bytes = commands.slot(slot).answer_bytes();
    let announced = commands.take_announcement();
    let sq_head = announced.unwrap_or(commands.reported_head());
    let flow_control = commands.flow_control;
    let entry = commands.slot(slot);
    let status = entry.status.unwrap_or(Status::INTERNAL_ERROR);
    let completion = Completion {
        result: entry.result,
        sq_head,
        sq_id: 0,
        cid: entry.cid,
        status,
    };
    let kind = entry.kind;
    let waits = !entry.range.durable && !matches!(kind, CommandKind::Flush | CommandKind::Admin);
    let output = &mut connection.session.output;
    let sent = entry.extents_sent();
    if let Some(table) = entry.extents.as_mut().filter(|_| bytes > 0) {
        let held = std::mem::take(&mut entry.transfer.held_bytes);
        output.push_extents(table.take_data().take(sent), completion, flow_control);
        output.hold(held);
        connection.free(slot, core);
        let urgency = if waits {
            connection.session.output.urgency()
        } else {
            Urgency::Urgent
        };
        connection.appended(bytes, urgency, core, cx);
        return;
    }
    match entry.transfer.data.take().filter(|_| bytes > 0) {
        Some(mut data) => {
            if mutation::active(Mutation::ReadCutShort) && data.len() > 4096 {
                let at = data.offset();
                data = IoSlice::new(data.into_memory(), at, 4096);
            }
            let held = std::mem::take(&mut entry.transfer.held_bytes);
            output.push_data(data, completion, flow_control);
            output.hold(held);
        }
        None if drops(kind, entry.cid) => {}
        None => output.push_completion(completion),
    }
    if mutation::active(Mutation::AnsweredTwice) && kind == CommandKind::Flush {
        output.push_completion(completion);
    }
    connection.free(slot, core);
    let urgency = if waits && status.is_success() {
        connection.session.output.urgency()
    } else {
        Urgency::Urgent
    };
    connection.appended(bytes, urgency, core, cx);
}

/// Returns true if a deliberate mistake drops the answer to a command.
#[inline]
fn drops(kind: CommandKind, cid: u16) -> bool {
    mutation::active(Mutation::AnswerDropped) && kind == CommandKind::Compare && cid % 8 == 7
}

/// Sends what waited for space. Nothing follows a termination request.
/// `[NVMe-TCP 1.0 §3.6.2.5]`
pub(crate) fn resume(connection: &mut Connection, core: &mut CoreState, cx: &mut Context<'_>) {
    if !connection.answers() {
        return;
    }
    while let Some(&unsent) = connection.session.output.waiting.front() {
        let entry = match unsent {
            Unsent::IcResp => None,
            Unsent::OfSlot(slot) => connection.session.commands.get(slot),
        };
        let state = entry
            .as_ref()
            .map_or(CommandState::Free, |entry| entry.state());
        let (bytes, pdus) = match entry {
            Some(entry) if state == CommandState::Answering => {
                (entry.answer_bytes(), entry.answer_pdus())
            }
            _ => (0, 1),
        };
        let output = &mut connection.session.output;
        if !output.make_room_for(bytes, pdus, &mut core.sends(), cx) {
            return;
        }
        output.waiting.pop_front();
        match (unsent, state) {
            (Unsent::IcResp, _) => push_ic_resp(connection, core, cx),
            (Unsent::OfSlot(slot), CommandState::Answering) => {
                push_answer(connection, slot, core, cx);
            }
            (Unsent::OfSlot(slot), CommandState::Transferring) => {
                connection.session.commands.slot(slot).transfer.r2t_waits = false;
                send_r2ts(connection, slot, core, cx);
            }
            (Unsent::OfSlot(_), _) => {}
        }
    }
}

/// Returns a buffer of a pool for data of this length, exactly as long, and the bytes of all of it;
/// `None` while none is free.
pub(crate) fn take_buffer(pool: &BufferPool, length: usize) -> Option<(IoSlice, u32)> {
    let buffer = pool.take(length)?;
    let bytes = u32::try_from(buffer.len()).expect("a buffer is less than 4 GiB");
    Some((IoSlice::from_buffer(buffer, length), bytes))
}
