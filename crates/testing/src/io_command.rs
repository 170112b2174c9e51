//! Parsed commands of an I/O queue, for users without a command table.

use wire::nvme::io::DatasetRange;
use wire::nvme::{Command, DatasetManagement, ExtentsCommand, IoOpcode, LbaCommand, Status};

/// A command on an I/O queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoCommand {
    /// Read.
    Read(LbaCommand),
    /// Write.
    Write(LbaCommand),
    /// Compare.
    Compare(LbaCommand),
    /// Verify: reads without a data transfer.
    Verify(LbaCommand),
    /// Write Zeroes.
    WriteZeroes(LbaCommand),
    /// Flush: makes acknowledged writes durable.
    Flush {
        /// NSID; may be the broadcast value.
        nsid: u32,
    },
    /// Dataset Management.
    DatasetManagement(DatasetManagement),
    /// Read Extents, a vendor-specific extension.
    ReadExtents(ExtentsCommand),
    /// Write Extents, a vendor-specific extension.
    WriteExtents(ExtentsCommand),
}

impl IoCommand {
    /// Parses an I/O command other than a Fabrics command.
    ///
    /// # Errors
    /// Invalid Field for a fused command (unsupported), Invalid Command Opcode for an opcode that
    /// is not listed here.
    pub fn parse(command: &Command) -> Result<Self, Status> {
        if command.fuse() != 0 {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        Ok(match IoOpcode(command.opcode()) {
            IoOpcode::READ => Self::Read(LbaCommand::parse(command)),
            IoOpcode::WRITE => Self::Write(LbaCommand::parse(command)),
            IoOpcode::FLUSH => Self::Flush {
                nsid: command.nsid(),
            },
            IoOpcode::WRITE_ZEROES => Self::WriteZeroes(LbaCommand::parse(command)),
            IoOpcode::DATASET_MANAGEMENT => {
                Self::DatasetManagement(DatasetManagement::parse(command))
            }
            IoOpcode::COMPARE => Self::Compare(LbaCommand::parse(command)),
            IoOpcode::VERIFY => Self::Verify(LbaCommand::parse(command)),
            IoOpcode::READ_EXTENTS => Self::ReadExtents(ExtentsCommand::parse(command)),
            IoOpcode::WRITE_EXTENTS => Self::WriteExtents(ExtentsCommand::parse(command)),
            _ => return Err(Status::INVALID_OPCODE.with_dnr()),
        })
    }

    /// Encodes the command. The caller sets its data pointer.
    ///
    /// # Panics
    /// If a count is out of its range.
    #[must_use]
    pub fn encode(&self, cid: u16) -> Command {
        match self {
            Self::Read(lba) => lba.encode(IoOpcode::READ, cid),
            Self::Write(lba) => lba.encode(IoOpcode::WRITE, cid),
            Self::Compare(lba) => lba.encode(IoOpcode::COMPARE, cid),
            Self::Verify(lba) => lba.encode(IoOpcode::VERIFY, cid),
            Self::WriteZeroes(lba) => lba.encode(IoOpcode::WRITE_ZEROES, cid),
            Self::Flush { nsid } => {
                let mut command = Command::new(IoOpcode::FLUSH.0, cid);
                command.set_nsid(*nsid);
                command
            }
            Self::DatasetManagement(dsm) => dsm.encode(cid),
            Self::ReadExtents(extents) => extents.encode(IoOpcode::READ_EXTENTS, cid),
            Self::WriteExtents(extents) => extents.encode(IoOpcode::WRITE_EXTENTS, cid),
        }
    }
}

/// Parses the ranges in the data of a Dataset Management command.
///
/// # Errors
/// Data SGL Length Invalid if the data is shorter than the list.
pub fn parse_ranges<'a>(
    command: &DatasetManagement,
    data: &'a [u8],
) -> Result<impl ExactSizeIterator<Item = DatasetRange> + 'a, Status> {
    let list = data
        .get(..command.data_bytes())
        .ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
    let (ranges, _) = list.as_chunks();
    Ok(ranges.iter().map(DatasetRange::parse))
}
