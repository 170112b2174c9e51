//! Content of blocks: the version and the address of each, all over it.

use crate::oracle::Version;

/// Which write put these bytes into a block.
///
/// # Panics
/// If none has put all of them there.
pub(crate) fn version_of(block: usize, found: &[u8]) -> Version {
    let version = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
    let expected = pattern(block, version);
    let part = found.chunks(expected.len());
    let differs = part
        .zip(0..)
        .find(|(part, _)| **part != expected[..part.len()]);
    if let Some((_, part)) = differs {
        let at = part * expected.len();
        panic!(
            "block {block} begins as version {version} has it and goes on otherwise from byte \
             {at}: {:02x?}",
            &found[at..(at + 32).min(found.len())]
        );
    }
    version
}

/// Fills `out` with what a write of `version` puts into `block`; version 0 is a block that was never
/// written.
pub(super) fn fill(block: usize, version: Version, out: &mut [u8]) {
    let pattern = pattern(block, version);
    for part in out.chunks_mut(pattern.len()) {
        part.copy_from_slice(&pattern[..part.len()]);
    }
}

/// Returns the pattern that fills a block.
fn pattern(block: usize, version: Version) -> [u8; 16] {
    let mut pattern = [0; 16];
    if version > 0 {
        pattern[..8].copy_from_slice(&version.to_le_bytes());
        pattern[8..].copy_from_slice(&(block as u64).to_le_bytes());
    }
    pattern
}
