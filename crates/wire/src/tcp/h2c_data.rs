//! H2CData: data requested by an R2T. `[NVMe-TCP 1.0 §3.6.2.8]`

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::tcp::header::{LAST_PDU, PduFormat, PduType, seal};
use crate::tcp::limits::{COMMON_HEADER_BYTES, SHORT_HEADER_BYTES};

/// Data from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct H2cData {
    /// CCCID: the command.
    pub command_id: u16,
    /// TTAG of the R2T.
    pub transfer_tag: u16,
    /// DATAO: bytes from the start of the command's data.
    pub data_offset: u32,
    /// DATAL: bytes of data in this PDU, not 0.
    pub data_length: u32,
    /// LAST_PDU: this PDU completes the R2T.
    pub last: bool,
}

impl H2cData {
    /// HLEN.
    pub const SIZE: usize = SHORT_HEADER_BYTES;
    /// Offset of DATAO.
    pub const DATAO: usize = 12;
    /// Offset of DATAL.
    pub const DATAL: usize = 16;

    /// Parses an H2CData header with a checked common header.
    #[inline]
    pub fn parse(bytes: &[u8; SHORT_HEADER_BYTES]) -> Self {
        Self {
            command_id: u16_at(bytes, 8),
            transfer_tag: u16_at(bytes, 10),
            data_offset: u32_at(bytes, Self::DATAO),
            data_length: u32_at(bytes, Self::DATAL),
            last: bytes[1] & LAST_PDU != 0,
        }
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
        put_u16(fields, 2, self.transfer_tag);
        put_u32(fields, 4, self.data_offset);
        put_u32(fields, 8, self.data_length);
        put_u32(fields, 12, 0);
        let flags = if self.last { LAST_PDU } else { 0 };
        seal(out, PduType::H2cData, flags, self.data_length, format)
    }
}
