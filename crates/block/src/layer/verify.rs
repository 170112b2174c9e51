//! Keeps a checksum of every block written through it, on any core, and returns
//! [`BlockError::Corrupt`] if other content is read back.
//!
//! A block that was never written through the layer, or whose last write failed, is unknown and not
//! checked. While a write to a block is in flight, a read may return the old or the new content,
//! and of two writes in flight either may be the last to take effect; so a block is not checked
//! while it is written, and is unknown after overlapping writes. The checksums have 31 bits: one
//! corruption in 2³¹ is not detected. Compare and Verify are left to the device.
//!
//! It takes 4.5 bytes of memory per block, and time in proportion to the blocks of a request, also
//! for requests without data.

use super::below::{Ended, Layer, LayerDevice};
use crate::device::{Capabilities, Device, DeviceError, Geometry, check};
use crate::limits::VERIFY_BLOCKS_MAX;
use crate::request::{BlockError, Completion, Operation, Request};
use base::Time;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use reactor::{Driver, IoSlice};
use std::fmt;
use std::ops::Range;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of adjacent blocks that share a counter of changes.
const STRIPE_BLOCKS: usize = 8;

/// States of a block's cell. Any other value is the block's checksum.
const UNKNOWN: u32 = 0;
/// One write is in flight.
const WRITING: u32 = 1 << 31;
/// Several overlapping writes are in flight; the lower bits are their number.
const CONTESTED: u32 = WRITING | 1 << 30;

/// Returns the checksum of a block's bytes, mapped to a value that is none of the states above.
fn checksum(bytes: &[u8]) -> u32 {
    (crc32c::crc32c(bytes) & !WRITING).max(1)
}

/// The checksums of all blocks.
struct Table {
    cells: Vec<AtomicU32>,
    /// Number of begun and ended writes of each stripe.
    changes: Vec<AtomicU32>,
    /// Checksum of a block of zeroes.
    zero: u32,
}

impl Table {
    fn new(geometry: Geometry) -> Result<Self, DeviceError> {
        let blocks = geometry.blocks;
        let count = usize::try_from(blocks)
            .ok()
            .filter(|_| blocks <= VERIFY_BLOCKS_MAX);
        let Some(count) = count else {
            return Err(DeviceError::Invalid(format!(
                "{blocks} blocks exceed the limit of {VERIFY_BLOCKS_MAX} for checksums; use larger \
                 blocks, a smaller device, or no verify layer"
            )));
        };
        let cells = |count| (0..count).map(|_| AtomicU32::new(UNKNOWN)).collect();
        Ok(Self {
            cells: cells(count),
            changes: cells(count.div_ceil(STRIPE_BLOCKS)),
            zero: checksum(&vec![0; geometry.block_bytes as usize]),
        })
    }

    /// Copies the checksums of the blocks that both tables have.
    fn copy_from(&self, other: &Self) {
        for (cell, other) in self.cells.iter().zip(&other.cells) {
            let sum = other.load(Ordering::Relaxed);
            cell.store(
                if sum & WRITING == 0 { sum } else { UNKNOWN },
                Ordering::Relaxed,
            );
        }
    }

    /// Marks the beginning of a write to the blocks.
    fn begin(&self, range: Range<usize>) {
        for block in range {
            self.count_change(block);
            self.update(block, |cell| match cell {
                _ if cell & WRITING == 0 => WRITING,
                WRITING => CONTESTED + 2,
                contested => contested + 1,
            });
        }
        // A thread that reads data written from here on also sees this mark: a device may copy
        // memory in any order.
        fence(Ordering::Release);
    }

    /// Marks the end of a write to one block; `sum` is the checksum of its content, if known.
    fn end(&self, block: usize, sum: Option<u32>) {
        self.count_change(block);
        self.update(block, |cell| match cell {
            WRITING => sum.unwrap_or(UNKNOWN),
            _ if cell == CONTESTED + 1 => UNKNOWN,
            _ if cell > CONTESTED => cell - 1,
            // A write ends only after it began.
            other => other,
        });
    }

    fn update(&self, block: usize, change: impl Fn(u32) -> u32) {
        let done = self.cells[block].fetch_update(Ordering::AcqRel, Ordering::Acquire, |cell| {
            Some(change(cell))
        });
        debug_assert!(done.is_ok(), "the change never declines");
    }

    /// Counts a change before the cell changes, so that a thread that sees the new cell sees the
    /// new count.
    fn count_change(&self, block: usize) {
        self.changes[block / STRIPE_BLOCKS].fetch_add(1, Ordering::AcqRel);
    }

    /// Returns a number that changes whenever a write to one of these blocks begins or ends.
    fn changes(&self, range: &Range<usize>) -> u64 {
        let stripes = range.start / STRIPE_BLOCKS..range.end.div_ceil(STRIPE_BLOCKS);
        let counts = self.changes[stripes].iter();
        counts
            .map(|count| u64::from(count.load(Ordering::Acquire)))
            .sum()
    }

