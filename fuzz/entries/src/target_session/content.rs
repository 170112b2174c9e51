//! The content that the namespaces of a session may have: a read returns nothing that was not
//! written.

use super::command::{BLOCK_BYTES, NAMESPACE_BYTES};
use wire::nvme::{Command, IoOpcode, LbaCommand};

/// The bytes that a block may consist of, as a set.
type Bytes = [u64; 4];

/// Pattern of a neighbour's data, which no other host may see.
pub(super) type Secret = [u8; 8];

/// All data that was sent for each block.
#[derive(Debug)]
pub(super) struct Content {
    /// Data by namespace identifier less one, then block.
    namespaces: Vec<Vec<Bytes>>,
    secret: Secret,
}

impl Content {
    pub(super) fn new(secret: Secret) -> Self {
        let blocks = |bytes: u32| (NAMESPACE_BYTES / bytes) as usize;
        let namespaces = BLOCK_BYTES.iter();
        let zero: Bytes = [1, 0, 0, 0];
        Self {
            namespaces: namespaces.map(|&b| vec![zero; blocks(b)]).collect(),
            secret,
        }
    }

    /// Data was sent with a command, whatever the command is.
    pub(super) fn may_hold(&mut self, command: &Command, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let lba = LbaCommand::parse(command);
        let Some(blocks) = self.namespaces.get_mut((lba.nsid as usize).wrapping_sub(1)) else {
            return;
        };
        let mut bytes = Bytes::default();
        for &byte in data {
            bytes[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
        let start = usize::try_from(lba.slba).unwrap_or(usize::MAX);
        let (start, count) = if command.opcode() == IoOpcode::WRITE_EXTENTS.0 {
            // Its table says where, which may have come before or not at all.
            (0, usize::MAX)
        } else {
            (start, lba.blocks as usize)
        };
        let range = blocks.iter_mut().skip(start).take(count);
        for block in range {
            for (all, new) in block.iter_mut().zip(bytes) {
                *all |= new;
            }
        }
    }

    /// A read returned `data`, at this offset of its data.
    pub(super) fn assert_possible(&self, command: &Command, offset: u32, data: &[u8]) {
        let lba = LbaCommand::parse(command);
        let index = (lba.nsid as usize).wrapping_sub(1);
        let blocks = self
            .namespaces
            .get(index)
            .expect("a namespace that there is");
        for (at, &byte) in (u64::from(offset)..).zip(data) {
            let block = lba.slba + at / u64::from(BLOCK_BYTES[index]);
            let block = usize::try_from(block).expect("a small namespace");
            let set = blocks.get(block).expect("a block that there is");
            assert!(
                set[usize::from(byte >> 6)] & 1 << (byte & 63) != 0,
                "{byte:#x} in block {block} of namespace {}, where it was never written",
                lba.nsid
            );
        }
    }

    /// Asserts that none of the data is the neighbour's.
    pub(super) fn assert_no_secret(&self, data: &[u8]) {
        let secret = data.chunks_exact(8).any(|chunk| chunk == self.secret);
        assert!(!secret, "another host's data");
    }
}
