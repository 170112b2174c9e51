//! ICResp: the controller accepts the connection. `[NVMe-TCP 1.0 §3.6.2.3]`

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::tcp::FramingError;
use crate::tcp::header::{DataAlignment, PduFormat, PduType, seal};
use crate::tcp::ic_req::{DDGST_ENABLE, HDGST_ENABLE, digest_bits};
use crate::tcp::limits::{IC_BYTES, MAX_H2C_DATA_BYTES_MIN};

/// Offset of PFV.
const PFV: usize = 8;
/// Offset of CPDA.
const CPDA: usize = 10;
/// Offset of DGST.
const DGST: usize = 11;
/// Offset of MAXH2CDATA.
const MAXH2CDATA: usize = 12;

/// The answer to ICReq. Only PDU format version 0 exists, so it is not a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IcResp {
    /// CPDA: requested alignment of data sent to the controller.
    pub controller_alignment: DataAlignment,
    /// DGST bit 0: header digests are enabled from now on.
    pub header_digest: bool,
    /// DGST bit 1: data digests are enabled from now on.
    pub data_digest: bool,
    /// MAXH2CDATA: maximum bytes of data in one H2CData PDU; a multiple of 4, at least 4096.
    pub max_h2c_data: u32,
}

impl IcResp {
    /// Bytes on the wire.
    pub const SIZE: usize = IC_BYTES;

    /// Parses an ICResp with a checked common header.
    ///
    /// # Errors
    ///
    /// A format version other than 0 is an unsupported parameter; an alignment above 128 bytes or a
    /// MAXH2CDATA below 4096 or not a multiple of 4 is an invalid field.
    pub fn parse(bytes: &[u8; IC_BYTES]) -> Result<Self, FramingError> {
        if u16_at(bytes, PFV) != 0 {
            return Err(FramingError::UnsupportedParameter { offset: PFV });
        }
        let controller_alignment = DataAlignment::from_code(bytes[CPDA])
            .ok_or(FramingError::InvalidField { offset: CPDA })?;
        let max_h2c_data = u32_at(bytes, MAXH2CDATA);
        if max_h2c_data < MAX_H2C_DATA_BYTES_MIN || !max_h2c_data.is_multiple_of(4) {
            return Err(FramingError::InvalidField { offset: MAXH2CDATA });
        }
        Ok(Self {
            controller_alignment,
            header_digest: bytes[DGST] & HDGST_ENABLE != 0,
            data_digest: bytes[DGST] & DDGST_ENABLE != 0,
            max_h2c_data,
        })
    }

    /// Returns the PDU as bytes.
    pub fn to_bytes(&self) -> [u8; IC_BYTES] {
        let mut out = [0; IC_BYTES];
        put_u16(&mut out, PFV, 0);
        out[CPDA] = self.controller_alignment.code();
        out[DGST] = digest_bits(self.header_digest, self.data_digest);
        put_u32(&mut out, MAXH2CDATA, self.max_h2c_data);
        seal(&mut out, PduType::IcResp, 0, 0, &PduFormat::PLAIN);
        out
    }
}
