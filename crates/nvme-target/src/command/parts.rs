//! Commands that have several parts: Flush of all namespaces, and Dataset Management.

use crate::command::{arrival, arrived, barrier, finish, gate, tokens};
use crate::limits::DATASET_PARALLEL_MAX;
use crate::request::{Kind, Phase, Slot, Ticket, status_of};
use crate::service::core::CoreState;
use crate::session::connection::Connection;
use crate::session::input::{Flow, Incoming, Payload, Sink, take_buffer};
use base::mutation::{self, Mutation};
use base::units::Lba;
use block::{Operation, Request};
use qos::access::Need;
use reactor::{Context, IoSlice};
use wire::limits::NSID_BROADCAST;
use wire::nvme::io::DatasetRange;
use wire::nvme::{Command, DatasetManagement, Status};

/// Dataset Management: the list of ranges is its data.
pub(super) fn dataset(
    connection: &mut Connection,
    command: &Command,
    payload: Payload<'_>,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let management = DatasetManagement::parse(command);
    if command.fuse() != 0 {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let namespace = core.namespace(connection.subsystem, management.nsid);
    let namespace = namespace.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
    if let Some(rights) = &connection.rights {
        // The ranges are checked when they are here.
        rights.check_any(management.nsid)?;
    }
    if management.deallocate && namespace.read_only {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    }
    let pointer = command.data_pointer()?;
    let bytes = u32::try_from(management.data_bytes()).expect("at most 4096");
    // Linux always sends room for all 256 ranges; only the first ones count.
    let length = pointer.length();
    if length < bytes || length > 4096 {
        return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    }
    let inside = arrival(pointer, payload, length)?;
    let Some((mut buffer, held)) = take_buffer(cx, length as usize) else {
        return Ok(Flow::Stall);
    };
    let slot = connection
        .qpair
        .begin(command, Kind::Dataset, management.nsid, cx.now)?;
    let entry = connection.qpair.slot(slot);
    entry.blocks = u32::from(management.ranges);
    entry.deallocate = management.deallocate;
    entry.length = length;
    let brought = if inside.is_some() { length } else { 0 };
    barrier::arrive(connection, slot, brought, core);
    connection.keep(slot, held);
    let entry = connection.qpair.slot(slot);
    let Some((skip, data)) = inside else {
        entry.data = Some(buffer);
        gate(connection, slot, core, cx);
        return Ok(Flow::Continue);
    };
    if let Payload::Whole(_, digest_ok) = payload {
        buffer.copy_in(0, data);
        entry.received = length;
        entry.damaged = !digest_ok;
    }
    entry.data = Some(buffer);
    if matches!(payload, Payload::Arriving(_)) {
        entry.phase = Phase::Arriving;
        let sink = Sink::Capsule(slot);
        connection.incoming = Incoming {
            sink,
            position: 0,
            skip,
            base: 0,
            want: length,
        };
        return Ok(Flow::Continue);
    }
    arrived(connection, slot, core, cx);
    Ok(Flow::Continue)
}

/// Flush, of one namespace or of all. `[NVMe Base 2.0 §7.1]`
pub(super) fn flush(
    connection: &mut Connection,
    command: &Command,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) -> Result<Flow, Status> {
    let nsid = command.nsid();
    if command.fuse() != 0 {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let all = nsid == NSID_BROADCAST;
    if !all && core.namespace(connection.subsystem, nsid).is_none() {
        return Err(Status::INVALID_NAMESPACE.with_dnr());
    }
    if !all && let Some(rights) = &connection.rights {
        rights.check_any(nsid)?;
    }
    let slot = connection.qpair.begin(command, Kind::Flush, nsid, cx.now)?;
    barrier::arrive(connection, slot, 0, core);
    if all {
        tokens::flush_all(connection, slot, core, cx);
    } else {
        gate(connection, slot, core, cx);
    }
    Ok(Flow::Continue)
}

/// Flushes the next namespaces that have something to flush. A paused one is waited for, once what
/// was begun is through; a Flush of one namespace has passed its gate.
pub(super) fn flush_parts(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let subsystem = connection.subsystem;
    let highest = core
        .subsystems
        .get(subsystem as usize)
        .and_then(Option::as_ref);
    let highest = highest.map_or(0, |subsystem| subsystem.namespaces.len());
    let highest = u32::try_from(highest).expect("at most 1024 namespaces");
    let answers = connection.answers();
    let mut paused = None;
    loop {
        let entry = connection.qpair.slot(slot);
        let all = entry.nsid == NSID_BROADCAST;
        let last = if all { highest } else { 1 };
        if !answers || entry.next_part >= last || entry.parts >= DATASET_PARALLEL_MAX {
            break;
        }
        let nsid = if all { entry.next_part + 1 } else { entry.nsid };
        entry.next_part += 1;
        let rights = connection.rights.as_deref();
        if all && rights.is_some_and(|rights| rights.check_any(nsid).is_err()) {
            continue;
        }
        let Some(namespace) = core.namespace(subsystem, nsid) else {
            continue;
        };
        if !namespace
            .shared
            .options
            .device
            .capabilities()
            .volatile_cache
            || mutation::active(Mutation::FlushNotDone)
        {
            continue;
        }
        if !namespace.is_open() && !entry.counted {
            entry.next_part -= 1;
            paused = Some(nsid);
            break;
        }
        submit_part(connection, slot, nsid, (Operation::Flush, 0, 0), core, cx);
    }
    let entry = connection.qpair.slot(slot);
    if entry.parts > 0 {
        return;
    }
    if let Some(namespace) = paused.and_then(|nsid| core.namespace(subsystem, nsid)) {
        let connection = connection.key;
        namespace.waiting.push_back(Ticket { connection, slot });
        entry.phase = Phase::WaitingForNamespace;
        core.stats.pause_waits += 1;
        return;
    }
    let status = entry.status.unwrap_or(Status::SUCCESS);
    finish(connection, slot, status, core, cx);
}

/// Hands one part of a command to the device of a namespace: an operation, its first block and its
/// number of blocks.
fn submit_part(
    connection: &mut Connection,
    slot: u16,
    nsid: u32,
    (operation, lba, blocks): (Operation, u64, u32),
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let ticket = Ticket {
        connection: connection.key,
        slot,
    };
    let request = Request {
        tag: ticket.tag(),
        operation,
        lba: Lba(lba),
        blocks,
        data: None,
    };
    let class = connection.output.class();
    let done = core.submit(connection.subsystem, nsid, class, request, cx);
    let entry = connection.qpair.slot(slot);
    match done {
        None => entry.parts += 1,
        Some(completion) => {
            if let Err(error) = completion.result {
                let status = status_of(error, entry.kind);
                entry.status.get_or_insert(status);
            }
        }
    }
}

/// The blocks that a Dataset Management command names, in all.
pub(super) fn blocks_named(data: &IoSlice, ranges: u32) -> u64 {
    let blocks = |index| u64::from(range(data, index).blocks);
    (0..ranges).map(blocks).sum()
}

/// Range `index` of a Dataset Management command.
fn range(data: &IoSlice, index: u32) -> DatasetRange {
    let mut bytes = [0; DatasetRange::SIZE];
    data.copy_out(index as usize * DatasetRange::SIZE, &mut bytes);
    DatasetRange::parse(&bytes)
}

/// Checks all ranges before any is touched.
pub(super) fn begin_dataset(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let entry = connection.qpair.slot(slot);
    let (nsid, ranges, deallocate) = (entry.nsid, entry.blocks, entry.deallocate);
    let need = if deallocate { Need::Write } else { Need::Read };
    let inside = match (core.namespace(connection.subsystem, nsid), &entry.data) {
        (Some(namespace), Some(data)) => (0..ranges).all(|index| {
            let range = range(data, index);
            namespace.contains(range.slba, u64::from(range.blocks))
        }),
        _ => false,
    };
    let named = match &connection.qpair.slot(slot).data {
        Some(data) if deallocate => blocks_named(data, ranges),
        _ => 0,
    };
    let refused = match (&connection.rights, &connection.qpair.slot(slot).data) {
        _ if !inside => Some(Status::LBA_OUT_OF_RANGE.with_dnr()),
        _ if named > u64::from(core.limits.deallocate_blocks) => {
            Some(Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_dnr())
        }
        (Some(rights), Some(data)) => (0..ranges)
            .map(|index| range(data, index))
            .filter(|range| range.blocks > 0)
            .find_map(|range| {
                let blocks = u64::from(range.blocks);
                rights.check(nsid, need, range.slba, blocks).err()
            }),
        _ => None,
    };
    if let Some(status) = refused {
        finish(connection, slot, status, core, cx);
    } else if deallocate {
        dataset_parts(connection, slot, core, cx);
    } else {
        // The other attributes are hints, which we are free to ignore.
        finish(connection, slot, Status::SUCCESS, core, cx);
    }
}

/// Deallocates the next pieces. Where nobody waits any more, what was begun ends and no more is.
pub(super) fn dataset_parts(
    connection: &mut Connection,
    slot: u16,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let answers = connection.answers();
    let nsid = connection.qpair.slot(slot).nsid;
    let namespace = core.namespace(connection.subsystem, nsid);
    let shift = namespace.map_or(0, |namespace| namespace.block_shift);
    let piece = (core.limits.deallocate_piece_bytes >> shift).max(1);
    loop {
        let entry = connection.qpair.slot(slot);
        let more = dataset_is_open(entry) && answers;
        if !more || entry.parts >= DATASET_PARALLEL_MAX {
            break;
        }
        let Some(data) = &entry.data else { break };
        let DatasetRange { slba, blocks, .. } = range(data, entry.next_part);
        // The slot keeps how much of the range was begun.
        let begun = u32::try_from(entry.lba).expect("fewer blocks than the range has");
        let count = piece.min(blocks - begun);
        if begun + count == blocks {
            entry.next_part += 1;
            entry.lba = 0;
        } else {
            entry.lba += u64::from(count);
        }
        if count > 0 {
            let lba = slba + u64::from(begun);
            let part = if mutation::active(Mutation::DeallocateNeighbour) && lba > 0 {
                (Operation::Deallocate, lba - 1, count + 1)
            } else {
                (Operation::Deallocate, lba, count)
            };
            submit_part(connection, slot, nsid, part, core, cx);
        }
    }
    let entry = connection.qpair.slot(slot);
    if entry.parts == 0 {
        let unfinished = Status::ABORTED_BY_REQUEST;
        let open = dataset_is_open(entry).then_some(unfinished);
        let status = entry.status.or(open).unwrap_or(Status::SUCCESS);
        finish(connection, slot, status, core, cx);
    }
}

/// Whether a Dataset Management has pieces left to begin.
pub(super) fn dataset_is_open(entry: &Slot) -> bool {
    entry.next_part < entry.blocks && entry.status.is_none()
}
