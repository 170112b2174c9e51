//! Secrets of DH-HMAC-CHAP. `[NVMe Base 2.0 §8.13.5.7, §8.13.5.8]`

use core::fmt;

use zeroize::Zeroizing;

use crate::Hash;
use crate::hash::equal;
use crate::interchange::{KeyError, Kind};

const KIND: Kind = Kind {
    prefix: "DHHC",
    hashes: &Hash::ALL,
    codes: "00, 01 (SHA-256), 02 (SHA-384) or 03 (SHA-512)",
    lengths: &[32, 48, 64],
    lengths_text: "32, 48 or 64",
};

/// A secret in the form `DHHC-1:hh:BASE64:`.
#[derive(Clone)]
pub struct Secret {
    /// The hash function that transforms it; without one it is used as it is.
    hash: Option<Hash>,
    key: Zeroizing<Vec<u8>>,
}

impl Secret {
    /// Parses a secret.
    ///
    /// # Errors
    ///
    /// Why the text is not a secret.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let (hash, key) = KIND.parse(text)?;
        Ok(Self { hash, key })
    }

    /// Makes a secret of random bytes.
    ///
    /// # Errors
    ///
    /// If there are not 32, 48 or 64 bytes, or not as many as in the hash.
    pub fn new(hash: Option<Hash>, key: &[u8]) -> Result<Self, KeyError> {
        KIND.check(hash, key)?;
        let key = Zeroizing::new(key.to_vec());
        Ok(Self { hash, key })
    }

    /// Writes the secret.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        KIND.write(self.hash, &self.key)
    }

    /// Returns the hash function that transforms the secret, if any.
    #[must_use]
    pub fn hash(&self) -> Option<Hash> {
        self.hash
    }

    /// Returns the length of the key in bytes: 32, 48 or 64.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.key.len()
    }

    /// Returns the transformed key of an entity: the host's name for a host's secret, the
    /// subsystem's for a controller's.
    #[must_use]
    pub fn transformed(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.hash {
            None => self.key.clone(),
            Some(hash) => hash.hmac(&self.key, &[nqn.as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && equal(&self.key, &other.key)
    }
}

impl Eq for Secret {}
