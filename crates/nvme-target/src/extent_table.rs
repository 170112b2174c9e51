//! The extents of a Read or Write with several extents, and their data, as kept by a slot.

use base::mutation::{self, Mutation};
use block::Extent;
use qos::units;
use reactor::IoSlice;
use wire::nvme::{ExtentsCommand, Status, done_extents};

/// The extents of a command, and their data.
#[derive(Debug)]
pub(crate) struct ExtentTable {
    /// The command that announced the table.
    pub(crate) command: ExtentsCommand,
    /// The entries, in order; empty before the table has arrived, and while the device has them.
    pub(crate) extents: Vec<Extent>,
    /// Binary logarithm of the block size in bytes.
    pub(crate) block_shift: u32,
    /// The first failed extent, and its status.
    pub(crate) failed: Option<(u64, Status)>,
    /// For a failed read: the number of extents whose data is sent with the answer.
    pub(crate) sent: usize,
    /// Completed extents, one bit each.
    done: u64,
}

/// Unused tables, up to the largest number used at a time.
#[derive(Debug, Default)]
#[expect(
    clippy::vec_box,
    reason = "slots are small, and the boxes themselves are used again"
)]
pub(crate) struct TablePool(Vec<Box<ExtentTable>>);

impl TablePool {
    /// Returns an empty table for a command.
    pub(crate) fn take(&mut self, command: ExtentsCommand) -> Box<ExtentTable> {
        let spare = self.0.pop();
        let mut table = spare.unwrap_or_else(|| {
            Box::new(ExtentTable {
                command,
                extents: Vec::new(),
                block_shift: 0,
                failed: None,
                sent: 0,
                done: 0,
            })
        });
        table.command = command;
        table.failed = None;
        (table.sent, table.done) = (0, 0);
        table
    }

    /// Takes a table back; the memory of its data has been freed.
    pub(crate) fn give_back(&mut self, mut table: Box<ExtentTable>) {
        table.extents.clear();
        self.0.push(table);
    }
}

impl ExtentTable {
    /// Returns the block after the last extent; 0 before the table has arrived.
    pub(crate) fn end(&self) -> u64 {
        let last = self.extents.last();
        last.map_or(0, |extent| extent.lba.0 + u64::from(extent.blocks))
    }

    /// Returns the units of the command's price: the sum over its extents.
    pub(crate) fn units(&self) -> u32 {
        let bytes = |extent: &Extent| u64::from(extent.blocks) << self.block_shift;
        let each = self.extents.iter().map(|extent| units(bytes(extent)));
        each.fold(0, u32::saturating_add)
    }

    /// Returns the bytes of the extent with this index.
    fn length(&self, at: usize) -> usize {
        (self.extents[at].blocks as usize) << self.block_shift
    }

    /// Returns the bytes of each extent.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.extents.len()).map(|at| self.length(at))
    }

    /// Gets a buffer for the data of each extent by `take`, which returns a buffer and its bytes of
    /// the core's pool. Returns the bytes of all buffers; `None` if there are too few, and then
    /// none is taken.
    pub(crate) fn take_buffers(
        &mut self,
        take: impl Fn(usize) -> Option<(IoSlice, u32)>,
    ) -> Option<u32> {
        let mut held = 0;
        for at in 0..self.extents.len() {
            let length = self.length(at);
            let Some((data, bytes)) = take(length) else {
                self.drop_data();
                return None;
            };
            self.extents[at].data = Some(data);
            held += bytes;
        }
        Some(held)
    }

    /// Drops the data of all extents.
    pub(crate) fn drop_data(&mut self) {
        for extent in &mut self.extents {
            extent.data = None;
        }
    }

    /// Removes and returns the data of all extents, in order.
    pub(crate) fn take_data(&mut self) -> impl ExactSizeIterator<Item = Option<IoSlice>> + '_ {
        self.extents.iter_mut().map(|extent| extent.data.take())
    }

    /// Returns the bytes of the first `first` extents.
    pub(crate) fn bytes_of(&self, first: usize) -> u32 {
        let blocks = self.extents.iter().take(first).map(|extent| extent.blocks);
        blocks.sum::<u32>() << self.block_shift
    }

    /// Returns the completion's result if `first` is the first failed extent: its index, or if the
    /// host requested outcomes, the completed extents; for a read, those whose data is sent.
    pub(crate) fn outcome(&mut self, reads: bool, first: u64) -> u64 {
        if !self.command.outcomes {
            return first;
        }
        if mutation::active(Mutation::ExtentFailureHidden) {
            return done_extents(self.extents.iter().map(|_| true));
        }
        if !reads {
            return self.done;
        }
        self.sent = usize::try_from(first).expect("an index in the table");
        done_extents((0..self.sent).map(|_| true))
    }

    /// Records the outcome of an extent.
    pub(crate) fn note(&mut self, index: u64, status: Status) {
        let bit = 1_u64.checked_shl(u32::try_from(index).unwrap_or(u32::MAX));
        if status.is_success() {
            self.done |= bit.unwrap_or(0);
        } else {
            self.done &= !bit.unwrap_or(0);
        }
        let first = self.failed.is_none_or(|(before, _)| index < before);
        if !status.is_success() && first {
            self.failed = Some((index, status));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::units::Lba;
    use reactor::{BufferClass, BufferPool};

    fn table(outcomes: bool) -> ExtentTable {
        let command = ExtentsCommand {
            nsid: 1,
            extents: 3,
            blocks: 3,
            fua: false,
            outcomes,
        };
        let mut table = *TablePool::default().take(command);
        let extent = |lba| Extent {
            tag: 0,
            lba: Lba(lba),
            blocks: 1,
            data: None,
            result: Ok(()),
        };
        table.extents = [0, 8, 16].map(extent).into();
        table.block_shift = 12;
        table
    }

    /// Devices complete extents in any order, and may report a failure for an extent that they
    /// reported as successful before.
    #[test]
    fn the_first_extent_that_failed_is_told_whatever_ends_first() {
        let (failed, late) = (Status::WRITE_FAULT, Status::INTERNAL_ERROR);
        let mut table = table(true);
        table.note(0, Status::SUCCESS);
        table.note(2, late);
        table.note(1, failed);
        assert_eq!(table.failed, Some((1, failed)));
        assert_eq!(table.outcome(false, 1), done_extents([true, false, false]));
        table.note(0, failed);
        assert_eq!(table.failed, Some((0, failed)));
        assert_eq!(table.outcome(false, 0), 0);
    }

    #[test]
    fn a_table_takes_buffers_for_all_its_extents_or_none() {
        for count in [2, 3] {
            let class = BufferClass { bytes: 4096, count };
            let pool = BufferPool::new(&[class]).expect("some KiB");
            let take = |bytes| {
                let buffer = pool.take(bytes)?;
                Some((IoSlice::from_buffer(buffer, bytes), 4096))
            };
            let mut table = table(false);
            let held = table.take_buffers(take);
            assert_eq!(held, (count == 3).then_some(3 * 4096));
            assert_eq!(pool.free(0), if count == 3 { 0 } else { 2 });
            table.drop_data();
            assert_eq!(pool.free(0), count);
        }
    }
}
