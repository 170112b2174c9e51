//! The first ClientHello of a TLS 1.3 handshake, as far as it offers PSKs. `[RFC 8446 §4.1.2]`
//!
//! A target finds with it the key and the derivation that a host uses before a TLS library sees the
//! message, and can say what is wrong when none fits.

use crate::Hash;
use crate::hash::{equal, label};
use crate::psk::Psk;

/// Bound of the message, header included. The messages of Linux, SPDK and OpenSSL with one PSK have
/// less than 1 KiB.
pub const CLIENT_HELLO_BYTES_MAX: usize = 16 * 1024;

/// A ClientHello with its PSKs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// The offered PSKs, in the host's order. Empty if the extension `pre_shared_key` is absent.
    pub offers: Vec<Offer>,
    /// The offered cipher suites, such as 1301h.
    pub suites: Vec<u16>,
    /// The host supports TLS 1.3.
    pub is_tls13: bool,
    /// The message up to the binders, on which these are computed.
    truncated: Vec<u8>,
}

/// One offered PSK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The identity: any bytes, at least one.
    pub identity: Vec<u8>,
    /// The binder: proof that the host has the secret, 32 to 255 bytes.
    pub binder: Vec<u8>,
}

/// Why bytes are not a whole ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientHelloError {
    /// The bytes so far are right: more must arrive.
    #[error("the ClientHello is incomplete")]
    Incomplete,
    /// The first record is not a TLS handshake.
    #[error("the peer does not speak TLS")]
    NotTls,
    /// Over the bound.
    #[error("the ClientHello is longer than {CLIENT_HELLO_BYTES_MAX} bytes")]
    TooLong,
    /// The named part is malformed.
    #[error("the ClientHello is malformed: {0}")]
    Malformed(&'static str),
}

impl ClientHello {
    /// Parses the first bytes of a connection: one or more TLS records. Bytes after the message are
    /// ignored.
    ///
    /// # Errors
    ///
    /// [`Incomplete`](ClientHelloError::Incomplete) as long as all bytes are right so far; else
    /// what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, ClientHelloError> {
        let message = message(bytes)?;
        let mut body = Reader(&message[4..]);
        body.take(2 + 32, "its version and random")?;
        body.vector8("its session identifier")?;
        let suites = body.vector16("its cipher suites")?.0;
        if suites.is_empty() || suites.len() % 2 != 0 {
            return Err(ClientHelloError::Malformed("its cipher suites"));
        }
        body.vector8("its compression methods")?;
        let mut hello = Self {
            offers: Vec::new(),
            suites: suites.chunks_exact(2).map(be).collect(),
            is_tls13: false,
            truncated: Vec::new(),
        };
        // Without extensions it is of TLS 1.2 or older.
        if body.0.is_empty() {
            return Ok(hello);
        }
        let mut extensions = body.vector16("its extensions")?;
        if !body.0.is_empty() {
            return Err(ClientHelloError::Malformed("bytes after its extensions"));
        }
        while !extensions.0.is_empty() {
            let kind = be(extensions.take(2, "an extension")?);
            let mut extension = extensions.vector16("an extension")?;
            match kind {
                SUPPORTED_VERSIONS => {
                    let versions = extension.vector8("its supported versions")?.0;
                    hello.is_tls13 = versions.chunks_exact(2).any(|version| be(version) == TLS13);
                }
                PRE_SHARED_KEY => {
                    // "MUST be the last extension": the binders end the message.
                    if !extensions.0.is_empty() {
                        return Err(ClientHelloError::Malformed("an extension after its PSKs"));
                    }
                    let binders = hello.read_offers(extension)?;
                    hello.truncated = message[..message.len() - binders].to_vec();
                }
                _ => {}
            }
        }
        Ok(hello)
    }

    /// Returns true if the binder of an offer was made with the PSK. The identity is not compared.
    /// Takes the same time for each result.
    #[must_use]
    pub fn binder_matches(&self, offer: &Offer, psk: &Psk) -> bool {
        let transcript = psk.hash.digest(&self.truncated);
        let expected = binder(psk.hash, &psk.secret, "ext binder", transcript.as_ref());
        equal(&expected, &offer.binder)
    }

    /// Returns true if the host offers the cipher suite of a hash function.
    #[must_use]
    pub fn offers_suite(&self, hash: Hash) -> bool {
        let suite = match hash {
            Hash::Sha256 => 0x1301,
            Hash::Sha384 => 0x1302,
            Hash::Sha512 => return false,
        };
        self.suites.contains(&suite)
    }

    /// Reads the extension `pre_shared_key`, and returns the length of its binders with their
    /// length field.
    fn read_offers(&mut self, mut extension: Reader<'_>) -> Result<usize, ClientHelloError> {
        const PART: &str = "its PSKs";
        let mut identities = extension.vector16(PART)?;
        let binders_length = extension.0.len();
        let mut binders = extension.vector16(PART)?;
        if !extension.0.is_empty() {
            return Err(ClientHelloError::Malformed(PART));
        }
        while !identities.0.is_empty() {
            let identity = identities.vector16(PART)?.0.to_vec();
            identities.take(4, PART)?;
            let binder = binders.vector8(PART)?.0.to_vec();
            if identity.is_empty() || binder.len() < 32 {
                return Err(ClientHelloError::Malformed(PART));
            }
            self.offers.push(Offer { identity, binder });
        }
        if self.offers.is_empty() || !binders.0.is_empty() {
            return Err(ClientHelloError::Malformed(PART));
        }
        Ok(binders_length)
    }
}

