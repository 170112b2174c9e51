//! R2T: the controller is ready for data. `[NVMe-TCP 1.0 §3.6.2.10]`

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::tcp::header::{PduFormat, PduType, seal};
use crate::tcp::limits::{COMMON_HEADER_BYTES, SHORT_HEADER_BYTES};

/// Ready to transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct R2t {
    /// CCCID: the command.
    pub command_id: u16,
    /// TTAG: the controller's identifier of this transfer; H2CData returns it.
    pub transfer_tag: u16,
    /// R2TO: bytes from the start of the command's data.
    pub offset: u32,
    /// R2TL: requested bytes.
    pub length: u32,
}

impl R2t {
    /// HLEN.
    pub const SIZE: usize = SHORT_HEADER_BYTES;
    /// Offset of R2TO.
    pub const R2TO: usize = 12;
    /// Offset of R2TL.
    pub const R2TL: usize = 16;

    /// Parses an R2T with a checked common header.
    #[inline]
    pub fn parse(bytes: &[u8; SHORT_HEADER_BYTES]) -> Self {
        Self {
            command_id: u16_at(bytes, 8),
            transfer_tag: u16_at(bytes, 10),
            offset: u32_at(bytes, Self::R2TO),
            length: u32_at(bytes, Self::R2TL),
        }
    }

    /// Writes the PDU; returns its length, 24 or (with a header digest) 28.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than that.
    #[inline]
    pub fn encode(&self, format: &PduFormat, out: &mut [u8]) -> usize {
        let fields = &mut out[COMMON_HEADER_BYTES..SHORT_HEADER_BYTES];
        put_u16(fields, 0, self.command_id);
        put_u16(fields, 2, self.transfer_tag);
        put_u32(fields, 4, self.offset);
        put_u32(fields, 8, self.length);
        put_u32(fields, 12, 0);
        seal(out, PduType::R2t, 0, 0, format)
    }
}
