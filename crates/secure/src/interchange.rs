//! The text form of keys: `PREFIX-1:hh:base64(key ‖ CRC-32):`, with `hh` the hash function.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use zeroize::Zeroizing;

use crate::Hash;

/// Why a text is not a key. The messages contain nothing of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Another kind of text.
    #[error("not a key of this kind: the text must begin with {0}-1:")]
    Prefix(&'static str),
    /// A version other than 1.
    #[error("unsupported version of {0}: only {0}-1 is known")]
    Version(&'static str),
    /// The parts are not separated and ended by colons.
    #[error("incomplete: a key has the form {0}-1:hh:BASE64: and ends with a colon")]
    Form(&'static str),
    /// A hash function that the kind of key does not have.
    #[error("unknown hash function: the part after {0}-1: must be {1}")]
    Hash(&'static str, &'static str),
    /// The last part is not Base64.
    #[error("the part between the last two colons is not Base64 with padding; copy the key anew")]
    Base64,
    /// The number of bytes.
    #[error("the key has {bytes} bytes, and must have {allowed}")]
    Length {
        /// Bytes of the key.
        bytes: usize,
        /// The permitted lengths.
        allowed: &'static str,
    },
    /// The number of bytes differs from that of the hash function.
    #[error(
        "the key has {bytes} bytes, but its hash function {} needs {}",
        hash.name(),
        hash.bytes()
    )]
    LengthOfHash {
        /// Bytes of the key.
        bytes: usize,
        /// The hash function.
        hash: Hash,
    },
    /// The CRC-32 does not fit the key.
    #[error("the checksum of the key is wrong; copy the key anew")]
    Checksum,
}

/// A kind of key.
pub(crate) struct Kind {
    /// Before `-1:`.
    pub(crate) prefix: &'static str,
    /// The permitted hash functions; code 00h is always permitted.
    pub(crate) hashes: &'static [Hash],
    /// The same for a message.
    pub(crate) codes: &'static str,
    /// The permitted lengths in bytes.
    pub(crate) lengths: &'static [usize],
    /// The same for a message.
    pub(crate) lengths_text: &'static str,
}

/// The transformation hash, if any, and the bytes of a key.
pub(crate) type Parts = (Option<Hash>, Zeroizing<Vec<u8>>);

impl Kind {
    /// Parses a key.
    pub(crate) fn parse(&self, text: &str) -> Result<Parts, KeyError> {
        let rest = text
            .strip_prefix(self.prefix)
            .and_then(|rest| rest.strip_prefix('-'))
            .ok_or(KeyError::Prefix(self.prefix))?;
        let (version, rest) = rest.split_once(':').ok_or(KeyError::Form(self.prefix))?;
        if version != "1" {
            return Err(KeyError::Version(self.prefix));
        }
        let (code, rest) = rest.split_once(':').ok_or(KeyError::Form(self.prefix))?;
        let hash = self.hash(code)?;
        let encoded = rest.strip_suffix(':').ok_or(KeyError::Form(self.prefix))?;
        let decoded = BASE64.decode(encoded).map_err(|_| KeyError::Base64)?;
        let decoded = Zeroizing::new(decoded);
        let (key, checksum) = decoded
            .split_last_chunk()
            .ok_or_else(|| self.length_error(0))?;
        self.check(hash, key)?;
        if crc32(key) != u32::from_le_bytes(*checksum) {
            return Err(KeyError::Checksum);
        }
        Ok((hash, Zeroizing::new(key.to_vec())))
    }

    /// Checks the length of a key.
    pub(crate) fn check(&self, hash: Option<Hash>, key: &[u8]) -> Result<(), KeyError> {
        let bytes = key.len();
        if !self.lengths.contains(&bytes) {
            return Err(self.length_error(bytes));
        }
        match hash {
            Some(hash) if !self.hashes.contains(&hash) => {
                Err(KeyError::Hash(self.prefix, self.codes))
            }
            Some(hash) if hash.bytes() != bytes => Err(KeyError::LengthOfHash { bytes, hash }),
            _ => Ok(()),
        }
    }

    /// Writes a key.
    pub(crate) fn write(&self, hash: Option<Hash>, key: &[u8]) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(key.len() + 4));
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&crc32(key).to_le_bytes());
        let encoded = Zeroizing::new(BASE64.encode(&*bytes));
        let code = hash.map_or(0, Hash::code);
        Zeroizing::new(format!("{}-1:{code:02}:{}:", self.prefix, *encoded))
    }

    fn hash(&self, code: &str) -> Result<Option<Hash>, KeyError> {
        if code == "00" {
            return Ok(None);
        }
        let mut hashes = self.hashes.iter().copied();
        hashes
            .find(|hash| code == format!("{:02}", hash.code()))
            .map(Some)
            .ok_or(KeyError::Hash(self.prefix, self.codes))
    }

    fn length_error(&self, bytes: usize) -> KeyError {
        KeyError::Length {
            bytes,
            allowed: self.lengths_text,
        }
    }
}

/// CRC-32 as of Ethernet and zlib, reflected. Bit by bit, so that no table is read at an index that
/// depends on the key.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1))
        })
    })
}
