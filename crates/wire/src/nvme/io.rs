//! I/O commands of the NVM command set.
//!
//! `[NVMe NVM 1.0 §3.2]`. Read, Write, Compare, Verify and Write Zeroes have their block range in
//! the same dwords, so they share [`LbaCommand`]; the opcode distinguishes them.

use crate::bytes::{low16, u32_at, u64_at};
use crate::limits::{BLOCKS_PER_COMMAND_MAX, DATASET_RANGES_MAX};
use crate::nvme::command::Command;
use crate::nvme::opcode::IoOpcode;

/// A command on a range of logical blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LbaCommand {
    /// NSID.
    pub nsid: u32,
    /// SLBA: the first block.
    pub slba: u64,
    /// NLB, one-based: 1 to 65,536 blocks.
    pub blocks: u32,
    /// Bits 31:16 of dword 12; see the accessors.
    pub control: LbaControl,
    /// DSM, bits 7:0 of dword 13 of Read and Write: hints about the access pattern.
    pub dataset_hints: u8,
}

/// Bits 31:16 of dword 12 of a block command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LbaControl(pub u16);

impl LbaControl {
    /// LR: limited effort to recover data.
    pub const LIMITED_RETRY: Self = Self(1 << 15);
    /// FUA: completes after the data is on the medium.
    pub const FORCE_UNIT_ACCESS: Self = Self(1 << 14);
    /// DEAC, Write Zeroes only: the blocks may be deallocated.
    pub const DEALLOCATE: Self = Self(1 << 9);

    /// Returns true if every bit of `other` is set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of the bits.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// FUA.
    #[inline]
    pub const fn fua(self) -> bool {
        self.contains(Self::FORCE_UNIT_ACCESS)
    }

    /// LR.
    #[inline]
    pub const fn limited_retry(self) -> bool {
        self.contains(Self::LIMITED_RETRY)
    }

    /// DEAC.
    #[inline]
    pub const fn deallocate(self) -> bool {
        self.contains(Self::DEALLOCATE)
    }

    /// PRINFO: PRACT in bit 3, the three PRCHK bits below.
    #[inline]
    pub const fn protection_information(self) -> u8 {
        ((self.0 >> 10) & 0b1111) as u8
    }

    /// PRACT.
    #[inline]
    pub const fn protection_action(self) -> bool {
        self.protection_information() & 0b1000 != 0
    }
}

impl LbaCommand {
    /// Parses the dwords of a command with a block range; any command is valid.
    #[inline]
    pub fn parse(command: &Command) -> Self {
        let cdw12 = command.cdw(12);
        Self {
            nsid: command.nsid(),
            slba: command.cdw64(10),
            blocks: u32::from(low16(cdw12)) + 1,
            control: LbaControl(low16(cdw12 >> 16)),
            dataset_hints: (command.cdw(13) & 0xff) as u8,
        }
    }

    /// Encodes the command with this opcode; the caller sets its data pointer.
    ///
    /// # Panics
    ///
    /// If `blocks` is not 1 to 65,536.
    #[inline]
    pub fn encode(&self, opcode: IoOpcode, cid: u16) -> Command {
        assert!(self.blocks >= 1);
        assert!(self.blocks <= BLOCKS_PER_COMMAND_MAX);
        let mut command = Command::new(opcode.0, cid);
        command.set_nsid(self.nsid);
        command.set_cdw64(10, self.slba);
        command.set_cdw(12, (self.blocks - 1) | (u32::from(self.control.0) << 16));
        command.set_cdw(13, u32::from(self.dataset_hints));
        command
    }

    /// Returns the block after the last; `None` on overflow.
    #[inline]
    pub const fn end(&self) -> Option<u64> {
        self.slba.checked_add(self.blocks as u64)
    }
}

/// Dataset Management. The ranges are the command's data. `[NVMe NVM 1.0 §3.2.3]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatasetManagement {
    /// NSID.
    pub nsid: u32,
    /// NR, one-based: 1 to 256 ranges.
    pub ranges: u16,
    /// AD: deallocate the ranges.
    pub deallocate: bool,
    /// IDW: the ranges will be written as a unit.
    pub integral_write: bool,
    /// IDR: the ranges will be read as a unit.
    pub integral_read: bool,
}

impl DatasetManagement {
    /// Parses the command dwords.
    pub fn parse(command: &Command) -> Self {
        let attributes = command.cdw(11);
        Self {
            nsid: command.nsid(),
            ranges: low16(command.cdw(10) & 0xff) + 1,
            integral_read: attributes & 1 != 0,
            integral_write: attributes & 2 != 0,
            deallocate: attributes & 4 != 0,
        }
    }

    /// Encodes the command; the caller sets its data pointer.
    ///
    /// # Panics
    ///
    /// If `ranges` is not 1 to 256.
    pub fn encode(&self, cid: u16) -> Command {
        assert!(self.ranges >= 1);
        assert!(usize::from(self.ranges) <= DATASET_RANGES_MAX);
        let mut command = Command::new(IoOpcode::DATASET_MANAGEMENT.0, cid);
        command.set_nsid(self.nsid);
        command.set_cdw(10, u32::from(self.ranges) - 1);
        command.set_cdw(
            11,
            u32::from(self.integral_read)
                | (u32::from(self.integral_write) << 1)
                | (u32::from(self.deallocate) << 2),
        );
        command
    }

    /// Returns the bytes of the range list.
    pub const fn data_bytes(&self) -> usize {
        self.ranges as usize * DatasetRange::SIZE
    }
}

/// One range of Dataset Management. `[NVMe NVM 1.0 §3.2.3.1]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatasetRange {
    /// Context attributes: hints.
    pub attributes: u32,
    /// Number of blocks; 0 for an empty range.
    pub blocks: u32,
    /// The first block.
    pub slba: u64,
}

impl DatasetRange {
    /// Bytes on the wire.
    pub const SIZE: usize = 16;

    /// Parses a range; any 16 bytes are valid.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            attributes: u32_at(bytes, 0),
            blocks: u32_at(bytes, 4),
            slba: u64_at(bytes, 8),
        }
    }

    /// Returns the range as bytes.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        out[..4].copy_from_slice(&self.attributes.to_le_bytes());
        out[4..8].copy_from_slice(&self.blocks.to_le_bytes());
        out[8..].copy_from_slice(&self.slba.to_le_bytes());
        out
    }
}
