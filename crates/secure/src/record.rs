//! The records of TLS 1.3 after the handshake: application data, KeyUpdate and alerts.
//! `[RFC 8446 §5, §4.6, §6, §7.2]`
//!
//! The handshake is a library's; it leaves two traffic secrets. A [`Sealer`] encrypts records in
//! place with one of them, an [`Opener`] decrypts records in place with the other. Nothing of a
//! record is returned before its tag was verified. After an error the connection must end.

mod packed;

pub use packed::{Fields, pack, unpack};

use crate::Hash;
use crate::hash::label;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use base::mutation::{self, Mutation};
use std::ops::Range;
use thiserror::Error;
use zeroize::Zeroizing;

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 5;

/// Maximum data of a record, in bytes. `[RFC 8446 §5.1]`
pub const DATA_MAX: usize = 1 << 14;

/// Bytes of a record in addition to its data: header, content type, tag.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;

/// Maximum bytes of a record: a peer may pad it. `[RFC 8446 §5.2]`
pub const RECORD_MAX: usize = HEADER_BYTES + DATA_MAX + 256;

/// Maximum records per key: 2^24.5. `[RFC 8446 §5.5]`
pub const RECORDS_MAX: u64 = 23_726_566;

/// Bytes of a KeyUpdate or an alert, encrypted; no other message is sent here.
pub const MESSAGE_MAX: usize = OVERHEAD_BYTES + 5;

const TAG_BYTES: usize = 16;

/// Content types. `[RFC 8446 §5.1]`
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// Handshake messages. `[RFC 8446 §4]`
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// The cipher suites of NVMe/TCP. `[NVMe-TCP 1.1 §3.6.1.2]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// TLS_AES_128_GCM_SHA256.
    Aes128GcmSha256,
    /// TLS_AES_256_GCM_SHA384.
    Aes256GcmSha384,
}

impl Suite {
    /// Returns the suite with this number; `None` for others.
    #[must_use]
    pub const fn from_number(number: [u8; 2]) -> Option<Self> {
        match number {
            [0x13, 0x01] => Some(Self::Aes128GcmSha256),
            [0x13, 0x02] => Some(Self::Aes256GcmSha384),
            _ => None,
        }
    }

    /// Returns its number in the registry of suites.
    #[must_use]
    pub const fn number(self) -> [u8; 2] {
        match self {
            Self::Aes128GcmSha256 => [0x13, 0x01],
            Self::Aes256GcmSha384 => [0x13, 0x02],
        }
    }

    /// The name in the registry of suites.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128GcmSha256 => "TLS_AES_128_GCM_SHA256",
            Self::Aes256GcmSha384 => "TLS_AES_256_GCM_SHA384",
        }
    }

    /// The hash function of its keys.
    #[must_use]
    pub const fn hash(self) -> Hash {
        match self {
            Self::Aes128GcmSha256 => Hash::Sha256,
            Self::Aes256GcmSha384 => Hash::Sha384,
        }
    }

    /// Bytes of a traffic secret: those of the hash.
    #[must_use]
    pub fn secret_bytes(self) -> usize {
        self.hash().bytes()
    }

    const fn key_bytes(self) -> usize {
        match self {
            Self::Aes128GcmSha256 => 16,
            Self::Aes256GcmSha384 => 32,
        }
    }
}

/// An alert that ends the connection. `[RFC 8446 §6]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert(pub u8);

impl Alert {
    /// The sender sends nothing more.
    pub const CLOSE_NOTIFY: Self = Self(0);
    /// A message came that may not come now.
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
    /// A record's tag is wrong.
    pub const BAD_RECORD_MAC: Self = Self(20);
    /// A record is too long.
    pub const RECORD_OVERFLOW: Self = Self(22);
    /// The peers have no security parameters in common.
    pub const HANDSHAKE_FAILURE: Self = Self(40);
    /// A message is malformed.
    pub const DECODE_ERROR: Self = Self(50);
    /// A binder, or a Finished message, is wrong: the keys differ.
    pub const DECRYPT_ERROR: Self = Self(51);
    /// The identity of the pre-shared key is unknown.
    pub const UNKNOWN_PSK_IDENTITY: Self = Self(115);

    /// The record with which a peer without keys is refused.
    #[must_use]
    pub const fn in_clear(self) -> [u8; 7] {
        [ALERT, 3, 3, 0, 2, 2, self.0]
    }
}

