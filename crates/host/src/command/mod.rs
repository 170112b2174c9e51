//! A block request as NVMe commands. `[NVMe NVM 1.0 §3.2]`
//!
//! The command table keeps this part of a request: enough to make its current command, to repeat
//! it, and to advance to the next command if the request takes several.

pub(crate) mod apart;
pub(crate) mod exchange;
pub(crate) mod extents;
pub(crate) mod table;

use crate::info::Parameters;
use crate::recovery::span::Span;
use base::units::Lba;
use block::{Geometry, Operation};
use std::num::NonZeroU16;
use wire::limits::BLOCKS_PER_COMMAND_MAX;
use wire::nvme::io::{DatasetRange, LbaControl};
use wire::nvme::{Command, DatasetManagement, IoOpcode, LbaCommand};

/// The part of a block request that outlives one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRequest {
    pub(crate) operation: Operation,
    pub(crate) nsid: u32,
    /// The namespace's number in its channel: an NSID may come to name another volume.
    pub(crate) namespace: u16,
    /// The range of the current command.
    pub(crate) lba: Lba,
    pub(crate) blocks: u32,
    /// Blocks before the current command that are done.
    pub(crate) blocks_done: u32,
    /// Blocks after the current command that further commands must cover.
    pub(crate) blocks_left: u32,
    /// The data belongs to the command, not to the submitter.
    pub(crate) private_data: bool,
    /// Number in its channel of the command over extents to which this extent belongs; `None` for
    /// an ordinary request.
    pub(crate) extent_of: Option<NonZeroU16>,
}

impl BlockRequest {
    /// Returns true if the command covers the whole request, its data is the submitter's, and its
    /// success needs no further check.
    #[inline]
    pub(crate) fn is_plain_end(&self) -> bool {
        let is_part = self.blocks_done | self.blocks_left != 0;
        let is_own = !self.private_data && self.extent_of.is_none();
        !is_part && is_own && self.operation != Operation::Flush
    }

    /// Returns true if its effect may stay in a volatile write cache until a Flush.
    #[inline]
    pub(crate) fn is_cached(&self) -> bool {
        use Operation::{Deallocate, Write, WriteZeroes};
        matches!(
            self.operation,
            Write { durable: false } | WriteZeroes { durable: false, .. } | Deallocate
        )
    }

    /// Returns the state of a Flush: its mark, and the losses that its channel had reported before.
    /// Stored in place of the range, which a Flush does not have.
    pub(crate) fn promise(&self) -> (u64, u32) {
        (self.lba.0, self.blocks)
    }

    /// Sets the state of a Flush.
    pub(crate) fn set_promise(&mut self, mark: u64, reported: u32) {
        (self.lba, self.blocks) = (Lba(mark), reported);
    }

    /// Advances to the next part of a request that one command cannot cover.
    pub(crate) fn advance(&mut self, geometry: Geometry, parameters: &Parameters) {
        let step = self.fits(geometry, parameters).min(self.blocks_left);
        self.lba = Lba(self.lba.0 + u64::from(self.blocks));
        self.blocks_done += self.blocks;
        self.blocks = step;
        self.blocks_left -= step;
    }

    /// Returns the most blocks of one command of this kind.
    fn fits(&self, geometry: Geometry, parameters: &Parameters) -> u32 {
        let lengths = &parameters.lengths;
        let blocks = |bytes: u64| {
            let blocks = bytes / u64::from(geometry.block_bytes);
            u32::try_from(blocks).map_or(BLOCKS_PER_COMMAND_MAX, |b| b.min(BLOCKS_PER_COMMAND_MAX))
        };
        let fits = match self.operation {
            Operation::WriteZeroes { .. } => blocks(lengths.write_zeroes_bytes),
            Operation::Verify => blocks(lengths.verify_bytes),
            Operation::Deallocate => lengths.deallocate_blocks,
            Operation::Flush => u32::MAX,
            _ => blocks(u64::from(parameters.max_transfer_bytes)),
        };
        fits.max(1)
    }

    /// Shortens the command to the controller's limits; further commands cover the remainder.
    pub(crate) fn shorten(&mut self, geometry: Geometry, parameters: &Parameters) {
        let over = self.blocks.saturating_sub(self.fits(geometry, parameters));
        self.blocks -= over;
        self.blocks_left += over;
    }

    /// Covers the range of the request again from the start, with nothing done.
    pub(crate) fn restart(&mut self) {
        let done = std::mem::take(&mut self.blocks_done);
        self.lba = Lba(self.lba.0 - u64::from(done));
        self.blocks += done + std::mem::take(&mut self.blocks_left);
    }

    /// Returns the blocks of the request, whichever part the command is.
    pub(crate) fn span(&self) -> Span {
        let mut whole = *self;
        whole.restart();
        Span {
            nsid: self.nsid,
            start: whole.lba.0,
            end: whole.lba.0 + u64::from(whole.blocks),
        }
    }

    /// The one-entry range list that Dataset Management carries as data.
    pub(crate) fn range(&self) -> DatasetRange {
        DatasetRange {
            attributes: 0,
            blocks: self.blocks,
            slba: self.lba.0,
        }
    }

    /// The command for the current part.
    #[inline]
    pub(crate) fn command(&self) -> Command {
        let (opcode, control) = match self.operation {
            Operation::Read => (IoOpcode::READ, LbaControl(0)),
            Operation::Write { durable } => (IoOpcode::WRITE, fua(durable)),
            Operation::Compare => (IoOpcode::COMPARE, LbaControl(0)),
            Operation::Verify => (IoOpcode::VERIFY, LbaControl(0)),
            Operation::WriteZeroes {
                deallocate,
                durable,
            } => {
                let hole = if deallocate {
                    LbaControl::DEALLOCATE
                } else {
                    LbaControl(0)
                };
                (IoOpcode::WRITE_ZEROES, fua(durable).with(hole))
            }
            Operation::Flush => {
                let mut flush = Command::new(IoOpcode::FLUSH.0, 0);
                flush.set_nsid(self.nsid);
                return flush;
            }
            Operation::Deallocate => {
                let deallocate = DatasetManagement {
                    nsid: self.nsid,
                    ranges: 1,
                    deallocate: true,
                    integral_write: false,
                    integral_read: false,
                };
                return deallocate.encode(0);
            }
        };
        let command = LbaCommand {
            nsid: self.nsid,
            slba: self.lba.0,
            blocks: self.blocks,
            control,
            dataset_hints: 0,
        };
        command.encode(opcode, 0)
    }
}

const fn fua(durable: bool) -> LbaControl {
    if durable {
        LbaControl::FORCE_UNIT_ACCESS
    } else {
        LbaControl(0)
    }
}
