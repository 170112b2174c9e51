//! Pre-shared keys of TLS: configured keys, identities, and the PSKs derived from them.
//! `[NVMe-TCP 1.1 §3.6.1.3–5]`

use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use zeroize::Zeroizing;

use crate::Hash;
use crate::hash::{equal, label};
use crate::interchange::{KeyError, Kind};

const KIND: Kind = Kind {
    prefix: "NVMeTLSkey",
    hashes: &[Hash::Sha256, Hash::Sha384],
    codes: "00, 01 (SHA-256) or 02 (SHA-384)",
    lengths: &[32, 48],
    lengths_text: "32 or 48",
};

/// A configured PSK, as in the PSK interchange format `NVMeTLSkey-1:hh:BASE64:`.
#[derive(Clone)]
pub struct TlsKey {
    /// The hash function that makes the retained PSK of it; without one it is used as it is.
    hash: Option<Hash>,
    key: Zeroizing<Vec<u8>>,
}

impl TlsKey {
    /// Parses the interchange format.
    ///
    /// # Errors
    ///
    /// Why the text is not a key.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let (hash, key) = KIND.parse(text)?;
        Ok(Self { hash, key })
    }

    /// Makes a key of random bytes.
    ///
    /// # Errors
    ///
    /// If there are neither 32 nor 48 bytes, or not as many as in the hash.
    pub fn new(hash: Option<Hash>, key: &[u8]) -> Result<Self, KeyError> {
        KIND.check(hash, key)?;
        let key = Zeroizing::new(key.to_vec());
        Ok(Self { hash, key })
    }

    /// Writes the interchange format.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        KIND.write(self.hash, &self.key)
    }

    /// Returns the hash function of the retained PSK; nothing if the key is used as it is.
    #[must_use]
    pub fn hash(&self) -> Option<Hash> {
        self.hash
    }

    /// Returns the length of the key in bytes: 32 or 48.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.key.len()
    }

    /// Returns the hash function of the key's identities and cipher suite: SHA-256 for
    /// TLS_AES_128_GCM_SHA256, SHA-384 for TLS_AES_256_GCM_SHA384.
    #[must_use]
    pub fn suite_hash(&self) -> Hash {
        self.hash.unwrap_or(match self.key.len() {
            32 => Hash::Sha256,
            _ => Hash::Sha384,
        })
    }

    /// Derives the retained PSK for a host.
    fn retained(&self, derivation: Derivation, hostnqn: &str) -> Option<Zeroizing<Vec<u8>>> {
        let Some(hash) = self.hash else {
            return Some(self.key.clone());
        };
        derivation.derive(hash, &self.key, "HostNQN", hostnqn, self.key.len())
    }
}

impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKey")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

impl PartialEq for TlsKey {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && equal(&self.key, &other.key)
    }
}

impl Eq for TlsKey {}

/// How a PSK was derived from its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Derivation {
    /// As specified, with HKDF-Expand-Label.
    Specified,
    /// As by libnvme up to 1.15 (nvme-cli up to 2.15): a little-endian length, and no length before
    /// label and context.
    Libnvme,
}

impl Derivation {
    /// Derives `length` bytes, or nothing if the context is too long for the derivation.
    fn derive(
        self,
        hash: Hash,
        secret: &[u8],
        name: &str,
        context: &str,
        length: usize,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let info = match self {
            Self::Specified => label(name, context.as_bytes(), length)?,
            Self::Libnvme => {
                let mut info = u16::try_from(length).ok()?.to_le_bytes().to_vec();
                for part in ["tls13 ", name, context] {
                    info.extend_from_slice(part.as_bytes());
                }
                info
            }
        };
        Some(hash.hkdf(secret, &[&info], length))
    }
}

/// A pre-shared key of a TLS handshake between a host and a subsystem.
#[derive(Clone)]
pub struct Psk {
    /// The identity in the ClientHello.
    pub identity: String,
    /// The hash function of the identity and of the cipher suite.
    pub hash: Hash,
    /// Version of the identity: 0 or 1.
    pub version: u8,
    /// How the secret was derived.
    pub derivation: Derivation,
    /// The secret, as many bytes as a digest has.
    pub secret: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk")
            .field("identity", &self.identity)
            .field("derivation", &self.derivation)
            .finish_non_exhaustive()
    }
}