impl std::fmt::Display for Alert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            22 => "record_overflow",
            40 => "handshake_failure",
            47 => "illegal_parameter",
            48 => "unknown_ca",
            49 => "access_denied",
            50 => "decode_error",
            51 => "decrypt_error",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            90 => "user_canceled",
            109 => "missing_extension",
            115 => "unknown_psk_identity",
            116 => "certificate_required",
            other => return write!(f, "{other}"),
        };
        f.write_str(name)
    }
}

/// The reason why received records end the connection.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// Longer than [`RECORD_MAX`], or more data than [`DATA_MAX`].
    #[error("a TLS record is longer than 16 KiB")]
    TooLong,
    /// It was changed, or encrypted with another key.
    #[error("the tag of a TLS record is wrong: it was changed on its way")]
    Forged,
    /// Its type, or the message in it, is not allowed after the handshake.
    #[error("a TLS record has a type that is not allowed after the handshake")]
    Unexpected,
    /// A message in it is malformed.
    #[error("a TLS message is malformed")]
    Malformed,
    /// More KeyUpdates than records justify; each costs as much as hundreds of records.
    #[error("the peer changes its TLS keys too often")]
    Updates,
    /// The peer ends the connection because of an error.
    #[error("the peer ended TLS with the alert {0}")]
    Alert(Alert),
}

impl RecordError {
    /// The alert that tells the peer; `None` if the peer sent one itself.
    #[must_use]
    pub const fn alert(self) -> Option<Alert> {
        match self {
            Self::TooLong => Some(Alert::RECORD_OVERFLOW),
            Self::Forged => Some(Alert::BAD_RECORD_MAC),
            Self::Unexpected | Self::Updates => Some(Alert::UNEXPECTED_MESSAGE),
            Self::Malformed => Some(Alert::DECODE_ERROR),
            Self::Alert(_) => None,
        }
    }
}

/// KeyUpdates that a peer may send at any time.
const UPDATES_FREE: u64 = 16;

/// Records for each further KeyUpdate: with less a peer could keep a core busy.
const UPDATE_RECORDS: u64 = 256;

/// A traffic secret and its key.
struct Keys {
    suite: Suite,
    secret: Zeroizing<Vec<u8>>,
    key: LessSafeKey,
    iv: [u8; 12],
    /// Records of this key so far; part of the nonce, never used twice.
    sequence: u64,
}

impl Keys {
    fn new(suite: Suite, secret: &[u8], sequence: u64) -> Self {
        assert_eq!(secret.len(), suite.secret_bytes(), "of the suite's hash");
        let mut key = Zeroizing::new([0; 32]);
        let key = &mut key[..suite.key_bytes()];
        expand(suite, secret, "key", key);
        let mut iv = [0; 12];
        expand(suite, secret, "iv", &mut iv);
        let algorithm = match suite {
            Suite::Aes128GcmSha256 => &AES_128_GCM,
            Suite::Aes256GcmSha384 => &AES_256_GCM,
        };
        let key = UnboundKey::new(algorithm, key).expect("a key of the algorithm's length");
        Self {
            suite,
            secret: Zeroizing::new(secret.to_vec()),
            key: LessSafeKey::new(key),
            iv,
            sequence,
        }
    }

    /// The next generation of the keys. `[RFC 8446 §7.2]`
    fn update(&mut self) {
        let mut next = Zeroizing::new([0; 48]);
        let next = &mut next[..self.suite.secret_bytes()];
        expand(self.suite, &self.secret, "traffic upd", next);
        *self = Self::new(self.suite, next, 0);
    }

    /// The nonce of the next record. `[RFC 8446 §5.3]`
    #[expect(clippy::big_endian_bytes, reason = "TLS has network byte order")]
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, mask) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= mask;
        }
        // 2^64 records take longer than any connection lives.
        self.sequence += u64::from(!mutation::active(Mutation::TlsNonceReused));
        Nonce::assume_unique_for_key(nonce)
    }

    /// Verifies and decrypts the next record. Returns its content.
    fn open<'a>(&mut self, header: &[u8], body: &'a mut [u8]) -> Result<&'a mut [u8], Unspecified> {
        let nonce = self.nonce();
        let is_clear = mutation::active(Mutation::TlsDataInClear);
        if is_clear || mutation::active(Mutation::TlsTagIgnored) {
            let (text, _) = body.split_at_mut(body.len() - TAG_BYTES);
            if !is_clear {
                // Encryption and decryption are the same, without the tag.
                let key = &self.key;
                let sealed = key.seal_in_place_separate_tag(nonce, Aad::empty(), text);
                sealed.map(drop)?;
            }
            return Ok(text);
        }
        self.key.open_in_place(nonce, Aad::from(header), body)
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys")
            .field("suite", &self.suite)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

