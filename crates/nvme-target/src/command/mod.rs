//! I/O commands of the NVM command set, from the command to its status.
//!
//! `[NVMe NVM 1.0 §3.2]`. Reads and in-capsule writes of a device that is memory are done while
//! they are parsed: no slot, no request, no copy of what is read. Everything else takes a slot and
//! goes through the device's channel.

mod abort;
pub(crate) mod barrier;
mod parts;
pub(crate) mod tokens;

pub(crate) use abort::abort;

use crate::controller::fabrics;
use crate::namespace::CoreNamespace;
use crate::qos::core::Done;
use crate::request::{Kind, Phase, Ticket, status_of};
use crate::service::core::CoreState;
use crate::session::connection::{Connection, Owner};
use crate::session::input::{Flow, Incoming, Payload, Sink, take_buffer};
use crate::session::transfer;
use crate::stats::NamespaceStats;
use base::mutation::{self, Mutation};
use base::units::Lba;
use base::{Nanos, Time};
use block::{BlockError, Direct, Operation, Request};
use qos::access::Need;
use qos::units;
use reactor::{Context, IoSlice, Memory};
use switch::doorbell::Urgency;
use wire::nvme::{Command, Completion, DataPointer, IoOpcode, LbaCommand, Status};

/// A command on an I/O queue.
#[inline]
pub(crate) fn command(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Flow {
    let result = match IoOpcode(command.opcode()) {
        IoOpcode::READ => read(connection, command, payload, core, cx),
        IoOpcode::WRITE => write(connection, command, payload, core, cx),
        IoOpcode::COMPARE => with_data(connection, Kind::Compare, command, payload, core, cx),
        IoOpcode::VERIFY => without_data(connection, Kind::Verify, command, core, cx),
        IoOpcode::WRITE_ZEROES => without_data(connection, Kind::WriteZeroes, command, core, cx),
        IoOpcode::DATASET_MANAGEMENT => parts::dataset(connection, command, payload, core, cx),
        IoOpcode::FLUSH => parts::flush(connection, command, core, cx),
        IoOpcode::BARRIER => barrier::command(connection, command, core, cx),
        _ => Err(Status::INVALID_OPCODE.with_dnr()),
    };
    result.unwrap_or_else(|status| {
        transfer::refuse(connection, command, status, core, cx);
        Flow::Continue
    })
}

/// The run of blocks that a command names, checked against its namespace and, all of it, against
/// what the host may do; and its bytes.
#[inline]
fn blocks<'a>(
    connection: &Connection,
    command: &Command,
    need: Need,
    core: &'a mut CoreState,
) -> Result<(LbaCommand, u32, &'a mut CoreNamespace), Status> {
    let run = LbaCommand::parse(command);
    if command.fuse() != 0 {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let limit = u64::from(core.limits.transfer_bytes);
    let namespace = core
        .namespace(connection.subsystem, run.nsid)
        .ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
    if let Some(rights) = &connection.rights {
        rights.check(run.nsid, need, run.slba, u64::from(run.blocks))?;
    }
    let bytes = u64::from(run.blocks) << namespace.block_shift;
    if bytes > limit {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    if !namespace.contains(run.slba, u64::from(run.blocks)) {
        return Err(Status::LBA_OUT_OF_RANGE.with_dnr());
    }
    let bytes = u32::try_from(bytes).expect("at most the limit of a transfer");
    Ok((run, bytes, namespace))
}

/// The data that memory holds for a run of blocks.
#[inline]
fn memory(namespace: &CoreNamespace, lba: u64, bytes: u32) -> Option<IoSlice> {
    let (region, start) = match namespace.direct.as_ref()? {
        Direct::Linear(region) => (region, usize::try_from(lba << namespace.block_shift).ok()?),
        Direct::Null(region) => (region, 0),
    };
    Some(IoSlice::new(
        Memory::Region(region.clone()),
        start,
        bytes as usize,
    ))
}

#[inline]
fn read(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let held = core
        .barriers
        .concern(connection.scopes.as_deref(), command.nsid());
    let at_once = !connection.output.format.data_digest && !held;
    let (run, bytes, namespace) = blocks(connection, command, Need::Read, core)?;
    match (command.data_pointer()?, payload) {
        (DataPointer::Transport { length }, Payload::None) if length == bytes => {}
        (DataPointer::Transport { .. }, Payload::None) => {
            return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
        }
        _ => return Err(Status::INVALID_FIELD.with_dnr()),
    }
    let scheduled = namespace.scheduler.is_some();
    if at_once
        && namespace.is_open()
        && let Some(data) = memory(namespace, run.slba, bytes)
        && (!scheduled || pay_at_once(connection, Kind::Read, run.nsid, bytes, core))
    {
        if let Some(namespace) = core.namespace(connection.subsystem, run.nsid) {
            namespace.stats.reads += 1;
            namespace.stats.read_bytes += u64::from(bytes);
            namespace.latency.reads.count_at_once();
        }
        connection.demand.answered += u64::from(bytes);
        let cid = command.cid();
        let qpair = &connection.qpair;
        let flow_control = qpair.flow_control;
        let completion = Completion::new(cid, qpair.reported_head(), Status::SUCCESS);
        if connection.output.make_room_last(bytes, core, cx) {
            connection.output.push_data(data, completion, flow_control);
            let urgency = connection.output.urgency();
            connection.appended(bytes, urgency, core, cx);
        } else if let Some(slot) = connection.qpair.take(cid) {
            let entry = connection.qpair.slot(slot);
            entry.kind = Kind::Read;
            entry.data = Some(data);
            entry.status = Some(Status::SUCCESS);
            transfer::answer(connection, slot, core, cx);
        }
        return Ok(Flow::Continue);
    }
    let slot = take(connection, Kind::Read, command, &run, bytes, core, cx)?;
    gate(connection, slot, core, cx);
    Ok(Flow::Continue)
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
        return with_data(connection, Kind::Write, command, payload, core, cx);
    };
    let held = core
        .barriers
        .concern(connection.scopes.as_deref(), command.nsid());
    let (run, bytes, namespace) = blocks(connection, command, Need::Write, core)?;
    if namespace.read_only {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    }
    let at_once = !held && namespace.direct.is_some();
    if !at_once || !namespace.is_open() || !digest_ok {
        return with_data(connection, Kind::Write, command, payload, core, cx);
    }
    let data = command.data_pointer()?.capsule_data(capsule)?;
    if data.len() != bytes as usize {
        return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    }
    if namespace.scheduler.is_some() && !pay_at_once(connection, Kind::Write, run.nsid, bytes, core)
    {
        return with_data(connection, Kind::Write, command, payload, core, cx);
    }
    let namespace = core.namespace(connection.subsystem, run.nsid);
    let namespace = namespace.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
    if let Some(Direct::Linear(region)) = &namespace.direct {
        let start = usize::try_from(run.slba << namespace.block_shift)
            .map_err(|_| Status::LBA_OUT_OF_RANGE.with_dnr())?;
        region.copy_in(start, data);
    }
    namespace.stats.writes += 1;
    namespace.stats.written_bytes += u64::from(bytes);
    namespace.latency.writes.count_at_once();
    connection.demand.answered += u64::from(bytes);
    let urgency = if run.control.fua() {
        Urgency::Urgent
    } else {
        connection.output.urgency()
    };
    let sq_head = connection.qpair.reported_head();
    let completion = Completion::new(command.cid(), sq_head, Status::SUCCESS);
    transfer::complete(connection, completion, urgency, core, cx);
    Ok(Flow::Continue)
}

/// Pays for a read or write of memory that is about to be done at once, and counts it for its
/// tenant. `false` where it has to wait for its tokens, or is nobody's.
#[inline]
fn pay_at_once(
    connection: &Connection,
    kind: Kind,
    nsid: u32,
    bytes: u32,
    core: &mut CoreState,
) -> bool {
    let Some(seat) = connection.seat(nsid) else {
        return false;
    };
    let charged = match kind {
        Kind::Write => qos::PricedOperation::Write,
        _ => qos::PricedOperation::Read,
    };
    let bytes = u64::from(bytes);
    let paid = core.tokens.pay_at_once(seat, charged, units(bytes));
    if paid {
        let done = Done {
            kind,
            success: true,
            bytes,
            took: Nanos(0),
            device: Some(Nanos(0)),
        };
        core.tokens.done(seat, &done);
    }
    paid
}

/// A slot for a command on a run of blocks.
fn take(
    connection: &mut Connection,
    kind: Kind,
    command: &Command,
    run: &LbaCommand,
    bytes: u32,
    core: &mut CoreState,
    cx: &Context<'_>,
) -> Result<u16, Status> {
    let slot = connection.qpair.begin(command, kind, run.nsid, cx.now)?;
    let entry = connection.qpair.slot(slot);
    entry.lba = run.slba;
    entry.blocks = run.blocks;
    entry.durable = run.control.fua();
    entry.deallocate = run.control.deallocate();
    entry.length = bytes;
    entry.weighed = true;
    weigh(connection, core, |outstanding| {
        *outstanding += u64::from(bytes);
    });
    let brought = bytes <= core.limits.in_capsule_bytes && kind.takes_data();
    barrier::arrive(connection, slot, if brought { bytes } else { 0 }, core);
    Ok(slot)
}

/// Changes the bytes that are outstanding: the queue's, and those of its class on the core.
fn weigh(connection: &mut Connection, core: &mut CoreState, change: impl Fn(&mut u64)) {
    change(&mut connection.demand.outstanding);
    if let Some(class) = connection.output.class() {
        change(&mut core.switch.outstanding[class]);
    }
}

/// A command is outstanding no more.
pub(crate) fn lift(connection: &mut Connection, slot: u16, core: &mut CoreState) {
    let entry = connection.qpair.slot(slot);
    if std::mem::take(&mut entry.weighed) {
        let bytes = u64::from(entry.length);
        weigh(connection, core, |outstanding| *outstanding -= bytes);
    }
}

/// Write and Compare, with data that has to come first.
fn with_data(
    connection: &mut Connection,
    kind: Kind,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let (run, bytes, namespace) = blocks(connection, command, kind.need(), core)?;
    if kind == Kind::Write && namespace.read_only {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    }
    let inside = arrival(command.data_pointer()?, payload, bytes)?;
    let Some((skip, data)) = inside else {
        let slot = take(connection, kind, command, &run, bytes, core, cx)?;
        gate(connection, slot, core, cx);
        return Ok(Flow::Continue);
    };
    // Also where the device is memory: a reader must never see half a block of what is arriving
    // (docs/decisions/0005-whole-blocks.md).
    // What waits for data on this very connection must not wait for its input.
    let waits = connection.transferring > 0;
    let (holding, pool) = (&connection.holding, cx.driver.buffers());
    if !waits
        && holding
            .may_take(bytes as usize, pool, &core.limits)
            .is_err()
    {
        return Ok(Flow::Stall);
    }
    let Some((mut buffer, held)) = take_buffer(cx, bytes as usize) else {
        return Ok(Flow::Stall);
    };
    let slot = take(connection, kind, command, &run, bytes, core, cx)?;
    let entry = connection.qpair.slot(slot);
    if let Payload::Whole(_, digest_ok) = payload {
        buffer.copy_in(0, data);
        entry.received = bytes;
        entry.damaged = !digest_ok;
        if !digest_ok {
            core.stats.data_digest_errors += 1;
        }
    }
    entry.data = Some(buffer);
    connection.keep(slot, held);
    let entry = connection.qpair.slot(slot);
    if matches!(payload, Payload::Arriving(_)) {
        entry.phase = Phase::Arriving;
        let sink = Sink::Capsule(slot);
        connection.incoming = Incoming {
            sink,
            position: 0,
            skip,
            base: 0,
            want: bytes,
        };
        return Ok(Flow::Continue);
    }
    arrived(connection, slot, core, cx);
    Ok(Flow::Continue)
}

/// Where a command's data is: `None` when R2Ts have to ask for it; in the capsule, how many bytes
/// of that to skip, and the data itself if it is here.
pub(crate) fn arrival<'a>(
    pointer: DataPointer,
    payload: Payload<'a>,
    bytes: u32,
) -> Result<Option<(u32, &'a [u8])>, Status> {
    if pointer.length() != bytes {
        return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    }
    match (pointer, payload) {
        (DataPointer::Transport { .. }, Payload::None) => Ok(None),
        (DataPointer::Transport { .. }, _) => Err(Status::INVALID_FIELD.with_dnr()),
        (DataPointer::InCapsule { offset, .. }, Payload::Arriving(total)) => {
            let skip = u32::try_from(offset).ok().filter(|&skip| skip <= total);
            let skip = skip.ok_or(Status::SGL_OFFSET_INVALID.with_dnr())?;
            if bytes > total - skip {
                return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
            }
            Ok(Some((skip, &[])))
        }
        (pointer, payload) => {
            let capsule = match payload {
                Payload::Whole(capsule, _) => capsule,
                _ => &[],
            };
            let data = pointer.capsule_data(capsule)?;
            Ok(Some((0, data)))
        }
    }
}

