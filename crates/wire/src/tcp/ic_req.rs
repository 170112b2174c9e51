//! ICReq: the host initializes the connection. `[NVMe-TCP 1.0 §3.6.2.2]`

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::tcp::FramingError;
use crate::tcp::header::{DataAlignment, PduFormat, PduType, seal};
use crate::tcp::limits::IC_BYTES;

/// Offset of PFV.
const PFV: usize = 8;
/// Offset of HPDA.
const HPDA: usize = 10;
/// Offset of DGST.
const DGST: usize = 11;
/// Offset of MAXR2T.
const MAXR2T: usize = 12;

/// DGST: header digests requested, or (in ICResp) enabled.
pub(crate) const HDGST_ENABLE: u8 = 1 << 0;
/// DGST: data digests requested, or (in ICResp) enabled.
pub(crate) const DDGST_ENABLE: u8 = 1 << 1;

/// The first PDU on a connection. Only PDU format version 0 exists, so it is not a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IcReq {
    /// HPDA: requested alignment of data sent to the host.
    pub host_alignment: DataAlignment,
    /// DGST bit 0: the host requests header digests.
    pub header_digest: bool,
    /// DGST bit 1: the host requests data digests.
    pub data_digest: bool,
    /// MAXR2T, zero-based: maximum outstanding R2Ts per command.
    pub max_r2t: u32,
}

impl IcReq {
    /// Bytes on the wire.
    pub const SIZE: usize = IC_BYTES;

    /// The minimum request: no digests, no padding, one R2T at a time.
    pub const PLAIN: Self = Self {
        host_alignment: DataAlignment::DWORD,
        header_digest: false,
        data_digest: false,
        max_r2t: 0,
    };

    /// Parses an ICReq with a checked common header.
    ///
    /// # Errors
    ///
    /// A format version other than 0 is an unsupported parameter, an alignment above 128 bytes an
    /// invalid field.
    pub fn parse(bytes: &[u8; IC_BYTES]) -> Result<Self, FramingError> {
        if u16_at(bytes, PFV) != 0 {
            return Err(FramingError::UnsupportedParameter { offset: PFV });
        }
        let host_alignment = DataAlignment::from_code(bytes[HPDA])
            .ok_or(FramingError::InvalidField { offset: HPDA })?;
        Ok(Self {
            host_alignment,
            header_digest: bytes[DGST] & HDGST_ENABLE != 0,
            data_digest: bytes[DGST] & DDGST_ENABLE != 0,
            max_r2t: u32_at(bytes, MAXR2T),
        })
    }

    /// Returns the PDU as bytes.
    pub fn to_bytes(&self) -> [u8; IC_BYTES] {
        let mut out = [0; IC_BYTES];
        put_u16(&mut out, PFV, 0);
        out[HPDA] = self.host_alignment.code();
        out[DGST] = digest_bits(self.header_digest, self.data_digest);
        put_u32(&mut out, MAXR2T, self.max_r2t);
        seal(&mut out, PduType::IcReq, 0, 0, &PduFormat::PLAIN);
        out
    }
}

/// Returns the DGST field.
pub(crate) const fn digest_bits(header: bool, data: bool) -> u8 {
    (if header { HDGST_ENABLE } else { 0 }) | (if data { DDGST_ENABLE } else { 0 })
}
