//! Read Extents and Write Extents: vendor commands with a table of block ranges.
//!
//! The table arrives in the capsule. All of it is checked, and every extent against the host's
//! rights, before any block is accessed and before the command passes its gates. Then the command
//! continues as a Read or Write of all its blocks. A device that supports several extents gets one
//! command; any other device gets one request per extent, all in one kick.

use crate::command::blocks;
use crate::command::table::CommandKind;
use crate::namespace::CoreNamespace;
use crate::qos::access::Rights;
use crate::request::{Slot, Step, Ticket, status_of_result};
use crate::session::event::Payload;
use base::mutation::{self, Mutation};
use base::units::Lba;
use block::{BlockError, Extent, Extents, Operation, Request};
use reactor::IoSlice;
use wire::nvme::{Command, DataPointer, ExtentTerms, ExtentsCommand, Status};

/// A command whose table is still to arrive.
#[derive(Debug)]
pub(crate) struct Checked<'a> {
    pub(crate) command: ExtentsCommand,
    /// Bytes of the capsule's data: the table, after the in-capsule data of a write.
    pub(crate) length: u32,
    /// Offset in the capsule, and the capsule's data if it has arrived.
    pub(crate) inside: (u32, &'a [u8]),
}

/// Checks the table's descriptor; the extents are checked when they have arrived.
pub(crate) fn check<'a>(
    command: &Command,
    kind: CommandKind,
    payload: Payload<'a>,
    terms: &ExtentTerms,
    block_shift: u32,
) -> Result<Checked<'a>, Status> {
    let pointer = command.data_pointer()?;
    let command = ExtentsCommand::parse(command);
    let counted = (1..=terms.extents).contains(&command.extents);
    if !counted || !matches!(pointer, DataPointer::InCapsule { .. }) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let bytes = u64::from(command.blocks) << block_shift;
    if bytes > u64::from(terms.bytes) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let table = command.table_bytes() as u64;
    let length = pointer.length();
    match u64::from(length).checked_sub(table) {
        Some(0) => {}
        Some(brought) if kind.takes_data() && brought == bytes => {}
        _ => return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()),
    }
    let inside = blocks::arrival(pointer, payload, length)?;
    Ok(Checked {
        command,
        length,
        inside: inside.ok_or(Status::INVALID_FIELD.with_dnr())?,
    })
}

/// Reads the table, which has arrived in the command's buffer, and checks every extent. In-capsule
/// data of a write stays in the buffer, which is freed otherwise.
pub(crate) fn read_table(
    entry: &mut Slot,
    rights: Option<&Rights>,
    namespace: Option<&CoreNamespace>,
) -> Result<(), Status> {
    let namespace = namespace.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
    let (Some(table), Some(data)) = (&mut entry.extents, entry.transfer.data.take()) else {
        return Err(Status::INTERNAL_ERROR);
    };
    let need = entry.kind.need();
    let bytes = data.bytes().ok_or(Status::INTERNAL_ERROR)?;
    // None was executed, so a host that requested outcomes gets zero.
    let outcomes = table.command.outcomes;
    let named = |index| if outcomes { 0 } else { index };
    let entries = table.command.parse_table(bytes).map_err(|error| {
        entry.result = named(error.index.into());
        error.status
    })?;
    table.block_shift = namespace.block_shift;
    for (index, extent) in (0..).zip(entries) {
        let blocks = u64::from(extent.blocks);
        let rights = rights.filter(|_| index == 0 || !mutation::active(Mutation::ExtentsNotAsked));
        let allowed = rights.map_or(Ok(()), |rights| {
            rights.check(entry.nsid, need, extent.slba, blocks)
        });
        let inside = namespace.contains(extent.slba, blocks);
        let inside = inside.then_some(());
        allowed
            .and(inside.ok_or(Status::LBA_OUT_OF_RANGE.with_dnr()))
            .inspect_err(|_| entry.result = named(index))?;
        table.extents.push(Extent {
            tag: index,
            lba: Lba(extent.slba),
            blocks: extent.blocks,
            data: None,
            result: Ok(()),
        });
    }
    let length = table.command.blocks << namespace.block_shift;
    let brought = entry.transfer.length as usize - table.command.table_bytes();
    entry.transfer.length = length;
    entry.transfer.received = 0;
    if brought > 0 {
        entry.transfer.received = length;
        entry.transfer.data = Some(IoSlice::new(data.into_memory(), 0, brought));
    }
    Ok(())
}