/// Derives all PSKs of a key for a host and a subsystem.
///
/// The order is that of preference: the specified derivation before that of old libnvme, version 1
/// before version 0. With both derivations, an identity may occur twice with different secrets:
/// version 0 always, version 1 for keys without hash function. At most four; less if the names are
/// too long for HKDF-Expand-Label (version 0 with an identity of more than 255 bytes).
#[must_use]
pub fn offers(key: &TlsKey, hostnqn: &str, subnqn: &str) -> Vec<Psk> {
    let forms = [Derivation::Specified, Derivation::Libnvme];
    let all = forms.into_iter().flat_map(|form| [(form, 1), (form, 0)]);
    all.filter_map(|(form, version)| offer(key, form, version, hostnqn, subnqn))
        .collect()
}

fn offer(
    key: &TlsKey,
    derivation: Derivation,
    version: u8,
    hostnqn: &str,
    subnqn: &str,
) -> Option<Psk> {
    let hash = key.suite_hash();
    let retained = key.retained(derivation, hostnqn)?;
    let code = hash.code();
    let mut identity = format!("NVMe{version}R{code:02} {hostnqn} {subnqn}");
    let context = if version == 0 {
        identity.clone()
    } else {
        let digest = digest(hash, &retained, hostnqn, subnqn);
        identity = format!("{identity} {digest}");
        // The space is libnvme's as well.
        format!("{code:02} {digest}")
    };
    let secret = derivation.derive(hash, &retained, "nvme-tls-psk", &context, hash.bytes())?;
    Some(Psk {
        identity,
        hash,
        version,
        derivation,
        secret,
    })
}

/// The PSK digest of an identity of version 1.
fn digest(hash: Hash, retained: &[u8], hostnqn: &str, subnqn: &str) -> String {
    let parts: [&[u8]; 4] = [
        hostnqn.as_bytes(),
        b" ",
        subnqn.as_bytes(),
        b" NVMe-over-Fabrics",
    ];
    BASE64.encode(&*hash.hmac(retained, &parts))
}

/// The parts of a PSK identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity<'a> {
    /// Version: 0 or 1.
    pub version: u8,
    /// The PSK was generated by DH-HMAC-CHAP (`G`), not configured (`R`).
    pub generated: bool,
    /// The hash function: SHA-256 or SHA-384.
    pub hash: Hash,
    /// The host's name. Not checked: any text without a space.
    pub hostnqn: &'a str,
    /// The subsystem's name, as unchecked.
    pub subnqn: &'a str,
    /// The PSK digest in Base64; only in version 1.
    pub digest: Option<&'a str>,
}

/// Why bytes are not a PSK identity of NVMe/TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Not in the form of the specification.
    #[error("the identity has not the form NVMe0Rhh HOSTNQN SUBNQN or NVMe1Rhh … DIGEST")]
    Form,
    /// A version other than 0 and 1.
    #[error("the identity has an unknown version; versions 0 and 1 are known")]
    Version,
    /// A hash function other than SHA-256 and SHA-384.
    #[error("the identity has an unknown hash function; 01 (SHA-256) and 02 (SHA-384) are known")]
    Hash,
}

impl<'a> Identity<'a> {
    /// Parses an identity.
    ///
    /// # Errors
    ///
    /// Why the bytes are not an identity.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, IdentityError> {
        let text = core::str::from_utf8(bytes).map_err(|_| IdentityError::Form)?;
        let mut parts = text.split(' ');
        let mut part = || {
            let part = parts.next().filter(|part| !part.is_empty());
            part.ok_or(IdentityError::Form)
        };
        let [b'N', b'V', b'M', b'e', version, kind, code @ ..] = part()?.as_bytes() else {
            return Err(IdentityError::Form);
        };
        let version = match version {
            b'0' => 0,
            b'1' => 1,
            b'2'..=b'9' => return Err(IdentityError::Version),
            _ => return Err(IdentityError::Form),
        };
        let generated = match kind {
            b'R' => false,
            b'G' => true,
            _ => return Err(IdentityError::Form),
        };
        let hash = match code {
            b"01" => Hash::Sha256,
            b"02" => Hash::Sha384,
            _ => return Err(IdentityError::Hash),
        };
        let (hostnqn, subnqn) = (part()?, part()?);
        let digest = if version == 0 { None } else { Some(part()?) };
        if parts.next().is_some() {
            return Err(IdentityError::Form);
        }
        Ok(Self {
            version,
            generated,
            hash,
            hostnqn,
            subnqn,
            digest,
        })
    }
}

#[cfg(test)]
#[path = "psk_tests.rs"]
mod tests;
