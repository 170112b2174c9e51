//! Read Extents and Write Extents: vendor-specific I/O commands over a table of runs of blocks.
//!
//! The two halves of Switchyard use them where both announce them
//! ([`ExtentTerms`]); no other host ever sends one. Layout, all little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 0 | OPC: 81h Write Extents (data from the host), 83h Read Extents (table from the host, data to it) |
//! | 7:4 | NSID |
//! | 39:24 | SGL1: in the capsule (01h), of the capsule's data |
//! | dword 10 | 15:0 number of extents, 1 to the announced maximum; 31:16 reserved |
//! | dword 11 | blocks of all extents together |
//! | dword 12 | bit 30 FUA, as in Write; bit 29 the host wants the outcome of each extent, which the controller announced; the others reserved |
//!
//! The table is the last `16 × extents` bytes of the capsule's data ([`ExtentEntry`]), so that the
//! controller knows every extent, and what the command costs, before it asks for a byte. What is
//! before the table is the data of a Write Extents that brought it along, all of it; where nothing
//! is, R2Ts ask for it. Data is that of one extent after the other, without gaps, and its offsets
//! in data PDUs start at the first one's first byte. A command that fails names in dword 0 of its
//! completion the index of the first extent that failed; or, where the host wants the outcome of
//! each, dwords 0 and 1 have a bit for each that was done ([`done_extents`]).

use crate::bytes::{low16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::limits::EXTENTS_PER_COMMAND_MAX;
use crate::nvme::command::Command;
use crate::nvme::opcode::IoOpcode;
use crate::nvme::status::Status;

/// FUA in dword 12, as in Write.
const FUA: u32 = 1 << 30;

/// The host wants the outcome of each extent, in dword 12.
const OUTCOMES: u32 = 1 << 29;

/// Extents of which a completion has the outcome: one for each bit of dwords 0 and 1.
pub const EXTENT_OUTCOMES: u16 = 64;

/// Returns dwords 0 and 1 of the completion of a command that failed, in which bit n says that extent
/// n was done: written, or read and its data sent. Of an extent without its bit nothing is known but
/// the command's status, which is that of the first extent that failed.
pub fn done_extents(done: impl IntoIterator<Item = bool>) -> u64 {
    let outcomes = (0..EXTENT_OUTCOMES).zip(done);
    outcomes.fold(0, |bits, (n, done)| bits | u64::from(done) << n)
}

/// A Read Extents or Write Extents command; the opcode says which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtentsCommand {
    /// NSID.
    pub nsid: u32,
    /// Extents in the table.
    pub extents: u16,
    /// Blocks of all extents together.
    pub blocks: u32,
    /// FUA: done only when the data of all extents is on the medium.
    pub fua: bool,
    /// The host wants the outcome of each extent where the command fails: only of a controller that
    /// [announced](ExtentTerms::outcomes) it.
    pub outcomes: bool,
}

impl ExtentsCommand {
    /// Reads the dwords.
    pub fn parse(command: &Command) -> Self {
        Self {
            nsid: command.nsid(),
            extents: low16(command.cdw(10)),
            blocks: command.cdw(11),
            fua: command.cdw(12) & FUA != 0,
            outcomes: command.cdw(12) & OUTCOMES != 0,
        }
    }

    /// The command with this opcode. Its data pointer is for the caller to set.
    pub fn encode(&self, opcode: IoOpcode, cid: u16) -> Command {
        let mut command = Command::new(opcode.0, cid);
        command.set_nsid(self.nsid);
        command.set_cdw(10, u32::from(self.extents));
        command.set_cdw(11, self.blocks);
        let fua = if self.fua { FUA } else { 0 };
        let outcomes = if self.outcomes { OUTCOMES } else { 0 };
        command.set_cdw(12, fua | outcomes);
        command
    }

    /// Bytes of the table.
    pub const fn table_bytes(&self) -> usize {
        self.extents as usize * ExtentEntry::SIZE
    }

