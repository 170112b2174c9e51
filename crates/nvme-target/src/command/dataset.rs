//! Commands that process a list of ranges, piece by piece: Dataset Management `[NVMe NVM 1.0
//! §3.2.3]`, whose data is the list, and Write Zeroes and Verify of more blocks than one request
//! may have, with a list of one range made by the target.

use crate::command::blocks::arrival;
use crate::command::device::part;
use crate::limits::{DATASET_PARALLEL_MAX, Limits};
use crate::namespace::CoreNamespace;
use crate::qos::access::Rights;
use crate::request::{PaidBlocks, Slot, Step, Ticket};
use crate::session::event::Payload;
use base::mutation::{self, Mutation};
use block::Operation;
use qos::access::Need;
use reactor::IoSlice;
use wire::nvme::io::DatasetRange;
use wire::nvme::{Command, DatasetManagement, Status};

/// A Dataset Management command whose list of ranges is still to arrive.
#[derive(Debug)]
pub(crate) struct Checked<'a> {
    pub(crate) management: DatasetManagement,
    /// Bytes of the list.
    pub(crate) length: u32,
    /// Location of the list in the capsule, as returned by [`arrival`].
    pub(crate) inside: Option<(u32, &'a [u8])>,
}

/// Checks the data of Dataset Management; the ranges are checked when they have arrived.
pub(crate) fn check<'a>(command: &Command, payload: Payload<'a>) -> Result<Checked<'a>, Status> {
    let management = DatasetManagement::parse(command);
    let pointer = command.data_pointer()?;
    let bytes = u32::try_from(management.data_bytes()).expect("at most 4096");
    // Linux always sends space for all 256 ranges; only the first ones are valid.
    let length = pointer.length();
    if length < bytes || length > 4096 {
        return Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    }
    let inside = arrival(pointer, payload, length)?;
    Ok(Checked {
        management,
        length,
        inside,
    })
}

/// Returns the number of blocks in all ranges of a command.
pub(crate) fn blocks_named(data: &IoSlice, ranges: u32) -> u64 {
    let blocks = |index| u64::from(range(data, index).blocks);
    (0..ranges).map(blocks).sum()
}

/// Returns the number of blocks that a command with a list of ranges pays for next: the remaining
/// blocks of all ranges, up to the size of a request. A single price for the whole list would put a
/// tenant into debt for minutes.
pub(crate) fn blocks_to_pay(entry: &Slot, shift: u32, limits: &Limits) -> Option<PaidBlocks> {
    if !entry.range.listed {
        return None;
    }
    entry.operation()?;
    let data = entry.transfer.data.as_ref()?;
    let ranges = entry.parts.next..entry.range.blocks;
    let blocks = ranges.map(|index| u64::from(range(data, index).blocks));
    // Some blocks of the current range were begun.
    let left = blocks.sum::<u64>().saturating_sub(entry.range.lba);
    let most = piece_blocks(entry, shift, limits);
    let blocks = u32::try_from(left).map_or(most, |left| left.min(most));
    Some(PaidBlocks::new(blocks))
}

/// Returns the largest number of blocks in one piece of a command.
fn piece_blocks(entry: &Slot, shift: u32, limits: &Limits) -> u32 {
    let bytes = match entry.operation() {
        Some(Operation::Deallocate) | None => limits.deallocate_piece_bytes,
        Some(_) => limits.transfer_bytes,
    };
    (bytes >> shift).max(1)
}

/// Returns range `index` of a command.
fn range(data: &IoSlice, index: u32) -> DatasetRange {
    let mut bytes = [0; DatasetRange::SIZE];
    data.copy_out(index as usize * DatasetRange::SIZE, &mut bytes);
    DatasetRange::parse(&bytes)
}

/// Truncates the list to the announced number of blocks for deallocation (DMSL): a controller does
/// not process blocks beyond it. `[NVMe NVM 1.0 §3.2.3.1]`
pub(crate) fn clip(entry: &mut Slot, limits: &Limits) {
    if entry.operation() != Some(Operation::Deallocate) {
        return;
    }
    let Some(data) = &mut entry.transfer.data else {
        return;
    };
    let mut left = limits.deallocate_blocks;
    for index in 0..entry.range.blocks {
        let mut range = range(data, index);
        if range.blocks > left {
            range.blocks = left;
            data.copy_in(index as usize * DatasetRange::SIZE, &range.to_bytes());
        }
        left -= range.blocks;
    }
}

