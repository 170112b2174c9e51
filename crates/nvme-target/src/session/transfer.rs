//! Capsules and data PDUs: how commands come in, and their data, and how answers go out.
//!
//! In-capsule data, R2T and H2CData on the way in (`[NVMe-TCP 1.0 §3.3.2.2]`), C2HData and
//! CapsuleResp on the way out (`[NVMe-TCP 1.0 §3.3.2.1]`). What a command does is for
//! [`io`](crate::command) and [`controller`](crate::controller) to say.

use crate::command;
use crate::controller;
use crate::request::{Kind, Phase};
use crate::service::core::CoreState;
use crate::session::connection::{Connection, Owner, State};
use crate::session::input::{Flow, Incoming, Payload, Sink};
use crate::session::termination;
use base::mutation::{self, Mutation};
use reactor::{Context, IoSlice};
use switch::doorbell::Urgency;
use wire::nvme::log_page::ErrorEntry;
use wire::nvme::{Command, Completion, FabricsType, IoOpcode, Status};
use wire::tcp::limits::PREFIX_BYTES_MAX;
use wire::tcp::{CapsuleCmd, FatalErrorStatus, H2cData, R2t};

/// Bits of a TTAG that name the slot; the others name the R2T.
const TTAG_SLOT_BITS: u32 = 10;
const TTAG_SLOT_MASK: u16 = (1 << TTAG_SLOT_BITS) - 1;

/// TTAG of a command's R2T of this number.
#[inline]
fn transfer_tag(slot: u16, number: u16) -> u16 {
    if mutation::active(Mutation::TransferTagReused) {
        return slot;
    }
    slot | (number << TTAG_SLOT_BITS)
}