/// Verify and Write Zeroes.
fn without_data(
    connection: &mut Connection,
    kind: Kind,
    command: &Command,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let (run, _, namespace) = blocks(connection, command, kind.need(), core)?;
    if kind == Kind::WriteZeroes && namespace.read_only {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    }
    let slot = take(connection, kind, command, &run, 0, core, cx)?;
    gate(connection, slot, core, cx);
    Ok(Flow::Continue)
}

/// All the data of a command is here.
pub(crate) fn arrived(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.qpair.slot(slot);
    entry.phase = Phase::Executing;
    entry.submitted = Time::ZERO;
    let (damaged, counted, kind) = (entry.damaged, entry.counted, entry.kind);
    let damaged = damaged && !mutation::active(Mutation::TargetDigestIgnored);
    if damaged {
        // [NVMe-TCP 1.0 §3.6.3.2]: the connection goes on, the command does not.
        finish(
            connection,
            slot,
            Status::TRANSIENT_TRANSPORT_ERROR,
            core,
            cx,
        );
    } else if counted || kind == Kind::Admin {
        execute(connection, slot, core, cx);
    } else {
        gate(connection, slot, core, cx);
    }
}

/// Lets a command pass, or lets it wait while its namespace is paused.
pub(crate) fn gate(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let key = connection.key;
    let entry = connection.qpair.slot(slot);
    if entry.held != 0 {
        entry.phase = Phase::WaitingForBarrier;
        return;
    }
    let subsystem = connection.subsystem;
    let (nsid, lba, blocks, kind) = (entry.nsid, entry.lba, entry.blocks, entry.kind);
    let Some(namespace) = core.namespace(subsystem, nsid) else {
        finish(
            connection,
            slot,
            Status::INVALID_NAMESPACE.with_dnr(),
            core,
            cx,
        );
        return;
    };
    if !namespace.is_open() {
        namespace.waiting.push_back(Ticket {
            connection: key,
            slot,
        });
        entry.phase = Phase::WaitingForNamespace;
        core.stats.pause_waits += 1;
        return;
    }
    // It may have waited while the namespace became smaller.
    let ranged = !matches!(kind, Kind::Flush | Kind::Dataset);
    if ranged && !namespace.contains(lba, u64::from(blocks)) {
        finish(
            connection,
            slot,
            Status::LBA_OUT_OF_RANGE.with_dnr(),
            core,
            cx,
        );
        return;
    }
    if namespace.scheduler.is_some() && !entry.paid {
        // Not in flight yet: nobody who pauses the namespace waits for tokens.
        tokens::schedule(connection, slot, core, cx);
        return;
    }
    namespace.in_flight += 1;
    entry.counted = true;
    proceed(connection, slot, core, cx);
}