/// Returns the first step of a command that has all its resources.
pub(crate) fn execute(entry: &mut Slot, ticket: Ticket, namespace: Option<&CoreNamespace>) -> Step {
    let (Some(table), Some(namespace)) = (&mut entry.extents, namespace) else {
        return Step::Answer(Status::INTERNAL_ERROR);
    };
    let shift = table.block_shift;
    if entry.transfer.direct {
        for extent in &mut table.extents {
            let bytes = extent.blocks << shift;
            extent.data = blocks::memory(namespace, extent.lba.0, bytes);
        }
        return Step::Answer(Status::SUCCESS);
    }
    let operation = operation(entry.kind, entry.range.durable);
    if let Some(data) = entry.transfer.data.take() {
        let data = data.into_shared();
        let mut at = 0;
        for extent in &mut table.extents {
            let bytes = (extent.blocks as usize) << shift;
            extent.data = data.duplicate(at, bytes);
            at += bytes;
        }
    }
    if table.extents.len() > namespace.extents_max as usize {
        return Step::Continue;
    }
    let command = Extents {
        tag: ticket.tag(),
        operation,
        extents: std::mem::take(&mut table.extents),
    };
    Step::SubmitExtents(entry.nsid, command)
}

fn operation(kind: CommandKind, durable: bool) -> Operation {
    let durable = durable && !mutation::active(Mutation::FuaIgnored);
    kind.operation(durable, false).unwrap_or(Operation::Read)
}

/// Returns the request for the next extent, for a device that accepts one at a time.
pub(crate) fn next(entry: &mut Slot, ticket: Ticket) -> Step {
    let operation = operation(entry.kind, entry.range.durable);
    let Some(table) = &mut entry.extents else {
        return Step::Answer(Status::INTERNAL_ERROR);
    };
    if let Some(extent) = table.extents.get_mut(entry.parts.next as usize) {
        let part = u8::try_from(entry.parts.next).expect("at most 64");
        entry.parts.next += 1;
        let request = Request {
            tag: ticket.part_tag(part),
            operation,
            lba: extent.lba,
            blocks: extent.blocks,
            data: extent.data.take(),
        };
        return Step::Submit(entry.nsid, request);
    }
    if entry.parts.outstanding > 0 {
        return Step::Wait;
    }
    answer(entry)
}

/// Returns the last step of a command whose extents all have outcomes: the answer contains the
/// first failed extent, or the completed ones.
fn answer(entry: &mut Slot) -> Step {
    let Some(table) = &mut entry.extents else {
        return Step::Answer(Status::INTERNAL_ERROR);
    };
    let Some((first, status)) = table.failed else {
        return Step::Answer(Status::SUCCESS);
    };
    entry.result = table.outcome(entry.kind.sends_data(), first);
    Step::Answer(status)
}

/// Records that the device has the request for an extent.
pub(crate) fn queued(entry: &mut Slot) -> Step {
    entry.parts.outstanding += 1;
    Step::Continue
}

/// Handles the completion of an extent's request that the device had queued.
pub(crate) fn part_completed(
    entry: &mut Slot,
    part: u8,
    result: Result<(), BlockError>,
    data: Option<IoSlice>,
) -> Step {
    assert!(entry.parts.outstanding > 0, "a request ends once");
    entry.parts.outstanding -= 1;
    part_done(entry, part, result, data)
}

/// Records the outcome of the request for an extent.
pub(crate) fn part_done(
    entry: &mut Slot,
    part: u8,
    result: Result<(), BlockError>,
    data: Option<IoSlice>,
) -> Step {
    let status = status_of_result(result, entry.kind);
    if let Some(table) = &mut entry.extents {
        table.note(part.into(), status);
        if let Some(extent) = table.extents.get_mut(usize::from(part)) {
            extent.data = data.filter(|_| entry.kind.sends_data());
        }
    }
    Step::Continue
}

/// Records the outcome of the whole command.
pub(crate) fn done(entry: &mut Slot, command: Extents) -> Step {
    let Some(table) = &mut entry.extents else {
        return Step::Answer(Status::INTERNAL_ERROR);
    };
    table.extents = command.extents;
    for index in 0..table.extents.len() {
        let status = status_of_result(table.extents[index].result, entry.kind);
        table.note(index as u64, status);
    }
    answer(entry)
}
