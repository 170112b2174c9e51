//! Fatal errors of a stream of PDUs, with their termination requests.

use crate::tcp::term_req::{FatalErrorStatus, TermReq};

/// A protocol violation of the peer; the connection must end.
///
/// [`crate::tcp::Framer::offending_header`] has the header that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// A PDU-Type that does not exist, or that the peer may not send.
    #[error("PDU type {code:#04x} is none that this end may receive")]
    UnexpectedType {
        /// The code received.
        code: u8,
    },
    /// A PDU out of sequence.
    #[error(
        "PDU type {code:#04x} came out of sequence: the first PDU, and only that, initializes the connection"
    )]
    OutOfSequence {
        /// The code received.
        code: u8,
    },
    /// HLEN is wrong for the type.
    #[error("HLEN is {received}, and a PDU of this type has {expected}")]
    HeaderLength {
        /// HLEN received.
        received: u8,
        /// HLEN of the type.
        expected: u8,
    },
    /// HDGSTF or DDGSTF contradict the negotiated digests.
    #[error("digest flags {flags:#04x} contradict the digests that were agreed on")]
    DigestFlags {
        /// FLAGS received.
        flags: u8,
    },
    /// The header was corrupted in transit.
    #[error("header digest is {received:#010x}, and the header gives {computed:#010x}")]
    HeaderDigest {
        /// The digest received.
        received: u32,
        /// The digest computed from the received header.
        computed: u32,
    },
    /// PLEN does not fit the header, the data length in it, or the limits.
    #[error("PLEN is {plen}, which fits neither the header nor the limits of this PDU")]
    PduLength {
        /// PLEN received.
        plen: u32,
    },
    /// PDO is outside the PDU, inside the header, or not aligned as negotiated.
    #[error("PDO is {pdo}, and data cannot start there")]
    DataOffset {
        /// PDO received.
        pdo: u8,
    },
    /// Another header field has an invalid value.
    #[error("the header field at offset {offset} has a value that it cannot have")]
    InvalidField {
        /// Bytes from the start of the PDU.
        offset: usize,
    },
    /// A parameter that this end does not support.
    #[error("the parameter at offset {offset} is not supported")]
    UnsupportedParameter {
        /// Bytes from the start of the PDU.
        offset: usize,
    },
    /// H2CData with more than MAXH2CDATA bytes.
    #[error("a data PDU carries {length} bytes, and the limit is {limit}")]
    DataLimit {
        /// DATAL received.
        length: u32,
        /// The announced limit in bytes.
        limit: u32,
    },
    /// C2HData with more bytes than any command requests.
    #[error("a data PDU carries {length} bytes, and no command asked for more than {limit}")]
    DataOutOfRange {
        /// DATAL received.
        length: u32,
        /// Bytes of the maximum transfer.
        limit: u32,
    },
}

impl FramingError {
    /// FES: the error code of the specification.
    pub const fn status(&self) -> FatalErrorStatus {
        match self {
            Self::OutOfSequence { .. } => FatalErrorStatus::PDU_SEQUENCE_ERROR,
            Self::HeaderDigest { .. } => FatalErrorStatus::HEADER_DIGEST_ERROR,
            Self::UnsupportedParameter { .. } => FatalErrorStatus::UNSUPPORTED_PARAMETER,
            Self::DataLimit { .. } => FatalErrorStatus::DATA_TRANSFER_LIMIT_EXCEEDED,
            Self::DataOutOfRange { .. } => FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE,
            _ => FatalErrorStatus::INVALID_PDU_HEADER_FIELD,
        }
    }

    /// FEI: the offset of the bad field, the bad digest, or 0.
    pub fn information(&self) -> u32 {
        match *self {
            Self::UnexpectedType { .. }
            | Self::OutOfSequence { .. }
            | Self::DataLimit { .. }
            | Self::DataOutOfRange { .. } => 0,
            Self::DigestFlags { .. } => 1,
            Self::HeaderLength { .. } => 2,
            Self::DataOffset { .. } => 3,
            Self::PduLength { .. } => 4,
            Self::HeaderDigest { received, .. } => received,
            Self::InvalidField { offset } | Self::UnsupportedParameter { offset } => {
                u32::try_from(offset).expect("a header has at most 128 bytes")
            }
        }
    }

    /// Returns the termination request for the peer.
    pub fn term_req(&self) -> TermReq {
        TermReq {
            status: self.status(),
            information: self.information(),
        }
    }
}
