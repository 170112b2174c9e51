//! CRC32C, the digest of headers and data. `[NVMe-TCP 1.0 §3.6.3]`
//!
//! The digest is a little-endian 32-bit value after the bytes that it covers. A header digest
//! covers the HLEN bytes of the header, a data digest the payload without padding.

use crate::tcp::limits::DIGEST_BYTES;

/// Returns the CRC32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// Returns the CRC32C of the bytes with CRC32C `crc`, followed by `bytes`; 0 is the CRC32C of no
/// bytes.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, bytes)
}

/// Returns the digest of `bytes` in wire format.
#[inline]
pub fn digest_bytes(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    crc32c(bytes).to_le_bytes()
}