    /// Reads the table at the end of the capsule's data, and checks all of it: at least one extent
    /// and one block in each, ascending without overlaps, reserved bytes zero, and as many blocks
    /// together as the command says.
    ///
    /// # Errors
    ///
    /// Data SGL Length Invalid for data that is shorter than the table, and else [`TableError`] of
    /// the first bad entry: LBA Out of Range for one beyond all addresses, Invalid Field for any
    /// other.
    pub fn parse_table<'a>(
        &self,
        data: &'a [u8],
    ) -> Result<impl ExactSizeIterator<Item = ExtentEntry> + Clone + 'a, TableError> {
        let invalid = |index| TableError {
            index,
            status: Status::INVALID_FIELD.with_dnr(),
        };
        if self.extents == 0 || usize::from(self.extents) > EXTENTS_PER_COMMAND_MAX {
            return Err(invalid(0));
        }
        let start = data.len().checked_sub(self.table_bytes());
        let table = start.and_then(|start| data.get(start..));
        let table = table.ok_or(TableError {
            index: 0,
            status: Status::DATA_SGL_LENGTH_INVALID.with_dnr(),
        })?;
        let (entries, _) = table.as_chunks::<{ ExtentEntry::SIZE }>();
        let (mut end, mut blocks) = (0, 0_u64);
        for (index, bytes) in (0..).zip(entries) {
            let entry = ExtentEntry::parse(bytes).ok_or(invalid(index))?;
            let after = entry.slba.checked_add(u64::from(entry.blocks));
            let after = after.ok_or(TableError {
                index,
                status: Status::LBA_OUT_OF_RANGE.with_dnr(),
            })?;
            if entry.blocks == 0 || entry.slba < end {
                return Err(invalid(index));
            }
            end = after;
            blocks += u64::from(entry.blocks);
        }
        if blocks != u64::from(self.blocks) {
            return Err(invalid(0));
        }
        let entry = |bytes| ExtentEntry::parse(bytes).expect("every entry was checked");
        Ok(entries.iter().map(entry))
    }
}

/// The first bad entry of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableError {
    /// Its index; 0 where the command is wrong and no entry.
    pub index: u16,
    /// The status to answer with.
    pub status: Status,
}

/// One entry of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtentEntry {
    /// First block: bytes 7:0.
    pub slba: u64,
    /// Blocks, at least one: bytes 11:8. Bytes 15:12 are reserved, and zero.
    pub blocks: u32,
}

impl ExtentEntry {
    /// Bytes on the wire.
    pub const SIZE: usize = 16;

    /// Reads an entry; `None` where a reserved byte is not zero.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        (u32_at(bytes, 12) == 0).then(|| Self {
            slba: u64_at(bytes, 0),
            blocks: u32_at(bytes, 8),
        })
    }

    /// The entry as bytes.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        put_u64(&mut out, 0, self.slba);
        put_u32(&mut out, 8, self.blocks);
        out
    }
}

/// The terms on which a controller takes commands over extents, in the vendor's area of Identify
/// Controller ([`Extensions`](crate::nvme::vendor::Extensions)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtentTerms {
    /// Most extents of one command, 1 to [`EXTENTS_PER_COMMAND_MAX`].
    pub extents: u16,
    /// Most such commands outstanding on one queue, at least 1.
    pub in_flight: u16,
    /// Most bytes of data of one command, its table not counted; at least one block.
    pub bytes: u32,
    /// Knows [`ExtentsCommand::outcomes`]: bit 0 of byte 1, which was reserved at first.
    pub outcomes: bool,
}

impl ExtentTerms {
    /// Bytes in the vendor's area.
    pub(crate) const SIZE: usize = 12;

    /// Version of the layout above.
    const VERSION: u8 = 1;

    /// Reads the terms; `None` for another version, or where nothing could be sent.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let terms = Self {
            extents: u16_at(bytes, 2),
            in_flight: u16_at(bytes, 4),
            bytes: u32_at(bytes, 8),
            outcomes: bytes[1] & 1 != 0,
        };
        let usable = terms.extents > 0 && terms.in_flight > 0 && terms.bytes > 0;
        (bytes[0] == Self::VERSION && usable).then_some(terms)
    }

    /// The terms as bytes.
    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        out[0] = Self::VERSION;
        out[1] = u8::from(self.outcomes);
        out[2..4].copy_from_slice(&self.extents.to_le_bytes());
        out[4..6].copy_from_slice(&self.in_flight.to_le_bytes());
        put_u32(&mut out, 8, self.bytes);
        out
    }
}

#[cfg(test)]
mod tests;
