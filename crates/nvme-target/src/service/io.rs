//! Commands on I/O queues, from their arrival to a slot or an answer.
//!
//! Reads and in-capsule writes of a device that is memory are done while they are parsed: no slot,
//! no request, no copy of what is read. Everything else takes a slot and goes on in
//! [`requests`](super::requests).

use crate::command::step::Step;
use crate::command::{blocks, dataset, extents, flush};
use crate::namespace::CoreNamespace;
use crate::qos::core::Done;
use crate::request::CommandKind;
use crate::service::connection::Connection;
use crate::service::core::CoreState;
use crate::service::flow::Flow;
use crate::service::requests::advance;
use crate::service::{answers, capsule_data};
use crate::session::event::Payload;
use base::{Nanos, Time};
use qos::access::Need;
use qos::units;
use reactor::Context;
use switch::doorbell::Urgency;
use wire::nvme::io::DatasetRange;
use wire::nvme::{Command, Completion, IoOpcode, LbaCommand, Status};

/// Begins a command of an I/O queue.
#[inline]
pub(crate) fn begin(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Flow {
    let opcode = IoOpcode(command.opcode());
    if opcode != IoOpcode::READ && opcode != IoOpcode::WRITE {
        core.stores.order();
    }
    let result = match opcode {
        IoOpcode::READ => read(connection, command, payload, core, cx),
        IoOpcode::WRITE => write(connection, command, payload, core, cx),
        IoOpcode::COMPARE => {
            with_data(connection, CommandKind::Compare, command, payload, core, cx)
        }
        IoOpcode::VERIFY => without_data(connection, CommandKind::Verify, command, core, cx),
        IoOpcode::WRITE_ZEROES => {
            without_data(connection, CommandKind::WriteZeroes, command, core, cx)
        }
        IoOpcode::DATASET_MANAGEMENT => begin_dataset(connection, command, payload, core, cx),
        IoOpcode::FLUSH => begin_flush(connection, command, core, cx),
        IoOpcode::READ_EXTENTS => {
            begin_extents(connection, CommandKind::Read, command, payload, core, cx)
        }
        IoOpcode::WRITE_EXTENTS => {
            begin_extents(connection, CommandKind::Write, command, payload, core, cx)
        }
        _ => Err(Status::INVALID_OPCODE.with_dnr()),
    };
    result.unwrap_or_else(|status| {
        answers::refuse(connection, command, status, core, cx);
        Flow::Continue
    })
}

#[inline]
fn read(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let nsid = command.nsid();
    let access = &connection.access;
    let at_once = !connection.session.output.format().data_digest;
    let namespace = core.namespace_ref(access.subsystem, nsid);
    let limit = core.limits.transfer_bytes;
    let rights = access.rights.as_deref();
    let (run, bytes) = blocks::check(command, Need::Read, rights, namespace, limit)?;
    let incarnation = incarnation_of(namespace);
    blocks::check_answer(command, payload, bytes)?;
    if at_once
        && let Some(namespace) = namespace
        && namespace.is_open()
        && !(run.control.fua() && namespace.has_cache())
        && let Some(data) = blocks::memory(namespace, run.slba, bytes)
        && (namespace.scheduler.is_none()
            || pay_at_once(connection, CommandKind::Read, nsid, bytes, core))
    {
        if let Some(namespace) = core.namespace(connection.access.subsystem, nsid) {
            namespace.stats.reads += 1;
            namespace.stats.read_bytes += u64::from(bytes);
            namespace.latency.reads.count_at_once();
        }
        connection.placement.demand.answered += u64::from(bytes);
        let cid = command.cid();
        let session = &mut connection.session;
        let flow_control = session.commands.flow_control;
        let completion = Completion::new(cid, session.commands.reported_head(), Status::SUCCESS);
        if session.output.make_room_last(bytes, &mut core.sends(), cx) {
            session.output.push_data(data, completion, flow_control);
            let urgency = session.output.urgency();
            connection.appended(bytes, urgency, core, cx);
        } else if let Some(slot) = session.commands.take(cid, &mut core.states) {
            let entry = session.commands.slot(slot);
            entry.kind = CommandKind::Read;
            entry.nsid = nsid;
            entry.transfer.data = Some(data);
            entry.status = Some(Status::SUCCESS);
            answers::answer(connection, slot, core, cx);
        }
        return Ok(Flow::Continue);
    }
    let asked = (&run, bytes, incarnation);
    admit(connection, CommandKind::Read, command, asked, core, cx)
}

#[inline]
fn write(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let Payload::Whole(capsule, digest_ok) = payload else {
        return with_data(connection, CommandKind::Write, command, payload, core, cx);
    };
    let nsid = command.nsid();
    let access = &connection.access;
    let namespace = core.namespace_ref(access.subsystem, nsid);
    let limit = core.limits.transfer_bytes;
    let rights = access.rights.as_deref();
    let (run, bytes) = blocks::check(command, Need::Write, rights, namespace, limit)?;
    let namespace = namespace.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
    if namespace.read_only {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    }
    let at_once = namespace.direct.is_some() && namespace.is_open() && digest_ok;
    if !at_once {
        return with_data(connection, CommandKind::Write, command, payload, core, cx);
    }
    let data = command.data_pointer()?.capsule_data(capsule)?;
    if data.len() != bytes as usize {
        return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    }
    if namespace.scheduler.is_some()
        && !pay_at_once(connection, CommandKind::Write, nsid, bytes, core)
    {
        return with_data(connection, CommandKind::Write, command, payload, core, cx);
    }
    let namespace = core.namespace(connection.access.subsystem, nsid);
    let namespace = namespace.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
    let stores = blocks::write_memory(namespace, run.slba, data)?;
    namespace.stats.writes += 1;
    namespace.stats.written_bytes += u64::from(bytes);
    namespace.latency.writes.count_at_once();
    core.stores.join(stores);
    connection.placement.demand.answered += u64::from(bytes);
    let urgency = if run.control.fua() {
        Urgency::Urgent
    } else {
        connection.session.output.urgency()
    };
    let sq_head = connection.session.commands.reported_head();
    let completion = Completion::new(command.cid(), sq_head, Status::SUCCESS);
    answers::complete(connection, completion, urgency, core, cx);
    Ok(Flow::Continue)
}

/// Pays for a read or write of memory that is about to be done at once, and counts it for its
/// tenant. Returns false if the tokens have to be waited for, or the host has no tenant.
#[inline]
fn pay_at_once(
    connection: &Connection,
    kind: CommandKind,
    nsid: u32,
    bytes: u32,
    core: &mut CoreState,
) -> bool {
    let Some(queue) = connection.token_queue(nsid) else {
        return false;
    };
    let priced = match kind {
        CommandKind::Write => qos::PricedOperation::Write,
        _ => qos::PricedOperation::Read,
    };
    let bytes = u64::from(bytes);
    let paid = core.tokens.pay_at_once(queue, priced, units(bytes));
    if paid {
        let done = Done {
            kind,
            success: true,
            bytes,
            took: Nanos(0),
            device: Some(Nanos(0)),
        };
        core.tokens.done(queue, &done);
    }
    paid
}

/// Returns the incarnation of the namespace that a command was checked against; 0 without one.
#[inline]
fn incarnation_of(namespace: Option<&CoreNamespace>) -> u32 {
    namespace.map_or(0, |namespace| namespace.incarnation)
}

/// Takes a slot for a command on a run of blocks of this incarnation of a namespace.
fn take(
    connection: &mut Connection,
    kind: CommandKind,
    command: &Command,
    (run, bytes, incarnation): (&LbaCommand, u32, u32),
    core: &mut CoreState,
    now: Time,
) -> Result<u16, Status> {
    core.stores.order();
    let slot = connection.begin(command, kind, (run.nsid, incarnation), core, now)?;
    let entry = connection.session.commands.slot(slot);
    entry.range.lba = run.slba;
    entry.range.blocks = run.blocks;
    entry.range.durable = run.control.fua();
    entry.range.deallocate = run.control.deallocate();
    entry.transfer.length = bytes;
    connection.begin_outstanding(slot, core);
    Ok(slot)
}

/// Takes a slot for a command that has no data in its capsule, and lets it go on.
#[inline]
fn admit(
    connection: &mut Connection,
    kind: CommandKind,
    command: &Command,
    asked: (&LbaCommand, u32, u32),
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let slot = take(connection, kind, command, asked, core, cx.now)?;
    advance(connection, slot, Step::Admit, core, cx);
    Ok(Flow::Continue)
}

/// Begins Write or Compare, with data that has to come first.
fn with_data(
    connection: &mut Connection,
    kind: CommandKind,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let access = &connection.access;
    let namespace = core.namespace_ref(access.subsystem, command.nsid());
    let limit = core.limits.transfer_bytes;
    let rights = access.rights.as_deref();
    let (run, bytes) = blocks::check(command, kind.need(), rights, namespace, limit)?;
    let incarnation = incarnation_of(namespace);
    if kind == CommandKind::Write && namespace.is_some_and(|namespace| namespace.read_only) {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    }
    let inside = blocks::arrival(command.data_pointer()?, payload, bytes)?;
    let asked = (&run, bytes, incarnation);
    let Some(inside) = inside else {
        return admit(connection, kind, command, asked, core, cx);
    };
    // Also where the device is memory: a reader must never see half a block of what is arriving
    // (docs/design/decisions/0005-whole-blocks.md).
    let buffer = match capsule_data::buffer(connection, bytes, core, cx) {
        Ok(buffer) => buffer,
        Err(list) => return Ok(Flow::Stall(list)),
    };
    let slot = take(connection, kind, command, asked, core, cx.now)?;
    capsule_data::receive(connection, slot, buffer, inside, payload, core, cx);
    Ok(Flow::Continue)
}

/// Begins Verify or Write Zeroes.
fn without_data(
    connection: &mut Connection,
    kind: CommandKind,
    command: &Command,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let access = &connection.access;
    let namespace = core.namespace_ref(access.subsystem, command.nsid());
    let rights = access.rights.as_deref();
    let (run, bytes) = blocks::check(command, kind.need(), rights, namespace, u32::MAX)?;
    let incarnation = incarnation_of(namespace);
    if kind == CommandKind::WriteZeroes && namespace.is_some_and(|namespace| namespace.read_only) {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    }
    if kind == CommandKind::Verify && run.control.protection_action() {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    if bytes > core.limits.transfer_bytes {
        return begin_pieces(connection, command, (&run, incarnation), core, cx);
    }
    let asked = (&run, 0, incarnation);
    admit(connection, kind, command, asked, core, cx)
}

/// Begins Verify or Write Zeroes of more blocks than one request has: VSL and WZSL say what is fast,
/// not what is possible. `[NVMe NVM 1.0 §3.2.5, §3.2.8]`
fn begin_pieces(
    connection: &mut Connection,
    command: &Command,
    (run, incarnation): (&LbaCommand, u32),
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let range = DatasetRange {
        attributes: 0,
        blocks: run.blocks,
        slba: run.slba,
    };
    let list = range.to_bytes();
    let length = u32::try_from(list.len()).expect("16");
    let buffer = match capsule_data::buffer(connection, length, core, cx) {
        Ok(buffer) => buffer,
        Err(list) => return Ok(Flow::Stall(list)),
    };
    let asked = (run.nsid, incarnation);
    let slot = connection.begin(command, CommandKind::Dataset, asked, core, cx.now)?;
    let entry = connection.session.commands.slot(slot);
    entry.range.blocks = 1;
    entry.range.durable = run.control.fua();
    entry.range.deallocate = run.control.deallocate();
    entry.transfer.length = length;
    let whole = Payload::Whole(&list, true);
    capsule_data::receive(connection, slot, buffer, (0, &list), whole, core, cx);
    Ok(Flow::Continue)
}

/// Begins Dataset Management, with its list of ranges as data.
fn begin_dataset(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let access = &connection.access;
    let namespace = core.namespace_ref(access.subsystem, command.nsid());
    let checked = dataset::check(command, payload, access.rights.as_deref(), namespace)?;
    let incarnation = incarnation_of(namespace);
    let (management, length) = (checked.management, checked.length);
    let mut buffer = None;
    if checked.inside.is_some() {
        match capsule_data::buffer(connection, length, core, cx) {
            Ok(taken) => buffer = Some(taken),
            Err(list) => return Ok(Flow::Stall(list)),
        }
    }
    let asked = (management.nsid, incarnation);
    let slot = connection.begin(command, CommandKind::Dataset, asked, core, cx.now)?;
    let entry = connection.session.commands.slot(slot);
    entry.range.blocks = u32::from(management.ranges);
    entry.range.deallocate = management.deallocate;
    entry.transfer.length = length;
    if let Some((buffer, inside)) = buffer.zip(checked.inside) {
        capsule_data::receive(connection, slot, buffer, inside, payload, core, cx);
    } else {
        advance(connection, slot, Step::Admit, core, cx);
    }
    Ok(Flow::Continue)
}

/// Begins Read Extents or Write Extents, with its table as data.
fn begin_extents(
    connection: &mut Connection,
    kind: CommandKind,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let access = &connection.access;
    let namespace = core.namespace_ref(access.subsystem, command.nsid());
    let terms = core.limits.extent_terms();
    let terms = terms.ok_or(Status::INVALID_OPCODE.with_dnr())?;
    let rights = access.rights.as_deref();
    let checked = extents::check(command, kind, payload, &terms, rights, namespace)?;
    let incarnation = incarnation_of(namespace);
    if connection.holding.tables() >= u64::from(terms.in_flight) {
        core.stats.extents_in_flight_refused += 1;
        return Err(Status::COMMAND_INTERRUPTED);
    }
    if !connection.holding.may_take_table(&core.limits) {
        core.stats.extent_tables_refused += 1;
        return Err(Status::COMMAND_INTERRUPTED);
    }
    // As the data of any write.
    let buffer = match capsule_data::buffer(connection, checked.length, core, cx) {
        Ok(buffer) => buffer,
        Err(list) => return Ok(Flow::Stall(list)),
    };
    let asked = (checked.command.nsid, incarnation);
    let slot = connection.begin(command, kind, asked, core, cx.now)?;
    connection.holding.take_table();
    let entry = connection.session.commands.slot(slot);
    entry.extents = Some(core.tables.take(checked.command));
    entry.range.durable = checked.command.fua;
    entry.transfer.length = checked.length;
    capsule_data::receive(connection, slot, buffer, checked.inside, payload, core, cx);
    Ok(Flow::Continue)
}

/// Begins a Flush of one namespace, or of all.
fn begin_flush(
    connection: &mut Connection,
    command: &Command,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let access = &connection.access;
    let namespace = core.namespace_ref(access.subsystem, command.nsid());
    let nsid = flush::check(command, access.rights.as_deref(), namespace)?;
    let asked = (nsid, incarnation_of(namespace));
    let slot = connection.begin(command, CommandKind::Flush, asked, core, cx.now)?;
    advance(connection, slot, Step::Admit, core, cx);
    Ok(Flow::Continue)
}
