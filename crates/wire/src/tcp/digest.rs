//! CRC32C, the digest of headers and data. `[NVMe-TCP 1.0 §3.6.3]`
//!
//! The digest is a little-endian 32-bit value after the bytes that it covers. A header digest
//! covers the HLEN bytes of the header, a data digest the payload without padding.

use crate::tcp::limits::DIGEST_BYTES;

/// Returns the CRC32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    if has_wide_multiplication() {
        crc_fast::crc32_iscsi(bytes)
    } else {
        ::crc32c::crc32c(bytes)
    }
}

/// Returns the CRC32C of the bytes with CRC32C `crc`, followed by `bytes`; 0 is the CRC32C of no
/// bytes.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    if has_wide_multiplication() {
        append_wide(crc, bytes)
    } else {
        ::crc32c::crc32c_append(crc, bytes)
    }
}

/// Continues a CRC32C with [`crc_fast`].
fn append_wide(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest =
        crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, (!crc).into());
    digest.update(bytes);
    u32::try_from(digest.finalize()).expect("a checksum of 32 bits")
}

/// Returns true if the processor multiplies 512 bits without carry. Then `crc_fast` is twice as fast
/// as the processor's CRC32C instruction; otherwise it is slower.
#[inline]
fn has_wide_multiplication() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx512vl")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Returns the digest of `bytes` in wire format.
#[inline]
pub fn digest_bytes(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    crc32c(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_libraries_agree_at_each_length_and_division() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(1100).collect();
        for len in 0..bytes.len() {
            let expected = ::crc32c::crc32c(&bytes[..len]);
            assert_eq!(crc_fast::crc32_iscsi(&bytes[..len]), expected);
            let (first, second) = bytes[..len].split_at(len * 2 / 3);
            assert_eq!(append_wide(append_wide(0, first), second), expected);
            assert_eq!(crc32c_append(crc32c(first), second), expected);
        }
    }
}