/// Gets a command what it needs next: a buffer, its data, or the device.
pub(crate) fn proceed(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let digests = connection.output.format.data_digest;
    let key = connection.key;
    let entry = connection.qpair.slot(slot);
    let (nsid, kind, length) = (entry.nsid, entry.kind, entry.length);
    let asks = kind.takes_data() && entry.received < length;
    let needs = entry.data.is_none() && length > 0 && (asks || kind == Kind::Read);
    if needs {
        let memory = core
            .namespace(connection.subsystem, nsid)
            .is_some_and(|namespace| namespace.direct.is_some());
        entry.direct = memory && !digests && kind == Kind::Read;
        if !entry.direct {
            let pool = cx.driver.buffers();
            let holding = &connection.holding;
            if let Err(share) = holding.may_take(length as usize, pool, &core.limits) {
                if entry.phase != Phase::WaitingForBuffer {
                    share.count(&mut core.stats);
                }
                entry.phase = Phase::WaitingForBuffer;
                core.share_waiters.push_back(Ticket {
                    connection: key,
                    slot,
                });
                return;
            }
            let Some((data, held)) = take_buffer(cx, length as usize) else {
                entry.phase = Phase::WaitingForBuffer;
                core.buffer_waiters.push_back(Ticket {
                    connection: key,
                    slot,
                });
                core.stats.buffer_waits += 1;
                return;
            };
            entry.data = Some(data);
            connection.keep(slot, held);
        }
    }
    if asks {
        ask(connection, slot, core, cx);
    } else {
        execute(connection, slot, core, cx);
    }
}

