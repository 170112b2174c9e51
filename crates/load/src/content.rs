//! Content of a verified block: its address, the number of its write, and bytes derived from both.
//! A block that is lost, stale, torn or misplaced therefore never matches.

use std::fmt;

/// Makes and checks the content of blocks of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    /// Differs from run to run, so that data of an earlier run never matches.
    key: u64,
    block_bytes: usize,
}

/// Difference between a block and the expected write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Whole, but an older write of the same block.
    Stale { found: u64, expected: u64 },
    /// Content of another block.
    Misplaced { found: u64 },
    /// Bytes differ, the first at this offset of the block.
    Corrupt { offset: usize },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { found, expected } => write!(
                f,
                "has the content of write {found}, although write {expected} was acknowledged"
            ),
            Self::Misplaced { found } => write!(f, "has the content of block {found}"),
            Self::Corrupt { offset } => write!(f, "differs from byte {offset}"),
        }
    }
}

impl Content {
    pub(super) fn new(seed: u64, nonce: u64, block_bytes: u32) -> Self {
        let key = mix(mix(seed) ^ nonce);
        Self {
            key,
            block_bytes: block_bytes as usize,
        }
    }

    /// Fills `data`, whole blocks from `lba` on, with write `sequence`.
    pub(super) fn fill(&self, lba: u64, sequence: u64, data: &mut [u8]) {
        for (lba, block) in (lba..).zip(data.chunks_exact_mut(self.block_bytes)) {
            for (index, word) in block.chunks_exact_mut(8).enumerate() {
                word.copy_from_slice(&self.word(lba, sequence, index).to_le_bytes());
            }
        }
    }

    /// Compares whole blocks from `lba` on with write `sequence`; returns the first difference.
    pub(super) fn check(
        &self,
        lba: u64,
        sequence: u64,
        data: &[u8],
    ) -> Result<(), (u64, Difference)> {
        for (lba, block) in (lba..).zip(data.chunks_exact(self.block_bytes)) {
            if let Some(offset) = self.first_difference(lba, sequence, block) {
                return Err((lba, self.explain(lba, sequence, block, offset)));
            }
        }
        Ok(())
    }

    fn first_difference(&self, lba: u64, sequence: u64, block: &[u8]) -> Option<usize> {
        let mut words = block.chunks_exact(8).enumerate();
        let differs =
            words.find(|(index, word)| **word != self.word(lba, sequence, *index).to_le_bytes());
        differs.map(|(index, _)| index * 8)
    }

    fn explain(&self, lba: u64, sequence: u64, block: &[u8], offset: usize) -> Difference {
        let word = |index: usize| {
            let bytes = block[index * 8..index * 8 + 8]
                .try_into()
                .expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let (found_lba, found_sequence) = (word(0), word(1));
        if self
            .first_difference(found_lba, found_sequence, block)
            .is_some()
        {
            Difference::Corrupt { offset }
        } else if found_lba == lba {
            Difference::Stale {
                found: found_sequence,
                expected: sequence,
            }
        } else {
            Difference::Misplaced { found: found_lba }
        }
    }

    fn word(&self, lba: u64, sequence: u64, index: usize) -> u64 {
        match index {
            0 => lba,
            1 => sequence,
            _ => mix(self.key ^ lba.rotate_left(32) ^ sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15))
                .wrapping_add((index as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93)),
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood): every input bit changes half the output.
fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_be_wrong_is_told_apart() {
        let content = Content::new(1, 2, 512);
        let mut data = vec![0; 1024];
        content.fill(10, 3, &mut data);
        assert_eq!(content.check(10, 3, &data), Ok(()));
        let stale = Difference::Stale {
            found: 3,
            expected: 4,
        };
        assert_eq!(content.check(10, 4, &data), Err((10, stale)));
        assert_eq!(
            content.check(11, 3, &data),
            Err((11, Difference::Misplaced { found: 10 }))
        );
        data[512 + 100] ^= 1;
        assert_eq!(
            content.check(10, 3, &data),
            Err((11, Difference::Corrupt { offset: 96 }))
        );
        let other_run = Content::new(1, 3, 512);
        content.fill(10, 3, &mut data);
        assert!(other_run.check(10, 3, &data).is_err());
    }
}
