//! The header of an encrypted device: its data key, wrapped by the user's key.
//!
//! | byte | content |
//! |---|---|
//! | 0 | `SWITCHYARD CRYPT` |
//! | 16 | version, 1 |
//! | 20 | cipher, 1: AES-256-XTS, tweak = number of the block |
//! | 24 | bytes of a block |
//! | 28 | 1: has a key; 0: the key was erased |
//! | 32 | number of the change, 64 bits: the copy with the larger one is newer |
//! | 40 | bytes before block 0, 64 bits |
//! | 48 | UUID |
//! | 64 | nonce of the wrapping, 12 bytes |
//! | 76 | data key and tag: AES-256-GCM, bytes 0–63 as additional data |
//! | 4092 | CRC-32C of the bytes before it |
//!
//! Numbers are little-endian and have 32 bits unless stated otherwise. There are two copies, which
//! are written one after the other, so an interrupted write leaves one of them.

use super::key::{CryptKey, DataKey};
use super::xts::KEY_BYTES;
use crate::limits::CRYPT_HEADER_BYTES;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base::mutation::{self, Mutation};
use zeroize::Zeroizing;

/// Bytes of a copy.
pub const COPY_BYTES: usize = 4096;

/// First byte of each copy on the device. They share no sector of any disk.
pub const COPIES_AT: [u64; 2] = [0, CRYPT_HEADER_BYTES / 2];

const MAGIC: &[u8; 16] = b"SWITCHYARD CRYPT";
const VERSION: u32 = 1;
const CIPHER: u32 = 1;
const NONCE_AT: usize = 64;
const WRAPPED_AT: usize = NONCE_AT + NONCE_LEN;
const TAG_BYTES: usize = 16;
const WRAPPED_BYTES: usize = KEY_BYTES + TAG_BYTES;
const CHECKSUM_AT: usize = COPY_BYTES - 4;

/// Why the headers of a device do not give its data key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Neither copy is a header.
    #[error("it has no encryption header")]
    None,
    /// Both copies are damaged.
    #[error("both copies of its encryption header are damaged")]
    Damaged,
    /// Written by a later version of this program.
    #[error("its encryption header has version {0}; this program knows version 1")]
    Version(u32),
    /// Another cipher.
    #[error("its encryption header names cipher {0}; this program knows cipher 1, AES-256-XTS")]
    Cipher(u32),
    /// Another size or place of the blocks.
    #[error("it was encrypted with blocks of {0} bytes")]
    BlockBytes(u32),
    /// The data begins elsewhere.
    #[error("its data begins at byte {0}, which this program does not support")]
    Offset(u64),
    /// The key does not open it.
    #[error("the key does not open it")]
    WrongKey,
    /// The data key was erased.
    #[error("its key was erased: its content cannot be read any more")]
    Erased,
}

/// The random part of a header, which the caller draws.
#[derive(Clone, Copy, Debug)]
pub struct Salt {
    /// The UUID of a new device.
    pub uuid: [u8; 16],
    /// The nonce of the wrapping, which no other wrapping with the same key may have.
    pub nonce: [u8; NONCE_LEN],
}

/// A header without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    block_bytes: u32,
    has_key: bool,
    change: u64,
    uuid: [u8; 16],
}

impl Fields {
    fn encode(self, copy: &mut [u8; COPY_BYTES]) {
        copy[..16].copy_from_slice(MAGIC);
        put(copy, 16, &VERSION.to_le_bytes());
        put(copy, 20, &CIPHER.to_le_bytes());
        put(copy, 24, &self.block_bytes.to_le_bytes());
        put(copy, 28, &u32::from(self.has_key).to_le_bytes());
        put(copy, 32, &self.change.to_le_bytes());
        put(copy, 40, &CRYPT_HEADER_BYTES.to_le_bytes());
        put(copy, 48, &self.uuid);
    }

    /// Reads a copy whose checksum is right.
    fn decode(copy: &[u8; COPY_BYTES]) -> Result<Self, HeaderError> {
        let number = |at: usize| u32::from_le_bytes(array(copy, at));
        let long = |at: usize| u64::from_le_bytes(array(copy, at));
        match (number(16), number(20), long(40)) {
            (VERSION, CIPHER, CRYPT_HEADER_BYTES) => {}
            (VERSION, CIPHER, offset) => return Err(HeaderError::Offset(offset)),
            (VERSION, cipher, _) => return Err(HeaderError::Cipher(cipher)),
            (version, ..) => return Err(HeaderError::Version(version)),
        }
        Ok(Self {
            block_bytes: number(24),
            has_key: number(28) != 0,
            change: long(32),
            uuid: array(copy, 48),
        })
    }
}

/// A valid copy of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    fields: Fields,
    copy: Box<[u8; COPY_BYTES]>,
}