/// Asks the host for a command's data.
pub(crate) fn ask(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.qpair.slot(slot);
    entry.phase = Phase::Transferring;
    entry.submitted = cx.now;
    connection.transferring += 1;
    let limits = &core.limits;
    let patience = limits.stall_timeout.min(limits.transfer_timeout);
    connection.arm(core, cx.now + patience);
    transfer::send_r2ts(connection, slot, core, cx);
}

/// Carries a command out: it has all that it needs.
pub(crate) fn execute(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let key = connection.key;
    let subsystem = connection.subsystem;
    let entry = connection.qpair.slot(slot);
    entry.phase = Phase::Executing;
    entry.submitted = cx.now;
    let (nsid, lba, length) = (entry.nsid, entry.lba, entry.length);
    let durable = entry.durable && !mutation::active(Mutation::FuaIgnored);
    let operation = match entry.kind {
        Kind::Admin => return crate::controller::execute(connection, slot, core, cx),
        Kind::Flush | Kind::Shutdown => return parts::flush_parts(connection, slot, core, cx),
        Kind::Dataset => return parts::begin_dataset(connection, slot, core, cx),
        // Nobody gives it anything to do.
        Kind::Barrier => return finish(connection, slot, Status::INTERNAL_ERROR, core, cx),
        Kind::Read if entry.direct => {
            let namespace = core.namespace(subsystem, nsid);
            entry.data = namespace.and_then(|namespace| memory(namespace, lba, length));
            return finish(connection, slot, Status::SUCCESS, core, cx);
        }
        Kind::Read => Operation::Read,
        Kind::Write => Operation::Write { durable },
        Kind::Compare => Operation::Compare,
        Kind::Verify => Operation::Verify,
        Kind::WriteZeroes => Operation::WriteZeroes {
            deallocate: entry.deallocate,
            durable,
        },
    };
    let request = Request {
        tag: Ticket {
            connection: key,
            slot,
        }
        .tag(),
        operation,
        lba: Lba(lba),
        blocks: entry.blocks - missing(entry.kind, entry.blocks),
        data: entry.data.take(),
    };
    let class = connection.output.class();
    if let Some(completion) = core.submit(subsystem, nsid, class, request, cx) {
        completed(
            connection,
            slot,
            completion.result,
            completion.data,
            core,
            cx,
        );
    }
}