    /// Returns true if a block that was read with this checksum differs from the last write.
    fn differs(&self, block: usize, sum: u32) -> bool {
        // Orders the read of the device before the read of the cell, as `begin` orders its mark
        // before the write.
        fence(Ordering::Acquire);
        let cell = self.cells[block].load(Ordering::Acquire);
        cell != UNKNOWN && cell & WRITING == 0 && cell != sum
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("blocks", &self.cells.len())
            .finish_non_exhaustive()
    }
}

/// A device with content checks.
#[derive(Debug)]
pub struct Verify {
    inner: Arc<dyn Device>,
    table: Mutex<Arc<Table>>,
}

impl Verify {
    /// Adds checks to `inner`; its blocks are unknown at first.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a device of more than [`VERIFY_BLOCKS_MAX`] blocks.
    pub fn new(inner: Arc<dyn Device>) -> Result<Self, DeviceError> {
        let table = Table::new(inner.geometry())?;
        Ok(Self {
            inner,
            table: Mutex::new(Arc::new(table)),
        })
    }

    fn table(&self) -> Arc<Table> {
        // The table is replaced as a whole, so poisoning does no harm.
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LayerDevice for Verify {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    type Layer = VerifyLayer;

    fn layer(&self, _: &mut dyn Driver) -> VerifyLayer {
        let table = self.table();
        // The size may have changed below; a block without a cell is not checked.
        let blocks = self.geometry().blocks.min(table.cells.len() as u64);
        VerifyLayer {
            geometry: Geometry {
                blocks,
                ..self.geometry()
            },
            capabilities: self.capabilities(),
            table,
        }
    }

    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        let table = Table::new(Geometry {
            blocks,
            ..self.geometry()
        })?;
        self.inner.resize(blocks)?;
        table.copy_from(&self.table());
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        Ok(())
    }

    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.erase(offset, len)?;
        let table = self.table();
        let block = u64::from(self.geometry().block_bytes);
        let index = |block| usize::try_from(block).unwrap_or(usize::MAX);
        let mark = |range: Range<u64>, sum| {
            let range = index(range.start)..index(range.end).min(table.cells.len());
            for cell in table.cells.get(range).unwrap_or_default() {
                cell.store(sum, Ordering::Relaxed);
            }
        };
        let end = offset + len;
        mark(offset / block..end.div_ceil(block), UNKNOWN);
        mark(offset.div_ceil(block)..end / block, table.zero);
        Ok(())
    }
}

/// The layer's record of a request in flight.
#[derive(Clone, Debug)]
pub(super) enum Note {
    /// Its data is checked if the blocks did not change meanwhile.
    Read { range: Range<usize>, changes: u64 },
    /// Its data is the content of the blocks afterwards.
    Write { range: Range<usize> },
    /// The blocks are zero afterwards.
    Zero { range: Range<usize> },
    /// A request without an effect on content.
    Other,
}

/// The state of the layer in one core's channel.
#[derive(Debug)]
pub(super) struct VerifyLayer {
    geometry: Geometry,
    capabilities: Capabilities,
    table: Arc<Table>,
}

impl VerifyLayer {
    /// Creates the record of a request, and marks the beginning of its write.
    fn note(&self, request: &Request) -> Note {
        if request.operation == Operation::Flush
            || check(request, self.geometry, self.capabilities).is_err()
        {
            return Note::Other;
        }
        let index = |number| usize::try_from(number).expect("the range lies within the table");
        let range = index(request.lba.0)..index(request.lba.0 + u64::from(request.blocks));
        if request.operation.is_write() {
            self.table.begin(range.clone());
        }
        match request.operation {
            Operation::Read => Note::Read {
                changes: self.table.changes(&range),
                range,
            },
            Operation::Write { .. } => Note::Write { range },
            Operation::WriteZeroes { .. } | Operation::Deallocate => Note::Zero { range },
            Operation::Flush | Operation::Compare | Operation::Verify => Note::Other,
        }
    }

    /// Stores the checksums of a completed write, or checks a completed read.
    fn finish(&self, note: Note, completion: &mut Completion) {
        let block_bytes = self.geometry.block_bytes as usize;
        let (ok, data) = (completion.result.is_ok(), completion.data.as_ref());
        match note {
            Note::Other => {}
            Note::Write { range } => {
                for (index, block) in range.enumerate() {
                    let data = data.filter(|_| ok);
                    let sum =
                        data.map(|data| block_checksum(data, index * block_bytes, block_bytes));
                    self.table.end(block, sum);
                }
            }
            Note::Zero { range } => {
                for block in range {
                    self.table.end(block, ok.then_some(self.table.zero));
                }
            }
            Note::Read { range, changes } => {
                let Some(data) = data.filter(|_| ok) else {
                    return;
                };
                let differs = range.clone().enumerate().any(|(index, block)| {
                    let sum = block_checksum(data, index * block_bytes, block_bytes);
                    self.table.differs(block, sum)
                });
                if differs && self.table.changes(&range) == changes {
                    completion.result = Err(BlockError::Corrupt);
                }
            }
        }
    }
}