/// HKDF-Expand-Label without a context. `[RFC 8446 §7.1]`
fn expand(suite: Suite, secret: &[u8], name: &str, out: &mut [u8]) {
    let info = label(name, &[], out.len()).expect("labels and keys are short");
    out.copy_from_slice(&suite.hash().expand(secret, &[&info], out.len()));
}

/// Encrypts the records of one direction.
#[derive(Debug)]
pub struct Sealer {
    keys: Keys,
}

impl Sealer {
    /// Creates the sender's side from its traffic secret, after `sequence` records.
    ///
    /// # Panics If the secret does not have the suite's [length](Suite::secret_bytes).
    #[must_use]
    pub fn new(suite: Suite, secret: &[u8], sequence: u64) -> Self {
        let keys = Keys::new(suite, secret, sequence);
        Self { keys }
    }

    /// The cipher suite.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.keys.suite
    }

    /// Records encrypted with the current key.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.keys.sequence
    }

    /// Encrypts data in place: it stands in `record` behind room for the
    /// [header](HEADER_BYTES), with room for content type and tag behind it
    /// ([`OVERHEAD_BYTES`] in total).
    ///
    /// # Panics If the record is shorter than its overhead, or has more data than [`DATA_MAX`].
    pub fn seal(&mut self, record: &mut [u8]) {
        self.seal_as(APPLICATION_DATA, record);
    }

    /// Writes a KeyUpdate to the front of `out`, and continues with the next key. Returns its
    /// length. `[RFC 8446 §4.6.3]`
    ///
    /// # Panics If `out` is shorter than [`MESSAGE_MAX`].
    pub fn update(&mut self, out: &mut [u8]) -> usize {
        let len = self.message(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0], out);
        self.keys.update();
        len
    }

    /// Writes an alert to the front of `out`. Returns its length.
    ///
    /// # Panics If `out` is shorter than [`MESSAGE_MAX`].
    pub fn alert(&mut self, alert: Alert, out: &mut [u8]) -> usize {
        let level = if alert == Alert::CLOSE_NOTIFY { 1 } else { 2 };
        self.message(ALERT, &[level, alert.0], out)
    }

    fn message(&mut self, content: u8, message: &[u8], out: &mut [u8]) -> usize {
        let record = &mut out[..OVERHEAD_BYTES + message.len()];
        record[HEADER_BYTES..][..message.len()].copy_from_slice(message);
        self.seal_as(content, record);
        record.len()
    }

    #[expect(clippy::big_endian_bytes, reason = "TLS has network byte order")]
    fn seal_as(&mut self, content: u8, record: &mut [u8]) {
        let data = record.len() - OVERHEAD_BYTES;
        assert!(data <= DATA_MAX, "the caller divides data into records");
        let (header, body) = record.split_at_mut(HEADER_BYTES);
        let length = u16::try_from(body.len()).expect("16 KiB and an overhead");
        header[..3].copy_from_slice(&[APPLICATION_DATA, 3, 3]);
        header[3..].copy_from_slice(&length.to_be_bytes());
        body[data] = content;
        let (text, tag) = body.split_at_mut(data + 1);
        let nonce = self.keys.nonce();
        if mutation::active(Mutation::TlsDataInClear) {
            return;
        }
        let sealed = self
            .keys
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(&*header), text);
        tag.copy_from_slice(sealed.expect("the length is within the limit").as_ref());
    }
}

/// The content of a received record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Data, at this place in the record; perhaps none.
    Data(Range<usize>),
    /// A message that was handled.
    Message,
    /// The peer sends nothing more (close_notify).
    End,
}

/// Decrypts the records of one direction.
#[derive(Debug)]
pub struct Opener {
    keys: Keys,
    messages: Messages,
    /// The peer asked for a KeyUpdate that was not sent yet.
    update_asked: bool,
    updates: u64,
    /// Records of all keys.
    opened: u64,
}

impl Opener {
    /// Creates the receiver's side from the sender's traffic secret, after `sequence` records.
    ///
    /// # Panics If the secret does not have the suite's [length](Suite::secret_bytes).
    #[must_use]
    pub fn new(suite: Suite, secret: &[u8], sequence: u64) -> Self {
        Self {
            keys: Keys::new(suite, secret, sequence),
            messages: Messages::default(),
            update_asked: false,
            updates: 0,
            opened: 0,
        }
    }

