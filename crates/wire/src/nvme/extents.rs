//! Read Extents and Write Extents: vendor-specific I/O commands on a table of block ranges.
//!
//! Hosts and targets of Switchyard use them if both announce them ([`ExtentTerms`]); no other host
//! sends them.

use crate::bytes::{low16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::limits::EXTENTS_PER_COMMAND_MAX;
use crate::nvme::command::Command;
use crate::nvme::opcode::IoOpcode;
use crate::nvme::status::Status;

/// FUA in dword 12, as in Write.
const FUA: u32 = 1 << 30;

/// The host requests the outcome of each extent, in dword 12.
const OUTCOMES: u32 = 1 << 29;

/// Maximum extents whose outcome a completion reports: one per bit of dwords 0 and 1.
pub const EXTENT_OUTCOMES: u16 = 64;

/// Returns dwords 0 and 1 of the completion of a failed command, in which bit n is set if extent n
/// was completed: written, or read with its data sent. The outcome of an extent without its bit is
/// unknown except for the command's status, which is that of the first failed extent.
pub fn done_extents(done: impl IntoIterator<Item = bool>) -> u64 {
    let outcomes = (0..EXTENT_OUTCOMES).zip(done);
    outcomes.fold(0, |bits, (n, done)| bits | u64::from(done) << n)
}

/// A Read Extents or Write Extents command, depending on the opcode.
///
/// Layout, little-endian:
///
/// | bytes | field |
/// |---|---|
/// | 0 | OPC: 81h Write Extents (data from host), 83h Read Extents (table from, data to host) |
/// | 7:4 | NSID |
/// | 39:24 | SGL1: in the capsule (01h), of the capsule's data |
/// | dword 10 | 15:0 number of extents, 1 to the announced maximum; 31:16 reserved |
/// | dword 11 | total blocks of all extents |
/// | dword 12 | bit 30 FUA; bit 29 the host requests the outcome of each extent; others reserved |
///
/// The table is the last `16 × extents` bytes of the capsule's data ([`ExtentEntry`]), so that the
/// controller knows every extent, and the cost of the command, before it requests data. Bytes
/// before the table are the complete in-capsule data of a Write Extents; without such bytes, R2Ts
/// request the data. Data of the extents is consecutive, without gaps, and its offsets in data PDUs
/// start at the first byte of the first extent. Dword 0 of a failed command's completion has the
/// index of the first failed extent; or, if the host requested the outcome of each, dwords 0 and 1
/// have a bit for each completed extent ([`done_extents`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtentsCommand {
    /// NSID.
    pub nsid: u32,
    /// Number of extents in the table.
    pub extents: u16,
    /// Total blocks of all extents.
    pub blocks: u32,
    /// FUA: completes after the data of all extents is on the medium.
    pub fua: bool,
    /// The host requests the outcome of each extent if the command fails: only from a controller
    /// that [announced](ExtentTerms::outcomes) it.
    pub outcomes: bool,
}

impl ExtentsCommand {
    /// Parses the command dwords.
    pub fn parse(command: &Command) -> Self {
        Self {
            nsid: command.nsid(),
            extents: low16(command.cdw(10)),
            blocks: command.cdw(11),
            fua: command.cdw(12) & FUA != 0,
            outcomes: command.cdw(12) & OUTCOMES != 0,
        }
    }

    /// Encodes the command with this opcode; the caller sets its data pointer.
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

    /// Returns the bytes of the table.
    pub const fn table_bytes(&self) -> usize {
        self.extents as usize * ExtentEntry::SIZE
    }

    /// Parses and checks the table at the end of the capsule's data: at least one extent, at least
    /// one block in each, ascending without overlaps, reserved bytes zero, and the total blocks of
    /// the command.
    ///
    /// # Errors
    ///
    /// Data SGL Length Invalid for data shorter than the table, else [`TableError`] of the first
    /// invalid entry: LBA Out of Range for an extent beyond the address range, Invalid Field for
    /// all other errors.
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

/// The first invalid entry of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableError {
    /// Its index; 0 if the command is invalid rather than an entry.
    pub index: u16,
    /// The status to answer with.
    pub status: Status,
}

/// One entry of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtentEntry {
    /// First block: bytes 7:0.
    pub slba: u64,
    /// Number of blocks, at least one: bytes 11:8. Bytes 15:12 are reserved, and zero.
    pub blocks: u32,
}

impl ExtentEntry {
    /// Bytes on the wire.
    pub const SIZE: usize = 16;

    /// Parses an entry; `None` if a reserved byte is not zero.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        (u32_at(bytes, 12) == 0).then(|| Self {
            slba: u64_at(bytes, 0),
            blocks: u32_at(bytes, 8),
        })
    }

    /// Returns the entry as bytes.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        put_u64(&mut out, 0, self.slba);
        put_u32(&mut out, 8, self.blocks);
        out
    }
}

/// Limits on commands over extents that a controller announces in the vendor-specific area of
/// Identify Controller ([`Extensions`](crate::nvme::vendor::Extensions)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtentTerms {
    /// Maximum extents of one command, 1 to [`EXTENTS_PER_COMMAND_MAX`].
    pub extents: u16,
    /// Maximum such commands outstanding on one queue, at least 1.
    pub in_flight: u16,
    /// Maximum bytes of data of one command without its table; at least one block.
    pub bytes: u32,
    /// Supports [`ExtentsCommand::outcomes`]: bit 0 of byte 1, which older controllers send as
    /// zero.
    pub outcomes: bool,
}

impl ExtentTerms {
    /// Bytes in the vendor-specific area.
    pub(crate) const SIZE: usize = 12;

    /// Version of the layout above.
    const VERSION: u8 = 1;

    /// Parses the limits; `None` for another version, or if no command would be possible.
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

    /// Returns the limits as bytes.
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
