//! CRC32C, the digest of headers and of data. `[NVMe-TCP 1.0 §3.6.3]`
//!
//! The digest travels as a little-endian 32-bit value after what it covers. A header digest covers
//! the HLEN bytes of the header, a data digest the payload without any padding.

use crate::tcp::limits::DIGEST_BYTES;

/// CRC32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// CRC32C of what gave `crc`, followed by `bytes`; 0 is the CRC32C of nothing.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, bytes)
}

/// The digest of `bytes` as it is sent.
#[inline]
pub fn digest_bytes(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    crc32c(bytes).to_le_bytes()
}
