//! CapsuleResp: a completion. `[NVMe-TCP 1.0 §3.6.2.7]`

use crate::limits::COMPLETION_BYTES;
use crate::nvme::Completion;
use crate::tcp::header::{PduFormat, PduType, seal};
use crate::tcp::limits::{COMMON_HEADER_BYTES, SHORT_HEADER_BYTES};

/// A response capsule. NVMe/TCP has no data in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CapsuleResp {
    /// RCCQE: the completion.
    pub completion: Completion,
}

impl CapsuleResp {
    /// HLEN.
    pub const SIZE: usize = SHORT_HEADER_BYTES;

    /// Parses a CapsuleResp with a checked common header.
    #[inline]
    pub fn parse(bytes: &[u8; SHORT_HEADER_BYTES]) -> Self {
        let mut completion = [0; COMPLETION_BYTES];
        completion.copy_from_slice(&bytes[COMMON_HEADER_BYTES..]);
        Self {
            completion: Completion::parse(&completion),
        }
    }

    /// Writes the PDU; returns its length, 24 or (with a header digest) 28.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than that.
    #[inline]
    pub fn encode(&self, format: &PduFormat, out: &mut [u8]) -> usize {
        out[COMMON_HEADER_BYTES..SHORT_HEADER_BYTES].copy_from_slice(&self.completion.to_bytes());
        seal(out, PduType::CapsuleResp, 0, 0, format)
    }
}