/// A command came in.
#[inline]
pub(crate) fn capsule(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Flow {
    connection.qpair.consumed();
    if connection.state == State::Draining {
        return Flow::Continue;
    }
    let cid = command.cid();
    let (events, event_waits) = match &connection.owner {
        Owner::Admin(controller) => (controller.events.waiting(), controller.events.has(cid)),
        _ => (0, false),
    };
    let used = connection.qpair.used() as usize;
    if used + connection.output.unsent_answers + events >= connection.qpair.entries() as usize {
        overrun(connection, command, core, cx);
        return Flow::Continue;
    }
    if event_waits || connection.qpair.find(cid).is_some() {
        let status = Status::COMMAND_ID_CONFLICT.with_dnr();
        refuse(connection, command, status, core, cx);
        return Flow::Continue;
    }
    if matches!(connection.owner, Owner::Io(_)) {
        core.stats.io_commands += 1;
    } else {
        core.stats.admin_commands += 1;
    }
    let flow = dispatch(connection, command, payload, core, cx);
    if flow == Flow::Stall && !connection.stall(command, payload, core) {
        core.stats.stash_refusals += 1;
        refuse(connection, command, Status::COMMAND_INTERRUPTED, core, cx);
        return Flow::Continue;
    }
    flow
}

/// Gives a command to whoever carries it out. Without effect where it answers
/// [`Flow::Stall`], so that it can be called again.
#[inline]
pub(crate) fn dispatch(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Flow {
    if matches!(connection.owner, Owner::Io(_)) && !command.is_fabrics() {
        return command::command(connection, command, payload, core, cx);
    }
    let connects = command.is_fabrics() && command.fabrics_type() == FabricsType::CONNECT;
    if connection.state == State::Fresh && !connects {
        refuse(
            connection,
            command,
            Status::COMMAND_SEQUENCE_ERROR.with_dnr(),
            core,
            cx,
        );
        return Flow::Continue;
    }
    controller::begin(connection, command, payload, core, cx)
}

/// The host has more commands outstanding than the queue has entries.
#[cold]
fn overrun(
    connection: &mut Connection,
    command: &Command,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let mut header = [0; PREFIX_BYTES_MAX];
    let capsule = CapsuleCmd { command: *command };
    capsule.encode(&connection.output.format, 0, &mut header);
    let reason = "more commands are outstanding than the queue has entries";
    let status = FatalErrorStatus::PDU_SEQUENCE_ERROR;
    let header = &header[..CapsuleCmd::SIZE];
    termination::protocol_error(connection, status, 0, header, reason, core, cx);
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
    record_error(connection, cid, nsid, command.opcode(), status);
    if matches!(connection.owner, Owner::Io(_))
        && let Some(namespace) = core.namespace(connection.subsystem, nsid)
    {
        let stats = &mut namespace.stats;
        match IoOpcode(command.opcode()) {
            IoOpcode::READ => stats.read_errors += 1,
            IoOpcode::WRITE => stats.write_errors += 1,
            IoOpcode::FLUSH => stats.flush_errors += 1,
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
    let sq_head = connection.qpair.reported_head();
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
    if connection.output.make_room_last(0, core, cx) {
        connection.output.push_completion(completion);
        connection.appended(0, urgency, core, cx);
        return;
    }
    // There is always a slot: the queue's depth was checked when the command came.
    if let Some(slot) = connection.qpair.take(completion.cid) {
        let entry = connection.qpair.slot(slot);
        (entry.status, entry.result) = (Some(completion.status), completion.result);
        answer(connection, slot, core, cx);
    }
}

/// Puts an error into the controller's error log.
pub(crate) fn record_error(
    connection: &Connection,
    cid: u16,
    nsid: u32,
    opcode: u8,
    status: Status,
) {
    let Some(controller) = connection.controller() else {
        return;
    };
    controller.log_error(ErrorEntry {
        sq_id: connection.qpair.id,
        cid,
        status_field: status.0 << 1,
        parameter_location: 0xffff,
        nsid,
        opcode,
        trtype: transport_of(status),
        ..ErrorEntry::default()
    });
}

/// TRTYPE of an error: 0 for one that has nothing to do with the transport.
/// `[NVMe Base 2.0 §5.16.1.2]`
fn transport_of(status: Status) -> u8 {
    if status.is(Status::TRANSIENT_TRANSPORT_ERROR) {
        wire::fabrics::DiscoveryLogEntry::TRTYPE_TCP
    } else {
        0
    }
}

/// Sends as many R2Ts for a command as may be outstanding; none once the connection terminates,
/// which may be while the command was held up.
pub(crate) fn send_r2ts(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    if !connection.answers() {
        return;
    }
    let stride = connection.r2t_bytes(core);
    loop {
        let entry = connection.qpair.slot(slot);
        let number = entry.r2ts_sent;
        let offset = u32::from(number) * stride;
        let outstanding = number - entry.r2ts_done;
        if outstanding >= connection.r2ts_max || offset >= entry.length {
            return;
        }
        if !connection.output.make_room(0, core, cx) {
            connection.output.wait(slot, core);
            return;
        }
        let entry = connection.qpair.slot(slot);
        let mut length = stride.min(entry.length - offset);
        if mutation::active(Mutation::R2tBeyondCommand) && entry.kind == Kind::Compare {
            length += 512;
        }
        entry.missing[usize::from(number) % entry.missing.len()] = length;
        entry.r2ts_sent += 1;
        let r2t = R2t {
            command_id: entry.cid,
            transfer_tag: transfer_tag(slot, number),
            offset,
            length,
        };
        connection.output.push_r2t(r2t);
        connection.appended(0, Urgency::Urgent, core, cx);
        core.stats.r2ts += 1;
    }
}

/// Checks an H2CData header against the R2T that it answers. False when the connection ends.
pub(crate) fn begin_data(
    connection: &mut Connection,
    pdu: &H2cData,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> bool {
    connection.incoming = Incoming::DISCARD;
    if connection.state == State::Fresh {
        return data_error(connection, pdu, DataError::Unasked, core, cx);
    }
    let stride = connection.r2t_bytes(core);
    let slot = pdu.transfer_tag & TTAG_SLOT_MASK;
    let entry = connection
        .qpair
        .get(slot)
        .filter(|entry| entry.phase == Phase::Transferring);
    let Some(entry) = entry else {
        return data_error(connection, pdu, DataError::Unasked, core, cx);
    };
    let outstanding = entry.r2ts_done..entry.r2ts_sent;
    let number = outstanding
        .clone()
        .find(|&number| transfer_tag(slot, number) == pdu.transfer_tag);
    let places = entry.missing.len();
    let number = number.filter(|&number| entry.missing[usize::from(number) % places] > 0);
    let Some(number) = number else {
        return data_error(connection, pdu, DataError::Unasked, core, cx);
    };
    if entry.cid != pdu.command_id {
        return data_error(connection, pdu, DataError::Command, core, cx);
    }
    let missing = entry.missing[usize::from(number) % places];
    let start = u32::from(number) * stride;
    let end = entry.length.min(start + stride);
    if pdu.data_offset != end - missing || pdu.data_length > missing {
        return data_error(connection, pdu, DataError::Range, core, cx);
    }
    if pdu.last != (pdu.data_length == missing) {
        return data_error(connection, pdu, DataError::Last, core, cx);
    }
    connection.incoming = Incoming {
        sink: Sink::Transfer(slot, number),
        position: 0,
        skip: 0,
        base: if mutation::active(Mutation::DataOffsetIgnored) {
            0
        } else {
            pdu.data_offset
        },
        want: pdu.data_length,
    };
    true
}

/// What is wrong with an H2CData PDU. `[NVMe-TCP 1.0 §3.3.2.2]`
#[derive(Clone, Copy, Debug)]
enum DataError {
    /// No R2T with its tag is outstanding.
    Unasked,
    /// Its command is not the one of the R2T.
    Command,
    /// Its data lies outside of what is due.
    Range,
    /// LAST_PDU is set too early or missing.
    Last,
}

#[cold]
fn data_error(
    connection: &mut Connection,
    pdu: &H2cData,
    error: DataError,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> bool {
    let mut header = [0; PREFIX_BYTES_MAX];
    pdu.encode(&connection.output.format, &mut header);
    let field = FatalErrorStatus::INVALID_PDU_HEADER_FIELD;
    let (status, information, reason) = match error {
        DataError::Unasked => (field, 10, "data for a transfer tag that is not outstanding"),
        DataError::Command => (field, 8, "data for another command than the transfer tag's"),
        DataError::Range => (
            FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE,
            0,
            "data outside of the R2T",
        ),
        DataError::Last => (field, 1, "LAST_PDU does not match the end of the R2T"),
    };
    let header = &header[..H2cData::SIZE];
    termination::protocol_error(connection, status, information, header, reason, core, cx);
    false
}

/// The next bytes of the payload under way.
#[inline]
pub(crate) fn deposit(connection: &mut Connection, chunk: &[u8]) {
    let Incoming {
        sink,
        position,
        skip,
        base,
        want,
    } = connection.incoming;
    let length = u32::try_from(chunk.len()).expect("a payload is far shorter than 4 GiB");
    connection.incoming.position += length;
    let (Sink::Capsule(slot) | Sink::Transfer(slot, _)) = sink else {
        return;
    };
    let from = skip.saturating_sub(position).min(length);
    let to = (skip + want).saturating_sub(position).min(length);
    if from >= to {
        return;
    }
    let wanted = &chunk[from as usize..to as usize];
    let offset = (base + position + from - skip) as usize;
    let entry = connection.qpair.slot(slot);
    if let Some(data) = &mut entry.data {
        data.copy_in(offset, wanted);
    }
}

/// The payload under way is complete.
pub(crate) fn end_data(
    connection: &mut Connection,
    digest_ok: bool,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let incoming = std::mem::replace(&mut connection.incoming, Incoming::DISCARD);
    if !digest_ok {
        core.stats.data_digest_errors += 1;
    }
    match incoming.sink {
        Sink::Discard => {}
        Sink::Capsule(slot) => {
            let entry = connection.qpair.slot(slot);
            entry.received = entry.length;
            entry.damaged |= !digest_ok;
            command::arrived(connection, slot, core, cx);
        }
        Sink::Transfer(slot, number) => {
            let entry = connection.qpair.slot(slot);
            entry.damaged |= !digest_ok;
            entry.received += incoming.want;
            let places = entry.missing.len();
            entry.missing[usize::from(number) % places] -= incoming.want;
            while entry.r2ts_done < entry.r2ts_sent
                && entry.missing[usize::from(entry.r2ts_done) % places] == 0
            {
                entry.r2ts_done += 1;
            }
            if entry.received < entry.length {
                send_r2ts(connection, slot, core, cx);
                return;
            }
            connection.transferring -= 1;
            command::arrived(connection, slot, core, cx);
        }
    }
}

/// Sends the answer of a command that is done, or lets it wait for room.
pub(crate) fn answer(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let bytes = answer_bytes(connection, slot);
    if !connection.output.make_room_last(bytes, core, cx) {
        connection.qpair.slot(slot).phase = Phase::Answering;
        connection.output.wait(slot, core);
        return;
    }
    push_answer(connection, slot, core, cx);
}

/// Bytes of data that go with the answer of a command.
fn answer_bytes(connection: &mut Connection, slot: u16) -> u32 {
    let entry = connection.qpair.slot(slot);
    let bytes = if entry.sends_data() {
        entry.data.as_ref().map_or(0, |data| data.len())
    } else {
        0
    };
    u32::try_from(bytes).expect("a transfer is at most 1 MiB")
}

/// Appends the answer of a command, for which there is room.
fn push_answer(connection: &mut Connection, slot: u16, core: &mut CoreState, cx: &Context<'_>) {
    let bytes = answer_bytes(connection, slot);
    let announced = connection.qpair.take_announcement();
    let sq_head = announced.unwrap_or(connection.qpair.reported_head());
    let flow_control = connection.qpair.flow_control;
    let entry = connection.qpair.slot(slot);
    let status = entry.status.unwrap_or(Status::INTERNAL_ERROR);
    let completion = Completion {
        result: entry.result,
        sq_head,
        sq_id: 0,
        cid: entry.cid,
        status,
    };
    let kind = entry.kind;
    let waits = !entry.durable && !matches!(kind, Kind::Flush | Kind::Barrier | Kind::Admin);
    match entry.data.take().filter(|_| bytes > 0) {
        Some(mut data) => {
            if mutation::active(Mutation::ReadCutShort) && data.len() > 4096 {
                let at = data.offset();
                data = IoSlice::new(data.into_memory(), at, 4096);
            }
            let held = std::mem::take(&mut entry.charged);
            connection.output.push_data(data, completion, flow_control);
            connection.output.hold(held);
        }
        None if drops(entry.kind, entry.cid) => {}
        None => connection.output.push_completion(completion),
    }
    if mutation::active(Mutation::AnsweredTwice) && kind == Kind::Flush {
        connection.output.push_completion(completion);
    }
    connection.give_back(slot, core);
    let urgency = if waits && status.is_success() {
        connection.output.urgency()
    } else {
        Urgency::Urgent
    };
    connection.appended(bytes, urgency, core, cx);
}

/// Whether the answer to a command is not sent: never.
#[inline]
fn drops(kind: Kind, cid: u16) -> bool {
    mutation::active(Mutation::AnswerDropped) && kind == Kind::Compare && cid % 8 == 7
}

/// Sends what waited for room. Nothing follows a termination request.
/// `[NVMe-TCP 1.0 §3.6.2.5]`
pub(crate) fn resume_output(
    connection: &mut Connection,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    if !connection.answers() {
        return;
    }
    while let Some(&slot) = connection.output.waiting.front() {
        let phase = connection.qpair.get(slot).map(|entry| entry.phase);
        let bytes = match phase {
            Some(Phase::Answering) => answer_bytes(connection, slot),
            _ => 0,
        };
        if !connection.output.make_room(bytes, core, cx) {
            return;
        }
        connection.output.waiting.pop_front();
        match phase {
            Some(Phase::Answering) => push_answer(connection, slot, core, cx),
            Some(Phase::Transferring) => send_r2ts(connection, slot, core, cx),
            _ => {}
        }
    }
}

/// Drops a command that nobody waits for any more.
pub(crate) fn forget(connection: &mut Connection, slot: u16, core: &mut CoreState) {
    command::lift(connection, slot, core);
    let entry = connection.qpair.slot(slot);
    let (counted, nsid, phase) = (entry.counted, entry.nsid, entry.phase);
    let kind = entry.kind;
    if phase == Phase::Transferring {
        connection.transferring -= 1;
    }
    if kind == Kind::Barrier {
        command::barrier::withdraw(connection.key, slot, core);
    }
    connection.give_back(slot, core);
    if counted {
        core.uncount(connection.subsystem, nsid);
    }
}