impl Header {
    /// Creates the header of a new device with blocks of `block_bytes` bytes.
    #[must_use]
    pub fn create(block_bytes: u32, data_key: &DataKey, key: &CryptKey, salt: &Salt) -> Self {
        let fields = Fields {
            block_bytes,
            has_key: true,
            change: 1,
            uuid: salt.uuid,
        };
        Self::wrap(fields, data_key, key, salt.nonce)
    }

    /// Returns the next header of the device, which another key opens.
    #[must_use]
    pub fn with_key(&self, data_key: &DataKey, key: &CryptKey, nonce: [u8; NONCE_LEN]) -> Self {
        let fields = Fields {
            has_key: true,
            change: self.fields.change.saturating_add(1),
            ..self.fields
        };
        Self::wrap(fields, data_key, key, nonce)
    }

    /// Returns the next header of the device, which no key opens.
    #[must_use]
    pub fn erased(&self) -> Self {
        let fields = Fields {
            has_key: false,
            change: self.fields.change.saturating_add(1),
            ..self.fields
        };
        let mut copy = Box::new([0; COPY_BYTES]);
        fields.encode(&mut copy);
        Self::seal(fields, copy)
    }

    /// Returns the bytes of a copy.
    #[must_use]
    pub fn bytes(&self) -> &[u8; COPY_BYTES] {
        &self.copy
    }

    /// Returns the valid copies of a device, the newest first.
    ///
    /// # Errors
    /// There is none: [`HeaderError::None`], [`Damaged`](HeaderError::Damaged), or that of a copy
    /// that this program does not know.
    pub fn read(copies: &[[u8; COPY_BYTES]; 2]) -> Result<Vec<Self>, HeaderError> {
        let mut error = HeaderError::None;
        let mut found = Vec::new();
        for copy in copies {
            if !copy.starts_with(MAGIC) {
                continue;
            }
            if checksum(copy) != array(copy, CHECKSUM_AT) {
                error = HeaderError::Damaged;
                continue;
            }
            let fields = Fields::decode(copy)?;
            let copy = Box::new(*copy);
            found.push(Self { fields, copy });
        }
        found.sort_by_key(|header| std::cmp::Reverse(header.fields.change));
        if found.is_empty() {
            return Err(error);
        }
        Ok(found)
    }

    /// Returns the first of `headers` that `key` opens, and the data key. Both the newest header
    /// and the one before open a device while a change of its key was interrupted.
    ///
    /// # Errors
    /// [`HeaderError::WrongKey`], [`Erased`](HeaderError::Erased), or
    /// [`BlockBytes`](HeaderError::BlockBytes) for other blocks than those of `block_bytes` bytes;
    /// with `None` their size does not matter.
    pub fn open<'a>(
        headers: &'a [Self],
        key: &CryptKey,
        block_bytes: Option<u32>,
    ) -> Result<(&'a Self, DataKey), HeaderError> {
        if headers.first().is_some_and(|newest| !newest.fields.has_key) {
            return Err(HeaderError::Erased);
        }
        for header in headers.iter().filter(|header| header.fields.has_key) {
            if let Some(data_key) = header.unwrap(key) {
                let own = header.fields.block_bytes;
                if block_bytes.is_some_and(|wanted| wanted != own) {
                    return Err(HeaderError::BlockBytes(own));
                }
                return Ok((header, data_key));
            }
        }
        Err(HeaderError::WrongKey)
    }

    fn wrap(fields: Fields, data_key: &DataKey, key: &CryptKey, nonce: [u8; NONCE_LEN]) -> Self {
        let mut copy = Box::new([0; COPY_BYTES]);
        fields.encode(&mut copy);
        copy[NONCE_AT..WRAPPED_AT].copy_from_slice(&nonce);
        let mut wrapped = Zeroizing::new(*data_key.bytes());
        let tag = cipher(key).seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(&copy[..NONCE_AT]),
            &mut wrapped[..],
        );
        let tag = tag.expect("64 bytes can be encrypted");
        put(&mut copy, WRAPPED_AT, &wrapped[..]);
        put(&mut copy, WRAPPED_AT + KEY_BYTES, tag.as_ref());
        Self::seal(fields, copy)
    }

    fn unwrap(&self, key: &CryptKey) -> Option<DataKey> {
        let (fields, wrapped) = self.copy.split_at(WRAPPED_AT);
        let (aad, nonce) = fields.split_at(NONCE_AT);
        let nonce = Nonce::try_assume_unique_for_key(nonce).expect("12 bytes");
        let mut opened = Zeroizing::new([0; WRAPPED_BYTES]);
        opened.copy_from_slice(&wrapped[..WRAPPED_BYTES]);
        let is_right = cipher(key)
            .open_in_place(nonce, Aad::from(aad), &mut opened[..])
            .is_ok();
        if !is_right && !mutation::active(Mutation::CryptKeyUnchecked) {
            return None;
        }
        let data_key = opened.first_chunk::<KEY_BYTES>();
        data_key.map(DataKey::new)
    }

    fn seal(fields: Fields, mut copy: Box<[u8; COPY_BYTES]>) -> Self {
        let sum = checksum(&copy);
        put(&mut copy, CHECKSUM_AT, &sum);
        Self { fields, copy }
    }
}