    /// Records decrypted with the current key.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.keys.sequence
    }

    /// KeyUpdates received so far.
    #[must_use]
    pub const fn updates(&self) -> u64 {
        self.updates
    }

    /// Returns true once after the peer asked for a KeyUpdate: it is sent before further data.
    pub const fn take_update_asked(&mut self) -> bool {
        std::mem::replace(&mut self.update_asked, false)
    }

    /// Decrypts a whole record in place.
    ///
    /// # Errors The reason to end the connection.
    pub fn open(&mut self, record: &mut [u8]) -> Result<Opened, RecordError> {
        let (header, body) = record
            .split_at_mut_checked(HEADER_BYTES)
            .ok_or(RecordError::Malformed)?;
        if header[0] == ALERT && body.len() == 2 {
            // Without keys, because the peer has none: nothing is believed, the connection ends.
            return Err(RecordError::Alert(Alert(body[1])));
        }
        let opened = self.keys.open(header, body);
        let text = opened.map_err(|_| RecordError::Forged)?;
        self.opened += 1;
        // The content type is the last byte that is not padding. [RFC 8446 §5.4]
        let last = text.iter().rposition(|&byte| byte != 0);
        let last = last.ok_or(RecordError::Unexpected)?;
        if last > DATA_MAX {
            return Err(RecordError::TooLong);
        }
        let (content, text) = (text[last], &text[..last]);
        match content {
            APPLICATION_DATA if self.messages.is_between() => {
                Ok(Opened::Data(HEADER_BYTES..HEADER_BYTES + last))
            }
            HANDSHAKE if !text.is_empty() => {
                let updates = self.messages.take(text)?;
                if let Some(asks) = updates {
                    self.updates += 1;
                    if self.updates > UPDATES_FREE + self.opened / UPDATE_RECORDS {
                        return Err(RecordError::Updates);
                    }
                    self.keys.update();
                    self.update_asked |= asks;
                }
                Ok(Opened::Message)
            }
            ALERT => match *text {
                [_, 0] => Ok(Opened::End),
                // user_canceled comes before close_notify.
                [_, 90] => Ok(Opened::Message),
                [_, alert] => Err(RecordError::Alert(Alert(alert))),
                _ => Err(RecordError::Malformed),
            },
            _ => Err(RecordError::Unexpected),
        }
    }
}

/// Handshake messages after the handshake, which may lie across records.
#[derive(Debug, Default)]
struct Messages {
    /// The beginning of a message: its header, and for KeyUpdate its content.
    begun: [u8; 5],
    len: usize,
    /// Bytes of a ticket that are still to come.
    skip: usize,
}

impl Messages {
    /// Returns true if no message has begun: data may not divide one. `[RFC 8446 §5.1]`
    const fn is_between(&self) -> bool {
        self.len == 0 && self.skip == 0
    }

    /// Takes the content of a record. Tickets are skipped: nothing is ever resumed. Returns
    /// whether the sender's keys change, and whether it asks for the same.
    fn take(&mut self, mut text: &[u8]) -> Result<Option<bool>, RecordError> {
        while let Some((&byte, rest)) = text.split_first() {
            if self.skip > 0 {
                let skipped = self.skip.min(text.len());
                (self.skip, text) = (self.skip - skipped, &text[skipped..]);
                continue;
            }
            (self.begun[self.len], text) = (byte, rest);
            self.len += 1;
            match (self.len, self.begun) {
                (4, [NEW_SESSION_TICKET, high, middle, low, _]) => {
                    let (high, middle, low) = (high as usize, middle as usize, low as usize);
                    (self.len, self.skip) = (0, high << 16 | middle << 8 | low);
                }
                (4, [KEY_UPDATE, 0, 0, 1, _]) | (1..4, _) => {}
                // It must be the last of its record, because the keys change. [RFC 8446 §5.1]
                (5, [.., asks @ (0 | 1)]) if text.is_empty() => {
                    self.len = 0;
                    return Ok(Some(asks == 1));
                }
                (5, _) => return Err(RecordError::Malformed),
                _ => return Err(RecordError::Unexpected),
            }
        }
        Ok(None)
    }
}

/// Returns the length of a record, of which `bytes` are the first; `None` before its header is
/// complete.
///
/// # Errors It cannot be a record of this protocol.
#[expect(clippy::big_endian_bytes, reason = "TLS has network byte order")]
pub fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some(&[content, major, _, high, low]) = bytes.first_chunk() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let alert = content == ALERT && length == 2;
    if major != 3 || !(content == APPLICATION_DATA || alert) {
        return Err(RecordError::Unexpected);
    }
    if !alert && length <= TAG_BYTES {
        return Err(RecordError::Malformed);
    }
    if HEADER_BYTES + length > RECORD_MAX {
        return Err(RecordError::TooLong);
    }
    Ok(Some(HEADER_BYTES + length))
}

#[cfg(test)]
mod tests;
