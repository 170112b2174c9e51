//! The common header, and the negotiated PDU format.

use crate::tcp::digest;
use crate::tcp::limits::{
    ALIGNMENT_CODE_MAX, CAPSULE_CMD_BYTES, COMMON_HEADER_BYTES, DIGEST_BYTES, IC_BYTES,
    SHORT_HEADER_BYTES,
};

/// PDU-Type. `[NVMe-TCP 1.0 §3.6.1]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PduType {
    /// Host to controller: initialize connection.
    IcReq = 0x00,
    /// Controller to host: connection initialized.
    IcResp = 0x01,
    /// Host to controller: terminates the connection, with the reason.
    H2cTermReq = 0x02,
    /// Controller to host: terminates the connection, with the reason.
    C2hTermReq = 0x03,
    /// Host to controller: a command with optional in-capsule data.
    CapsuleCmd = 0x04,
    /// Controller to host: a completion.
    CapsuleResp = 0x05,
    /// Host to controller: data requested by an R2T.
    H2cData = 0x06,
    /// Controller to host: data of a command.
    C2hData = 0x07,
    /// Controller to host: ready for data of a command.
    R2t = 0x09,
}

impl PduType {
    /// Returns the type with this code.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x00 => Self::IcReq,
            0x01 => Self::IcResp,
            0x02 => Self::H2cTermReq,
            0x03 => Self::C2hTermReq,
            0x04 => Self::CapsuleCmd,
            0x05 => Self::CapsuleResp,
            0x06 => Self::H2cData,
            0x07 => Self::C2hData,
            0x09 => Self::R2t,
            _ => return None,
        })
    }

    /// Returns the code on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the HLEN of this type.
    pub const fn header_length(self) -> usize {
        match self {
            Self::IcReq | Self::IcResp => IC_BYTES,
            Self::CapsuleCmd => CAPSULE_CMD_BYTES,
            _ => SHORT_HEADER_BYTES,
        }
    }

    /// Returns true if negotiated digests apply: not to PDUs that initialize or terminate a
    /// connection.
    pub const fn has_digests(self) -> bool {
        !matches!(
            self,
            Self::IcReq | Self::IcResp | Self::H2cTermReq | Self::C2hTermReq
        )
    }

    /// Returns the specification's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IcReq => "ICReq",
            Self::IcResp => "ICResp",
            Self::H2cTermReq => "H2CTermReq",
            Self::C2hTermReq => "C2HTermReq",
            Self::CapsuleCmd => "CapsuleCmd",
            Self::CapsuleResp => "CapsuleResp",
            Self::H2cData => "H2CData",
            Self::C2hData => "C2HData",
            Self::R2t => "R2T",
        }
    }
}

/// The role of the receiving end of the connection, which determines the valid PDUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Receives the PDUs of a host.
    Controller,
    /// Receives the PDUs of a controller.
    Host,
}

impl Role {
    /// Returns true if this end may receive a PDU of this type.
    #[inline]
    pub(super) const fn receives(self, pdu_type: PduType) -> bool {
        let from_host = matches!(
            pdu_type,
            PduType::IcReq | PduType::H2cTermReq | PduType::CapsuleCmd | PduType::H2cData
        );
        matches!(self, Self::Controller) == from_host
    }
}

/// FLAGS: a header digest follows the header.
pub const HDGSTF: u8 = 1 << 0;
/// FLAGS: a data digest follows the data.
pub const DDGSTF: u8 = 1 << 1;
/// FLAGS of H2CData and C2HData: the last data PDU of the transfer.
pub const LAST_PDU: u8 = 1 << 2;
/// FLAGS of C2HData: the command succeeded, and no CapsuleResp follows.
pub const SUCCESS: u8 = 1 << 3;

/// The first eight bytes of every PDU, unchecked. `[NVMe-TCP 1.0 §3.6.1]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommonHeader {
    /// PDU-Type.
    pub pdu_type: u8,
    /// FLAGS.
    pub flags: u8,
    /// HLEN: bytes of the header, without digest.
    pub hlen: u8,
    /// PDO: offset of data from the start of the PDU.
    pub pdo: u8,
    /// PLEN: bytes of the whole PDU.
    pub plen: u32,
}

