//! Commands and their device requests.

use crate::command::blocks;
use crate::command::table::CommandKind;
use crate::namespace::CoreNamespace;
use crate::request::{Slot, Step, Ticket, status_of_result};
use base::mutation::{self, Mutation};
use base::units::Lba;
use block::{BlockError, Operation, Request};
use reactor::IoSlice;
use wire::nvme::Status;

/// Returns the Flush before a read with FUA, by which the device commits its volatile write cache.
/// `None` if it has no such cache, or if the flush is complete. `[NVMe NVM 1.0 §3.2.4]`
pub(crate) fn commit(
    entry: &mut Slot,
    ticket: Ticket,
    namespace: Option<&CoreNamespace>,
) -> Option<Step> {
    let reads = entry.kind.row().price.is_read();
    let commits = reads && entry.range.durable && namespace.is_some_and(CoreNamespace::has_cache);
    if !commits || mutation::active(Mutation::FuaIgnored) {
        return None;
    }
    entry.range.durable = false;
    entry.range.commits = true;
    Some(Step::Submit(
        entry.nsid,
        part(ticket, Operation::Flush, 0, 0),
    ))
}

/// Returns the first step of a command that needs one device request.
pub(crate) fn execute(entry: &mut Slot, ticket: Ticket, namespace: Option<&CoreNamespace>) -> Step {
    let durable = entry.range.durable && !mutation::active(Mutation::FuaIgnored);
    if entry.transfer.direct {
        let (lba, length) = (entry.range.lba, entry.transfer.length);
        entry.transfer.data =
            namespace.and_then(|namespace| blocks::memory(namespace, lba, length));
        return Step::Answer(Status::SUCCESS);
    }
    let Some(operation) = entry.kind.operation(durable, entry.range.deallocate) else {
        return Step::Answer(Status::INTERNAL_ERROR);
    };
    let request = Request {
        tag: ticket.tag(),
        operation,
        lba: Lba(entry.range.lba),
        blocks: entry.range.blocks - missing(entry.kind, entry.range.blocks),
        data: entry.transfer.data.take(),
    };
    Step::Submit(entry.nsid, request)
}

/// Returns the request for one part of a command.
pub(super) fn part(ticket: Ticket, operation: Operation, lba: u64, blocks: u32) -> Request {
    Request {
        tag: ticket.tag(),
        operation,
        lba: Lba(lba),
        blocks,
        data: None,
    }
}

/// Returns the blocks at the end of a command that a deliberate mutation omits from its device
/// request.
#[inline]
fn missing(kind: CommandKind, blocks: u32) -> u32 {
    let misses = match kind {
        CommandKind::WriteZeroes => mutation::active(Mutation::ZeroesMissLast),
        CommandKind::Compare => mutation::active(Mutation::CompareMissesLast),
        _ => false,
    };
    u32::from(misses && blocks > 1)
}

/// Records that the device has a request of a command.
#[inline]
pub(crate) fn queued(entry: &mut Slot) -> Step {
    if !entry.has_parts() {
        return Step::Wait;
    }
    entry.parts.outstanding += 1;
    Step::Continue
}

/// Handles the completion of a request that the device had queued.
pub(crate) fn completed(
    entry: &mut Slot,
    result: Result<(), BlockError>,
    data: Option<IoSlice>,
) -> Step {
    if entry.has_parts() {
        assert!(entry.parts.outstanding > 0, "a request ends once");
        entry.parts.outstanding -= 1;
    }
    done(entry, result, data)
}

/// Records the outcome of a request.
pub(crate) fn done(
    entry: &mut Slot,
    result: Result<(), BlockError>,
    data: Option<IoSlice>,
) -> Step {
    let status = status_of_result(result, entry.kind);
    if entry.has_parts() {
        if !status.is_success() {
            entry.status.get_or_insert(status);
        }
        return Step::Continue;
    }
    if entry.kind.sends_data() {
        entry.transfer.data = data;
    }
    Step::Answer(status)
}
