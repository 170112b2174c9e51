//! H2CTermReq and C2HTermReq: terminate the connection, with the reason. `[NVMe-TCP 1.0 §3.6.2.4,
//! §3.6.2.5]`

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::tcp::header::{CommonHeader, PduType, Role};
use crate::tcp::limits::{
    COMMON_HEADER_BYTES, SHORT_HEADER_BYTES, TERM_DATA_BYTES_MAX, TERM_REQ_BYTES_MAX,
};

/// FES: why a connection is terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FatalErrorStatus(pub u16);

impl FatalErrorStatus {
    /// A field of a PDU header is invalid; FEI is its offset.
    pub const INVALID_PDU_HEADER_FIELD: Self = Self(0x01);
    /// A PDU out of sequence.
    pub const PDU_SEQUENCE_ERROR: Self = Self(0x02);
    /// A header digest does not match; FEI is the digest received.
    pub const HEADER_DIGEST_ERROR: Self = Self(0x03);
    /// Data outside the range of the command or R2T.
    pub const DATA_TRANSFER_OUT_OF_RANGE: Self = Self(0x04);
    /// An H2CData PDU is longer than MAXH2CDATA; sent by a controller.
    pub const DATA_TRANSFER_LIMIT_EXCEEDED: Self = Self(0x05);
    /// More R2Ts than MAXR2T allows; sent by a host. The same number as the limit of a controller.
    pub const R2T_LIMIT_EXCEEDED: Self = Self(0x05);
    /// A parameter that the peer does not support; FEI is its offset.
    pub const UNSUPPORTED_PARAMETER: Self = Self(0x06);
}

impl core::fmt::Display for FatalErrorStatus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self.0 {
            0x01 => "Invalid PDU Header Field",
            0x02 => "PDU Sequence Error",
            0x03 => "Header Digest Error",
            0x04 => "Data Transfer Out of Range",
            0x05 => "Data Transfer or R2T Limit Exceeded",
            0x06 => "Unsupported Parameter",
            other => return write!(f, "fatal error status {other:#04x}"),
        })
    }
}

/// A termination request of either direction. The offending header follows as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TermReq {
    /// FES.
    pub status: FatalErrorStatus,
    /// FEI: the offset of a field, a digest, or 0, depending on the status.
    pub information: u32,
}

impl TermReq {
    /// HLEN.
    pub const SIZE: usize = SHORT_HEADER_BYTES;

    /// Parses a termination request with a checked common header.
    pub fn parse(bytes: &[u8; SHORT_HEADER_BYTES]) -> Self {
        Self {
            status: FatalErrorStatus(u16_at(bytes, 8)),
            information: u32_at(bytes, 10),
        }
    }

    /// Writes the whole PDU that the end in `role` sends, with up to 128 bytes of the header that
    /// it rejected; returns its length, at most 152.
    pub fn encode(
        &self,
        role: Role,
        offending_header: &[u8],
        out: &mut [u8; TERM_REQ_BYTES_MAX],
    ) -> usize {
        let kept = &offending_header[..offending_header.len().min(TERM_DATA_BYTES_MAX)];
        let length = SHORT_HEADER_BYTES + kept.len();
        let pdu_type = match role {
            Role::Controller => PduType::C2hTermReq,
            Role::Host => PduType::H2cTermReq,
        };
        out.fill(0);
        let common = CommonHeader {
            pdu_type: pdu_type.code(),
            flags: 0,
            hlen: u8::try_from(SHORT_HEADER_BYTES).expect("24 fits into a byte"),
            pdo: 0,
            plen: u32::try_from(length).expect("at most 152"),
        };
        out[..COMMON_HEADER_BYTES].copy_from_slice(&common.to_bytes());
        put_u16(out, 8, self.status.0);
        put_u32(out, 10, self.information);
        out[SHORT_HEADER_BYTES..length].copy_from_slice(kept);
        length
    }
}