/// Blocks at the end of a command that its device does not hear of: none.
#[inline]
fn missing(kind: Kind, blocks: u32) -> u32 {
    let misses = match kind {
        Kind::WriteZeroes => mutation::active(Mutation::ZeroesMissLast),
        Kind::Compare => mutation::active(Mutation::CompareMissesLast),
        _ => false,
    };
    u32::from(misses && blocks > 1)
}

/// The device is done with a command, or with a part of one.
pub(crate) fn completed(
    connection: &mut Connection,
    slot: u16,
    result: Result<(), BlockError>,
    data: Option<IoSlice>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.qpair.slot(slot);
    let kind = entry.kind;
    let status = match result {
        Err(error) if !mutation::active(Mutation::DeviceErrorHidden) => status_of(error, kind),
        _ => Status::SUCCESS,
    };
    match kind {
        Kind::Flush | Kind::Shutdown | Kind::Dataset => {
            entry.parts -= 1;
            if !status.is_success() {
                entry.status.get_or_insert(status);
            }
            if kind == Kind::Dataset {
                parts::dataset_parts(connection, slot, core, cx);
            } else {
                parts::flush_parts(connection, slot, core, cx);
            }
        }
        _ => {
            if kind == Kind::Read {
                entry.data = data;
            }
            finish(connection, slot, status, core, cx);
        }
    }
}