/// Joins the handshake message of the first records.
fn message(bytes: &[u8]) -> Result<Vec<u8>, ClientHelloError> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        // Each byte is judged as soon as it is there, so that a peer that speaks another protocol
        // is not waited for.
        match rest.first() {
            Some(&HANDSHAKE) => {}
            Some(_) if message.is_empty() => return Err(ClientHelloError::NotTls),
            Some(_) => return Err(ClientHelloError::Malformed("another record amid it")),
            None => return Err(ClientHelloError::Incomplete),
        }
        if rest.get(1).is_some_and(|major| *major != 3) {
            return Err(ClientHelloError::NotTls);
        }
        let [_, _, _, high, low, following @ ..] = rest else {
            return Err(ClientHelloError::Incomplete);
        };
        let length = usize::from(be(&[*high, *low]));
        if length == 0 || length > RECORD_BYTES_MAX {
            return Err(ClientHelloError::Malformed("the length of a record"));
        }
        let part = &following[..length.min(following.len())];
        message.extend_from_slice(part);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(ClientHelloError::Malformed("another handshake message"));
        }
        if let [_, high, middle, low, ..] = message[..] {
            let total = 4 + (usize::from(high) << 16) + usize::from(be(&[middle, low]));
            if total > CLIENT_HELLO_BYTES_MAX {
                return Err(ClientHelloError::TooLong);
            }
            if message.len() >= total {
                message.truncate(total);
                return Ok(message);
            }
        }
        if part.len() < length {
            return Err(ClientHelloError::Incomplete);
        }
        rest = &following[length..];
    }
}

/// The binder over a hash of the transcript. `[RFC 8446 §4.2.11.2, §7.1]`
fn binder(hash: Hash, secret: &[u8], name: &str, transcript: &[u8]) -> Vec<u8> {
    let length = hash.bytes();
    let info = |name: &str, context: &[u8]| label(name, context, length).expect("short");
    let early = hash.hmac(&vec![0; length], &[secret]);
    let key = hash.expand(&early, &[&info(name, hash.digest(&[]).as_ref())], length);
    let finished = hash.expand(&key, &[&info("finished", &[])], length);
    hash.hmac(&finished, &[transcript]).to_vec()
}

/// Bytes not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize, part: &'static str) -> Result<&'a [u8], ClientHelloError> {
        let taken = self.0.split_at_checked(count);
        let (taken, rest) = taken.ok_or(ClientHelloError::Malformed(part))?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes a vector with a length of one byte.
    fn vector8(&mut self, part: &'static str) -> Result<Self, ClientHelloError> {
        let length = self.take(1, part)?[0];
        self.take(usize::from(length), part).map(Self)
    }

    /// Takes a vector with a length of two bytes.
    fn vector16(&mut self, part: &'static str) -> Result<Self, ClientHelloError> {
        let length = be(self.take(2, part)?);
        self.take(usize::from(length), part).map(Self)
    }
}

/// The number in two bytes. TLS is big-endian.
#[expect(clippy::big_endian_bytes)]
fn be(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const RECORD_BYTES_MAX: usize = 1 << 14;
const SUPPORTED_VERSIONS: u16 = 43;
const PRE_SHARED_KEY: u16 = 41;
const TLS13: u16 = 0x0304;

#[cfg(test)]
#[path = "client_hello_tests.rs"]
mod tests;