/// Checks all ranges before any of them is processed.
pub(crate) fn execute(
    entry: &Slot,
    rights: Option<&Rights>,
    namespace: Option<&CoreNamespace>,
) -> Step {
    let (ranges, operation) = (entry.range.blocks, entry.operation());
    let writes = operation.is_some_and(Operation::is_write);
    let need = if writes { Need::Write } else { Need::Read };
    let (Some(namespace), Some(data)) = (namespace, &entry.transfer.data) else {
        return Step::Answer(Status::LBA_OUT_OF_RANGE.with_dnr());
    };
    let each = || (0..ranges).map(|index| range(data, index));
    if !each().all(|range| namespace.contains(range.slba, u64::from(range.blocks))) {
        return Step::Answer(Status::LBA_OUT_OF_RANGE.with_dnr());
    }
    let allowed = |range: DatasetRange| {
        let blocks = u64::from(range.blocks);
        rights.map_or(Ok(()), |r| r.check(entry.nsid, need, range.slba, blocks))
    };
    let mut named = each().filter(|range| range.blocks > 0);
    if let Err(status) = named.try_for_each(allowed) {
        return Step::Answer(status);
    }
    operation.map_or(Step::Answer(Status::SUCCESS), |_| Step::Continue)
}

/// Returns the request for the next piece. Without `answers`, outstanding pieces complete and no
/// more are begun. None is begun while the namespace is paused; the command then waits for it.
pub(crate) fn next(
    entry: &mut Slot,
    ticket: Ticket,
    namespace: Option<&CoreNamespace>,
    limits: &Limits,
    answers: bool,
) -> Step {
    let fence = namespace.and_then(|namespace| namespace.fence);
    let fenced = fence.is_some_and(|lba| entry.may_change(lba));
    let paused = fenced || namespace.is_some_and(|namespace| !namespace.is_open());
    let shift = namespace.map_or(0, |namespace| namespace.block_shift);
    let operation = entry.operation().unwrap_or(Operation::Deallocate);
    let piece_blocks = piece_blocks(entry, shift, limits);
    let begins = answers && !paused;
    while begins && is_open(entry) && entry.parts.outstanding < DATASET_PARALLEL_MAX {
        let Some(data) = &entry.transfer.data else {
            break;
        };
        let DatasetRange { slba, blocks, .. } = range(data, entry.parts.next);
        let begun = u32::try_from(entry.range.lba).expect("fewer blocks than the range has");
        let mut count = piece_blocks.min(blocks - begun);
        if let Some(paid) = entry.parts.paid_blocks {
            if paid.get() == 0 && count > 0 {
                break;
            }
            count = count.min(paid.get());
            entry.parts.paid_blocks = Some(PaidBlocks::new(paid.get() - count));
        }
        if begun + count == blocks {
            entry.parts.next += 1;
            entry.range.lba = 0;
        } else {
            entry.range.lba += u64::from(count);
        }
        if count == 0 {
            continue;
        }
        let lba = slba + u64::from(begun);
        let deallocates = operation == Operation::Deallocate;
        let (lba, count) =
            if mutation::active(Mutation::DeallocateNeighbour) && deallocates && lba > 0 {
                (lba - 1, count + 1)
            } else {
                (lba, count)
            };
        let request = part(ticket, operation, lba, count);
        return Step::Submit(entry.nsid, request);
    }
    if entry.parts.outstanding > 0 {
        return Step::Wait;
    }
    if answers && paused && is_open(entry) {
        return Step::WaitForNamespace(entry.nsid);
    }
    let paid = entry.parts.paid_blocks;
    if answers && is_open(entry) && paid.is_some_and(|paid| paid.get() == 0) {
        return Step::PayAgain;
    }
    let unfinished = is_open(entry).then_some(Status::ABORTED_BY_REQUEST);
    Step::Answer(entry.status.or(unfinished).unwrap_or(Status::SUCCESS))
}

/// Takes back one of the last begun pieces, of `blocks` blocks, because the device had no room for
/// it: it is to be begun again.
pub(crate) fn put_back(entry: &mut Slot, blocks: u32) {
    if let Some(paid) = &mut entry.parts.paid_blocks {
        *paid = PaidBlocks::new(paid.get() + blocks);
    }
    let mut left = u64::from(blocks);
    while left > 0 {
        if entry.range.lba == 0 {
            let Some((next, data)) = entry
                .parts
                .next
                .checked_sub(1)
                .zip(entry.transfer.data.as_ref())
            else {
                return;
            };
            entry.range.lba = range(data, next).blocks.into();
            entry.parts.next = next;
        }
        let back = left.min(entry.range.lba);
        entry.range.lba -= back;
        left -= back;
    }
}

/// Returns true while there are pieces to begin.
pub(crate) fn is_open(entry: &Slot) -> bool {
    entry.parts.next < entry.range.blocks && entry.status.is_none()
}