impl CommonHeader {
    /// Parses a common header; any eight bytes are valid.
    #[inline]
    pub const fn parse(bytes: &[u8; COMMON_HEADER_BYTES]) -> Self {
        Self {
            pdu_type: bytes[0],
            flags: bytes[1],
            hlen: bytes[2],
            pdo: bytes[3],
            plen: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// Returns the header as bytes.
    #[inline]
    pub const fn to_bytes(self) -> [u8; COMMON_HEADER_BYTES] {
        let plen = self.plen.to_le_bytes();
        [
            self.pdu_type,
            self.flags,
            self.hlen,
            self.pdo,
            plen[0],
            plen[1],
            plen[2],
            plen[3],
        ]
    }
}

/// HPDA or CPDA: the data alignment that the receiver of data requests, as its zero-based dword
/// code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DataAlignment(u8);

impl DataAlignment {
    /// Four bytes, the minimum: code 0.
    pub const DWORD: Self = Self(0);

    /// Returns the alignment with this code, 0 to 31.
    pub const fn from_code(code: u8) -> Option<Self> {
        if code <= ALIGNMENT_CODE_MAX {
            Some(Self(code))
        } else {
            None
        }
    }

    /// Returns the code on the wire.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the alignment in bytes: a multiple of 4, from 4 to 128.
    pub const fn bytes(self) -> usize {
        (self.0 as usize + 1) * 4
    }
}

/// The PDU format negotiated at initialization, for one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PduFormat {
    /// Every header is followed by its digest.
    pub header_digest: bool,
    /// Every payload is followed by its digest.
    pub data_digest: bool,
    /// Data alignment requested by the receiver of this direction.
    pub alignment: DataAlignment,
}

impl PduFormat {
    /// No digests, data aligned to dwords: the format until the connection is initialized.
    pub const PLAIN: Self = Self {
        header_digest: false,
        data_digest: false,
        alignment: DataAlignment::DWORD,
    };

    /// Returns the bytes after the data of a PDU: those of its digest, or 0.
    pub const fn trailer_bytes(&self) -> usize {
        if self.data_digest { DIGEST_BYTES } else { 0 }
    }
}

/// Completes a PDU whose type-specific fields are already in `out`: writes the common header, the
/// header digest and the padding; returns the offset of the data (or the end of a PDU without
/// data).
#[inline]
pub(crate) fn seal(
    out: &mut [u8],
    pdu_type: PduType,
    flags: u8,
    data_length: u32,
    format: &PduFormat,
) -> usize {
    let hlen = pdu_type.header_length();
    let mut flags = flags;
    let mut end = hlen;
    if format.header_digest {
        flags |= HDGSTF;
        end += DIGEST_BYTES;
    }
    let (pdo, plen) = if data_length == 0 {
        (0, end)
    } else {
        if format.data_digest {
            flags |= DDGSTF;
        }
        // Headers and digests are whole dwords; only larger alignments cost a division.
        let pdo = if format.alignment == DataAlignment::DWORD {
            end
        } else {
            end.next_multiple_of(format.alignment.bytes())
        };
        (pdo, pdo + data_length as usize + format.trailer_bytes())
    };
    let common = CommonHeader {
        pdu_type: pdu_type.code(),
        flags,
        hlen: u8::try_from(hlen).expect("no header is longer than 128 bytes"),
        pdo: u8::try_from(pdo).expect("header and padding are at most 144 bytes"),
        plen: u32::try_from(plen).expect("a payload is far shorter than 4 GiB"),
    };
    out[..COMMON_HEADER_BYTES].copy_from_slice(&common.to_bytes());
    if format.header_digest {
        let digest = digest::digest_bytes(&out[..hlen]);
        out[hlen..end].copy_from_slice(&digest);
    }
    if data_length == 0 {
        return end;
    }
    if pdo > end {
        out[end..pdo].fill(0);
    }
    pdo
}
