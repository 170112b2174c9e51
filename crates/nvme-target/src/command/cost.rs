//! The token cost of a command. `[ReFlex §3.2]`

use crate::command::dataset;
use crate::request::Slot;
use qos::{PricedOperation, units};

/// Returns the operation and units that a command is priced as, on a device with blocks of
/// 2^`block_shift` bytes. A command with a list of ranges is priced for the blocks that it pays for
/// next. A device that is not `thin` writes zeroes to deallocate.
pub(crate) fn of(entry: &Slot, block_shift: u32, thin: bool) -> (PricedOperation, u32) {
    let (operation, bytes) = of_bytes(entry, block_shift, thin);
    let paid = entry.parts.paid_blocks;
    let bytes = paid.map_or(bytes, |blocks| u64::from(blocks.get()) << block_shift);
    let extents = entry.extents.as_ref();
    let units = extents.map_or_else(|| units(bytes), |table| table.units());
    (operation, units)
}

/// Returns the bytes that a device works on for a command without a buffer.
pub(crate) fn bytes_without_buffer(entry: &Slot, block_shift: u32) -> u64 {
    if entry.works_without_buffer() {
        of_bytes(entry, block_shift, true).1
    } else {
        0
    }
}

/// Returns the operation that a command is priced as, and its bytes.
fn of_bytes(entry: &Slot, block_shift: u32, thin: bool) -> (PricedOperation, u64) {
    let price = match (entry.kind.row().price, entry.operation()) {
        (PricedOperation::Flush, _) => return (PricedOperation::Flush, 0),
        // Hints only: the device gets no request.
        (PricedOperation::Deallocate, None) => return (PricedOperation::Read, 0),
        (PricedOperation::Deallocate, _) if !thin => PricedOperation::WriteZeroes,
        (price, _) => price,
    };
    let blocks = if entry.range.listed {
        let ranges = entry.transfer.data.as_ref();
        ranges.map_or(0, |data| dataset::blocks_named(data, entry.range.blocks))
    } else {
        entry.range.blocks.into()
    };
    (price, blocks << block_shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table::CommandKind;
    use crate::extent_table::TablePool;
    use crate::request::BlockRange;
    use base::units::Lba;
    use block::Extent;
    use reactor::{IoSlice, Memory, Region};
    use wire::nvme::ExtentsCommand;
    use wire::nvme::io::DatasetRange;

    /// Regression: it was charged as a deallocation although the device had to write zeroes.
    #[test]
    fn a_device_that_writes_zeroes_to_deallocate_is_charged_for_writing() {
        let range = DatasetRange {
            attributes: 0,
            blocks: 100,
            slba: 7,
        };
        let region = Region::new(4096).expect("a page").handle();
        region.copy_in(0, &range.to_bytes());
        let mut entry = Slot::default();
        entry.kind = CommandKind::Dataset;
        entry.range = BlockRange {
            listed: true,
            deallocate: true,
            blocks: 1,
            ..BlockRange::default()
        };
        entry.transfer.data = Some(IoSlice::new(Memory::Region(region), 0, 4096));
        assert_eq!(of(&entry, 12, true), (PricedOperation::Deallocate, 100));
        assert_eq!(of(&entry, 12, false), (PricedOperation::WriteZeroes, 100));
        entry.kind = CommandKind::WriteZeroes;
        assert_eq!(of(&entry, 12, true), (PricedOperation::WriteZeroes, 100));
        entry.kind = CommandKind::Verify;
        assert_eq!(of(&entry, 12, true), (PricedOperation::Verify, 100));
    }

    #[test]
    fn extents_cost_what_they_cost_one_by_one() {
        let mut pool = TablePool::default();
        let mut table = pool.take(ExtentsCommand {
            nsid: 1,
            extents: 3,
            blocks: 11,
            fua: false,
            outcomes: false,
        });
        table.block_shift = 9;
        for (lba, blocks) in [(0, 1), (5, 1), (8, 9)] {
            table.extents.push(Extent {
                tag: 0,
                lba: Lba(lba),
                blocks,
                data: None,
                result: Ok(()),
            });
        }
        let mut entry = Slot::default();
        entry.kind = CommandKind::WriteExtents;
        entry.extents = Some(table);
        assert_eq!(of(&entry, 9, true), (PricedOperation::Write, 1 + 1 + 2));
    }
}