/// Counts a command of a namespace that ended with `status`.
fn count(stats: &mut NamespaceStats, kind: Kind, status: Status, bytes: u64) {
    match kind {
        Kind::Read if !status.is_success() => stats.read_errors += 1,
        Kind::Write if !status.is_success() => stats.write_errors += 1,
        Kind::Flush if !status.is_success() => stats.flush_errors += 1,
        _ if !status.is_success() => stats.other_errors += 1,
        Kind::Read => {
            stats.reads += 1;
            stats.read_bytes += bytes;
        }
        Kind::Write => {
            stats.writes += 1;
            stats.written_bytes += bytes;
        }
        Kind::Flush => stats.flushes += 1,
        _ => stats.others += 1,
    }
}

/// A command has its status: it is counted, and answered if anybody still waits.
pub(crate) fn finish(
    connection: &mut Connection,
    slot: u16,
    status: Status,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    lift(connection, slot, core);
    let entry = connection.qpair.slot(slot);
    entry.status = Some(status);
    if entry.kind != Kind::Read && entry.kind != Kind::Admin {
        if mutation::active(Mutation::BufferKept) && !status.is_success() {
            std::mem::forget(entry.data.take());
        }
        entry.data = None;
    }
    let counted = std::mem::take(&mut entry.counted);
    if entry.kind == Kind::Shutdown
        && let Owner::Admin(controller) = &mut connection.owner
    {
        fabrics::shutdown_ended(controller, status.is_success());
    }
    let (kind, nsid, length) = (entry.kind, entry.nsid, u64::from(entry.length));
    let (cid, opcode) = (entry.cid, entry.opcode);
    let took = cx.now.since(entry.began);
    let submitted = Some(entry.submitted).filter(|&at| at > Time::ZERO);
    if !matches!(kind, Kind::Admin | Kind::Barrier)
        && let Some(namespace) = core.namespace(connection.subsystem, nsid)
    {
        count(&mut namespace.stats, kind, status, length);
        let latency = &mut namespace.latency;
        match kind {
            Kind::Read => latency.reads.count(took),
            Kind::Write => latency.writes.count(took),
            Kind::Flush => latency.flushes.count(took),
            _ => latency.others.count(took),
        }
        if namespace.scheduler.is_some()
            && let Some(seat) = connection.seat(nsid)
        {
            let done = Done {
                kind,
                success: status.is_success(),
                bytes: length,
                took,
                device: submitted.map(|at| cx.now.since(at)),
            };
            core.tokens.done(seat, &done);
        }
    }
    if counted {
        core.uncount(connection.subsystem, nsid);
    }
    core.touch();
    if !status.is_success() && kind != Kind::Admin {
        transfer::record_error(connection, cid, nsid, opcode, status);
    }
    if connection.answers() {
        transfer::answer(connection, slot, core, cx);
    } else {
        connection.give_back(slot, core);
    }
}
