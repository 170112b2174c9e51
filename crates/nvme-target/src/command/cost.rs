//! The tokens that a command costs. `[ReFlex §3.2]`

use crate::command::dataset;
use crate::request::{Kind, Slot};
use qos::PricedOperation;

/// Returns the operation that a command is priced as, and its bytes, on a device with blocks of
/// 2^`block_shift` bytes. A device that is not `thin` writes zeroes to deallocate.
pub(crate) fn of(entry: &Slot, block_shift: u32, thin: bool) -> (PricedOperation, u64) {
    let bytes = u64::from(entry.range.blocks) << block_shift;
    match entry.kind {
        Kind::Read | Kind::Admin | Kind::Barrier => (PricedOperation::Read, bytes),
        Kind::Write => (PricedOperation::Write, bytes),
        Kind::Compare => (PricedOperation::Compare, bytes),
        Kind::Verify => (PricedOperation::Verify, bytes),
        Kind::WriteZeroes => (PricedOperation::WriteZeroes, bytes),
        Kind::Flush | Kind::Shutdown => (PricedOperation::Flush, 0),
        // The other attributes of ranges are hints, which no device sees.
        Kind::Dataset if !entry.range.deallocate => (PricedOperation::Read, 0),
        Kind::Dataset => {
            let ranges = entry.transfer.data.as_ref();
            let blocks = ranges.map_or(0, |data| dataset::blocks_named(data, entry.range.blocks));
            let operation = if thin {
                PricedOperation::Deallocate
            } else {
                PricedOperation::WriteZeroes
            };
            (operation, blocks << block_shift)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::BlockRange;
    use reactor::{IoSlice, Memory, Region};
    use wire::nvme::io::DatasetRange;

    /// It was charged as giving space back where the device had to write zeroes.
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
        entry.kind = Kind::Dataset;
        entry.range = BlockRange {
            deallocate: true,
            blocks: 1,
            ..BlockRange::default()
        };
        entry.transfer.data = Some(IoSlice::new(Memory::Region(region), 0, 4096));
        let bytes = 100 * 4096;
        assert_eq!(of(&entry, 12, true), (PricedOperation::Deallocate, bytes));
        assert_eq!(of(&entry, 12, false), (PricedOperation::WriteZeroes, bytes));
    }
}
