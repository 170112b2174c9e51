//! The 16-byte completion (completion queue entry).

use crate::bytes::{put_u16, put_u64, u16_at, u64_at};
use crate::limits::COMPLETION_BYTES;
use crate::nvme::status::Status;

/// A completion. `[NVMe Base 2.0 §3.3.3.2]`
///
/// The phase tag is unused over fabrics: ignored when read, sent as zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Completion {
    /// Dwords 0 and 1: command-specific result.
    pub result: u64,
    /// SQHD: submission queue head, up to which the controller has consumed commands.
    pub sq_head: u16,
    /// SQID: reserved over fabrics, zero.
    pub sq_id: u16,
    /// CID of the completed command.
    pub cid: u16,
    /// Status field.
    pub status: Status,
}

impl Completion {
    /// Bytes on the wire.
    pub const SIZE: usize = COMPLETION_BYTES;

    /// A completion of command `cid` with `status` and result 0.
    #[inline]
    pub const fn new(cid: u16, sq_head: u16, status: Status) -> Self {
        Self {
            result: 0,
            sq_head,
            sq_id: 0,
            cid,
            status,
        }
    }

    /// Dword 0 of the result.
    #[inline]
    pub const fn dword0(&self) -> u32 {
        (self.result & 0xffff_ffff) as u32
    }

    /// Parses a completion; any 16 bytes are valid.
    #[inline]
    pub fn parse(bytes: &[u8; COMPLETION_BYTES]) -> Self {
        Self {
            result: u64_at(bytes, 0),
            sq_head: u16_at(bytes, 8),
            sq_id: u16_at(bytes, 10),
            cid: u16_at(bytes, 12),
            status: Status(u16_at(bytes, 14) >> 1),
        }
    }

    /// Encodes the completion.
    #[inline]
    pub fn encode(&self, out: &mut [u8; COMPLETION_BYTES]) {
        put_u64(out, 0, self.result);
        put_u16(out, 8, self.sq_head);
        put_u16(out, 10, self.sq_id);
        put_u16(out, 12, self.cid);
        put_u16(out, 14, self.status.0 << 1);
    }

    /// Returns the completion as bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; COMPLETION_BYTES] {
        let mut out = [0; COMPLETION_BYTES];
        self.encode(&mut out);
        out
    }
}
