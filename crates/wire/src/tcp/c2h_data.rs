//! C2HData: data of a command, from the controller. `[NVMe-TCP 1.0 §3.6.2.9]`

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::tcp::FramingError;
use crate::tcp::header::{LAST_PDU, PduFormat, PduType, SUCCESS, seal};
use crate::tcp::limits::{COMMON_HEADER_BYTES, SHORT_HEADER_BYTES};

/// The position of a C2HData PDU in its transfer, and the source of the command's status.
///
/// Combines the flags LAST_PDU and SUCCESS; SUCCESS without LAST_PDU is invalid and has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum C2hProgress {
    /// More data PDUs follow.
    More,
    /// The last data PDU; a CapsuleResp follows.
    Last,
    /// The last data PDU; the command succeeded, and no CapsuleResp follows.
    LastAndSuccess,
}

/// Data from the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct C2hData {
    /// CCCID: the command.
    pub command_id: u16,
    /// DATAO: bytes from the start of the command's data.
    pub data_offset: u32,
    /// DATAL: bytes of data in this PDU, not 0.
    pub data_length: u32,
    /// LAST_PDU and SUCCESS.
    pub progress: C2hProgress,
}

impl C2hData {
    /// HLEN.
    pub const SIZE: usize = SHORT_HEADER_BYTES;
    /// Offset of DATAO.
    pub const DATAO: usize = 12;
    /// Offset of DATAL.
    pub const DATAL: usize = 16;

    /// Parses a C2HData header with a checked common header.
    ///
    /// # Errors
    ///
    /// SUCCESS without LAST_PDU is an invalid FLAGS field.
    #[inline]
    pub fn parse(bytes: &[u8; SHORT_HEADER_BYTES]) -> Result<Self, FramingError> {
        let progress = match (bytes[1] & LAST_PDU != 0, bytes[1] & SUCCESS != 0) {
            (false, false) => C2hProgress::More,
            (true, false) => C2hProgress::Last,
            (true, true) => C2hProgress::LastAndSuccess,
            (false, true) => return Err(FramingError::InvalidField { offset: 1 }),
        };
        Ok(Self {
            command_id: u16_at(bytes, 8),
            data_offset: u32_at(bytes, Self::DATAO),
            data_length: u32_at(bytes, Self::DATAL),
            progress,
        })
    }

    /// Writes the PDU up to its data; returns the length. The caller sends `data_length` bytes of
    /// data after it, then the data digest if `format` has one.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than that; [`crate::tcp::limits::PREFIX_BYTES_MAX`] always suffices.
    #[inline]
    pub fn encode(&self, format: &PduFormat, out: &mut [u8]) -> usize {
        let fields = &mut out[COMMON_HEADER_BYTES..SHORT_HEADER_BYTES];
        put_u16(fields, 0, self.command_id);
        put_u16(fields, 2, 0);
        put_u32(fields, 4, self.data_offset);
        put_u32(fields, 8, self.data_length);
        put_u32(fields, 12, 0);
        let flags = match self.progress {
            C2hProgress::More => 0,
            C2hProgress::Last => LAST_PDU,
            C2hProgress::LastAndSuccess => LAST_PDU | SUCCESS,
        };
        seal(out, PduType::C2hData, flags, self.data_length, format)
    }
}