/// The cipher that wraps data keys.
fn cipher(key: &CryptKey) -> LessSafeKey {
    let key = UnboundKey::new(&AES_256_GCM, key.bytes()).expect("a key of 32 bytes");
    LessSafeKey::new(key)
}

fn checksum(copy: &[u8; COPY_BYTES]) -> [u8; 4] {
    crc32c::crc32c(&copy[..CHECKSUM_AT]).to_le_bytes()
}

fn put(copy: &mut [u8; COPY_BYTES], at: usize, bytes: &[u8]) {
    copy[at..at + bytes.len()].copy_from_slice(bytes);
}

fn array<const N: usize>(copy: &[u8; COPY_BYTES], at: usize) -> [u8; N] {
    copy[at..].first_chunk().copied().expect("within the copy")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt {
        uuid: [1; 16],
        nonce: [2; NONCE_LEN],
    };

    fn key(byte: u8) -> CryptKey {
        CryptKey::new(&[byte; 32])
    }

    fn header() -> (Header, DataKey) {
        let data_key = DataKey::new(&std::array::from_fn(|i| u8::try_from(i).unwrap_or(0)));
        (Header::create(512, &data_key, &key(7), &SALT), data_key)
    }

    fn opened(copies: [&[u8; COPY_BYTES]; 2], key: &CryptKey) -> Result<DataKey, HeaderError> {
        let headers = Header::read(&copies.map(|copy| *copy))?;
        Header::open(&headers, key, Some(512)).map(|(_, data_key)| data_key)
    }

    #[test]
    fn one_intact_copy_opens_the_device_whatever_the_other_is() {
        let (header, data_key) = header();
        let intact = header.bytes();
        let mut damaged = *intact;
        damaged[100] ^= 1;
        for other in [[0; COPY_BYTES], [0xFF; COPY_BYTES], damaged, *intact] {
            for copies in [[intact, &other], [&other, intact]] {
                let found = opened(copies, &key(7)).expect("one is intact");
                assert_eq!(found.bytes(), data_key.bytes());
            }
        }
        assert_eq!(
            opened([&damaged, &[0; COPY_BYTES]], &key(7)).err(),
            Some(HeaderError::Damaged)
        );
        let none = [0; COPY_BYTES];
        assert_eq!(
            opened([&none, &none], &key(7)).err(),
            Some(HeaderError::None)
        );
    }

    #[test]
    fn another_key_and_a_changed_field_are_refused() {
        let (header, _) = header();
        let wrong = opened([header.bytes(); 2], &key(8)).err();
        assert_eq!(wrong, Some(HeaderError::WrongKey));
        // With a right checksum: by intent, not by a fault.
        for at in [24, 32, 48, 64, 76, 150] {
            let mut changed = *header.bytes();
            changed[at] ^= 1;
            let sum = checksum(&changed);
            put(&mut changed, CHECKSUM_AT, &sum);
            let refused = opened([&changed; 2], &key(7)).err();
            assert_eq!(refused, Some(HeaderError::WrongKey), "byte {at}");
        }
        let headers = Header::read(&[*header.bytes(); 2]).expect("valid");
        let other = Header::open(&headers, &key(7), Some(4096)).err();
        assert_eq!(other, Some(HeaderError::BlockBytes(512)));
        let mut later = *header.bytes();
        later[16] = 2;
        let sum = checksum(&later);
        put(&mut later, CHECKSUM_AT, &sum);
        assert_eq!(
            opened([&later; 2], &key(7)).err(),
            Some(HeaderError::Version(2))
        );
    }

    #[test]
    fn an_interrupted_change_leaves_both_keys_and_an_interrupted_erasure_none() {
        let (old, data_key) = header();
        let new = old.with_key(&data_key, &key(9), [3; NONCE_LEN]);
        for copies in [[new.bytes(), old.bytes()], [old.bytes(), new.bytes()]] {
            opened(copies, &key(7)).expect("the older header");
            opened(copies, &key(9)).expect("the newer header");
        }
        let refused = opened([new.bytes(); 2], &key(7)).err();
        assert_eq!(refused, Some(HeaderError::WrongKey));
        let erased = old.erased();
        for copies in [[erased.bytes(), old.bytes()], [erased.bytes(); 2]] {
            assert_eq!(opened(copies, &key(7)).err(), Some(HeaderError::Erased));
        }
        assert!(
            erased.bytes()[NONCE_AT..CHECKSUM_AT]
                .iter()
                .all(|&b| b == 0)
        );
    }
}
