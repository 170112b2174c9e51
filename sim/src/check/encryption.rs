//! Encryption of a volume: its keys, and the checks that need them.

use crate::disk::Disk;
use base::Prng;
use block::layer::crypt::{COPIES_AT, COPY_BYTES, DataKey, Header, HeaderError, Salt};
use block::layer::{Crypt, CryptKey};
use block::limits::CRYPT_HEADER_BYTES;
use std::cell::RefCell;
use std::sync::Arc;

/// Bytes of a user's key.
type UserKey = [u8; 32];

/// The encryption of a volume. Its header is on the disk, and is read whenever a process opens it.
#[derive(Debug)]
pub(super) struct Encryption {
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    /// The key that opens the volume, and another one.
    key: UserKey,
    other: UserKey,
    block_bytes: u32,
    prng: Prng,
}

impl Encryption {
    /// Blocks of a disk before the first block of the volume.
    pub(super) const fn first(block_bytes: u32) -> u64 {
        CRYPT_HEADER_BYTES / block_bytes as u64
    }

    /// Encrypts an empty disk.
    pub(super) fn create(disk: &Disk, block_bytes: u32, seed: u64) -> Self {
        let mut prng = Prng::from_seed(seed);
        let mut state = State {
            key: draw(&mut prng),
            other: draw(&mut prng),
            block_bytes,
            prng,
        };
        let data_key = DataKey::new(&draw(&mut state.prng));
        let salt = Salt {
            uuid: draw(&mut state.prng),
            nonce: draw(&mut state.prng),
        };
        let header = Header::create(block_bytes, &data_key, &CryptKey::new(&state.key), &salt);
        for at in COPIES_AT {
            disk.put_bytes(at, header.bytes());
        }
        Self {
            state: RefCell::new(state),
        }
    }

    /// Opens the volume on its disk, after a change of its key that was interrupted at any byte.
    ///
    /// # Panics
    /// If the right key does not open it, or another key does.
    pub(super) fn open(&self, disk: &Disk) -> Crypt {
        let state = &mut *self.state.borrow_mut();
        let (headers, data_key) = state.opened(disk).expect("a key of the device");
        let wrong = Header::open(&headers, &CryptKey::new(&draw(&mut state.prng)), None);
        assert_eq!(
            wrong.map(drop),
            Err(HeaderError::WrongKey),
            "a wrong key opens an encrypted volume"
        );
        let nonce = draw(&mut state.prng);
        let changed = headers[0].with_key(&data_key, &CryptKey::new(&state.other), nonce);
        for at in COPIES_AT {
            let written = state.prng.below(COPY_BYTES as u64 + 1);
            let written = usize::try_from(written).expect("a copy is small");
            disk.put_bytes(at, &changed.bytes()[..written]);
            if written < COPY_BYTES {
                break;
            }
        }
        let (_, data_key) = state.opened(disk).expect("the old key or the new one");
        Crypt::with_key(Arc::new(disk.clone()), data_key).expect("room for a block")
    }

    /// Returns the content of a block of the volume.
    ///
    /// # Panics
    /// If the disk has it in clear.
    pub(super) fn look_at<R>(&self, disk: &Disk, block: usize, look: impl FnOnce(&[u8]) -> R) -> R {
        let state = &mut *self.state.borrow_mut();
        let (_, data_key) = state.opened(disk).expect("a key of the device");
        let device = Crypt::with_key(Arc::new(disk.clone()), data_key).expect("room for a block");
        let first = usize::try_from(Self::first(state.block_bytes)).expect("a small disk");
        let mut bytes = disk.block(first + block);
        // What applications write repeats 16 bytes.
        let (parts, _) = bytes.as_chunks::<16>();
        let is_clear = parts.iter().all(|part| part == &parts[0]) && parts[0] != [0; 16];
        assert!(
            !is_clear,
            "the disk has block {block} of an encrypted volume in clear"
        );
        device.decrypt(block as u64, &mut bytes);
        look(&bytes)
    }
}

impl State {
    /// Reads the header from the disk, and notes which key opens it.
    fn opened(&mut self, disk: &Disk) -> Result<(Vec<Header>, DataKey), HeaderError> {
        let copies = COPIES_AT.map(|at| {
            let mut copy = [0; COPY_BYTES];
            disk.get_bytes(at, &mut copy);
            copy
        });
        let headers = Header::read(&copies)?;
        let open = |key| {
            let opened = Header::open(&headers, &CryptKey::new(key), Some(self.block_bytes));
            opened.map(|(header, data_key)| (header.clone(), data_key))
        };
        let (header, data_key) = match open(&self.key) {
            Err(HeaderError::WrongKey) => {
                let opened = open(&self.other)?;
                std::mem::swap(&mut self.key, &mut self.other);
                opened
            }
            opened => opened?,
        };
        // As a process does that opens it.
        for at in COPIES_AT {
            disk.put_bytes(at, header.bytes());
        }
        Ok((headers, data_key))
    }
}

/// Draws random bytes.
fn draw<const N: usize>(prng: &mut Prng) -> [u8; N] {
    let mut bytes = [0; N];
    prng.fill(&mut bytes);
    bytes
}
