//! CapsuleCmd: a command with optional in-capsule data. `[NVMe-TCP 1.0 §3.6.2.6]`

use crate::limits::COMMAND_BYTES;
use crate::nvme::Command;
use crate::tcp::header::{PduFormat, PduType, seal};
use crate::tcp::limits::{CAPSULE_CMD_BYTES, COMMON_HEADER_BYTES};

/// A command capsule. In-capsule data, if any, follows the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapsuleCmd {
    /// CCSQE: the command.
    pub command: Command,
}

impl CapsuleCmd {
    /// HLEN.
    pub const SIZE: usize = CAPSULE_CMD_BYTES;

    /// Parses a CapsuleCmd with a checked common header.
    #[inline]
    pub fn parse(bytes: &[u8; CAPSULE_CMD_BYTES]) -> Self {
        let mut command = [0; COMMAND_BYTES];
        command.copy_from_slice(&bytes[COMMON_HEADER_BYTES..]);
        Self {
            command: Command::from_bytes(command),
        }
    }

    /// Writes the PDU up to its data; returns the length. The caller sends `data_length` bytes of
    /// data after it, then the data digest if `format` has one and there is data.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than that; [`crate::tcp::limits::PREFIX_BYTES_MAX`] always suffices.
    #[inline]
    pub fn encode(&self, format: &PduFormat, data_length: u32, out: &mut [u8]) -> usize {
        out[COMMON_HEADER_BYTES..CAPSULE_CMD_BYTES].copy_from_slice(self.command.as_bytes());
        seal(out, PduType::CapsuleCmd, 0, data_length, format)
    }
}