fn block_checksum(data: &IoSlice, at: usize, len: usize) -> u32 {
    if let Some(bytes) = data.bytes() {
        return checksum(&bytes[at..at + len]);
    }
    // Size of the largest block.
    let mut block = [0; 4096];
    let block = &mut block[..len];
    data.copy_out(at, block);
    checksum(block)
}

impl Layer for VerifyLayer {
    type Note = Note;

    fn begin(&mut self, request: &mut Request) -> Result<Note, BlockError> {
        Ok(self.note(request))
    }

    fn undo(&mut self, note: Note, _: &mut Request) {
        // Nothing was written, but the mark has replaced the checksums.
        if let Note::Write { range } | Note::Zero { range } = note {
            range.for_each(|block| self.table.end(block, None));
        }
    }

    fn end(&mut self, note: Note, mut completion: Completion, _: Time) -> Ended {
        self.finish(note, &mut completion);
        Ended::Now(completion)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new(Geometry {
            block_bytes: 512,
            blocks: 32,
        })
        .expect("a small table")
    }

    #[test]
    fn a_block_is_unknown_until_a_write_that_was_alone_succeeded() {
        let table = table();
        assert!(!table.differs(3, 7));
        table.begin(3..4);
        assert!(!table.differs(3, 7), "in flight");
        table.end(3, Some(5));
        assert!(table.differs(3, 7) && !table.differs(3, 5));
        table.begin(3..4);
        table.end(3, None);
        assert!(!table.differs(3, 7), "the write failed");
    }

    #[test]
    fn after_overlapping_writes_nobody_knows_who_won() {
        let table = table();
        table.begin(3..4);
        table.begin(3..4);
        table.end(3, Some(5));
        assert!(!table.differs(3, 7));
        table.begin(3..4);
        table.end(3, Some(6));
        table.end(3, Some(7));
        assert!(!table.differs(3, 1), "three in a chain");
        table.begin(3..4);
        table.end(3, Some(8));
        assert!(table.differs(3, 1), "the next one is alone again");
    }

    #[test]
    fn changes_of_a_range_are_seen_and_others_are_not() {
        let table = table();
        let before = table.changes(&(4..9));
        table.begin(20..21);
        assert_eq!(table.changes(&(4..9)), before);
        table.begin(8..9);
        assert_ne!(table.changes(&(4..9)), before);
    }

    #[test]
    fn sums_are_never_mistaken_for_states() {
        for seed in 0..1_000u32 {
            let sum = checksum(&seed.to_le_bytes());
            assert!(sum != UNKNOWN && sum & WRITING == 0);
        }
    }
}

/// Run by `scripts/test --all`.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::thread;

    const OLD: u32 = 5;

    /// A table of one block that holds `OLD`, and the block on a device that copies memory in any
    /// order.
    fn written() -> (Arc<Table>, Arc<AtomicU32>) {
        let geometry = Geometry {
            block_bytes: 512,
            blocks: 1,
        };
        let table = Table::new(geometry).unwrap();
        table.begin(0..1);
        table.end(0, Some(OLD));
        (Arc::new(table), Arc::new(AtomicU32::new(OLD)))
    }

    fn write(table: &Table, device: &AtomicU32, new: u32) {
        table.begin(0..1);
        device.store(new, Ordering::Relaxed);
        table.end(0, Some(new));
    }

    /// Returns true if the layer reports the data that it reads as corrupt.
    fn is_corrupt(table: &Table, device: &AtomicU32) -> bool {
        let changes = table.changes(&(0..1));
        let sum = device.load(Ordering::Relaxed);
        table.differs(0, sum) && table.changes(&(0..1)) == changes
    }

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        // More preemptions take minutes.
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    #[test]
    fn loom_a_read_beside_writes_is_not_called_corrupt() {
        check(|| {
            let (table, device) = written();
            let reader = {
                let (table, device) = (Arc::clone(&table), Arc::clone(&device));
                thread::spawn(move || is_corrupt(&table, &device))
            };
            write(&table, &device, 6);
            write(&table, &device, 7);
            assert!(!reader.join().unwrap());
            assert!(table.differs(0, OLD) && !table.differs(0, 7));
        });
    }

    #[test]
    fn loom_writes_beside_each_other_leave_no_sum_that_another_one_overwrote() {
        check(|| {
            let (table, device) = written();
            let writer = {
                let (table, device) = (Arc::clone(&table), Arc::clone(&device));
                thread::spawn(move || write(&table, &device, 6))
            };
            write(&table, &device, 7);
            writer.join().unwrap();
            assert!(!is_corrupt(&table, &device));
            device.store(OLD, Ordering::Relaxed);
            let known = table.cells[0].load(Ordering::Relaxed) != UNKNOWN;
            assert_eq!(is_corrupt(&table, &device), known);
        });
    }
}
