//! Hash functions, and what is derived with them: HMAC, HKDF and HKDF-Expand-Label.

use aws_lc_rs::{digest, hkdf, hmac};
use zeroize::Zeroizing;

/// A hash function of keys and authentication, with the same code in all formats of NVMe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hash {
    /// SHA-256, code 01h.
    Sha256,
    /// SHA-384, code 02h.
    Sha384,
    /// SHA-512, code 03h. DH-HMAC-CHAP only.
    Sha512,
}

impl Hash {
    /// All hash functions, by code.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// Returns the function with this code: 1, 2 or 3.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.code() == code)
    }

    /// Returns the code, 1 to 3.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha384 => 2,
            Self::Sha512 => 3,
        }
    }

    /// Returns the length of the digest in bytes: 32, 48 or 64.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Returns the name, such as `SHA-256`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
        }
    }

    /// Returns the digest of the bytes.
    pub(crate) fn digest(self, bytes: &[u8]) -> digest::Digest {
        let algorithm = match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, bytes)
    }

    /// Returns the HMAC of the parts, one after the other.
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        let algorithm = match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
        for part in parts {
            context.update(part);
        }
        Zeroizing::new(context.sign().as_ref().to_vec())
    }

    /// HKDF-Extract without salt, then HKDF-Expand to `length` bytes with `info`, one part after
    /// the other. `[RFC 5869 §2]`
    ///
    /// `length` is at most the size of a digest.
    pub(crate) fn hkdf(self, secret: &[u8], info: &[&[u8]], length: usize) -> Zeroizing<Vec<u8>> {
        let extracted = hkdf::Salt::new(self.hkdf_algorithm(), &[]).extract(secret);
        expand(&extracted, info, length)
    }

    /// HKDF-Expand with a secret that has been extracted. `length` is at most the size of a digest.
    pub(crate) fn expand(self, secret: &[u8], info: &[&[u8]], length: usize) -> Zeroizing<Vec<u8>> {
        let extracted = hkdf::Prk::new_less_safe(self.hkdf_algorithm(), secret);
        expand(&extracted, info, length)
    }

    fn hkdf_algorithm(self) -> hkdf::Algorithm {
        match self {
            Self::Sha256 => hkdf::HKDF_SHA256,
            Self::Sha384 => hkdf::HKDF_SHA384,
            Self::Sha512 => hkdf::HKDF_SHA512,
        }
    }
}

/// The `HkdfLabel` of HKDF-Expand-Label, or nothing if the context is longer than 255 bytes.
/// `[RFC 8446 §7.1]`
pub(crate) fn label(label: &str, context: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut info = Vec::with_capacity(10 + label.len() + context.len());
    info.extend_from_slice(&be16(length)?);
    info.push(u8::try_from(6 + label.len()).ok()?);
    info.extend_from_slice(b"tls13 ");
    info.extend_from_slice(label.as_bytes());
    info.push(u8::try_from(context.len()).ok()?);
    info.extend_from_slice(context);
    Some(info)
}

/// Compares in a time that depends on the lengths only.
pub(crate) fn equal(left: &[u8], right: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(left, right).is_ok()
}

fn expand(secret: &hkdf::Prk, info: &[&[u8]], length: usize) -> Zeroizing<Vec<u8>> {
    let mut derived = Zeroizing::new(vec![0; length]);
    secret
        .expand(info, Length(length))
        .and_then(|output| output.fill(&mut derived))
        .expect("at most 255 digests");
    derived
}

// TLS is big-endian.
#[expect(clippy::big_endian_bytes)]
fn be16(value: usize) -> Option<[u8; 2]> {
    Some(u16::try_from(value).ok()?.to_be_bytes())
}

/// The length of what HKDF derives.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Bytes from hexadecimal digits; spaces are ignored.
#[cfg(test)]
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .collect();
    let pairs = digits.chunks_exact(2);
    pairs
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}
