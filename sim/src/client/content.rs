//! Content of blocks: the version and address of each block, repeated over it.

use super::{Client, RequestKind};
use crate::oracle::Version;
use reactor::IoSlice;
use std::ops::Range;

/// Returns the version of a block's content.
///
/// # Panics
/// If not all bytes are from one write.
pub(crate) fn version_of(block: usize, found: &[u8]) -> Version {
    let version = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
    let expected = pattern(block, version);
    let (parts, rest) = found.as_chunks();
    let same = parts.iter().all(|part| *part == expected) && *rest == expected[..rest.len()];
    if !same {
        let mut bytes = found.iter().zip(expected.iter().cycle());
        let at = bytes.position(|(found, expected)| found != expected);
        let at = at.unwrap_or(0) / expected.len() * expected.len();
        panic!(
            "block {block} begins as version {version} has it and goes on otherwise from byte \
             {at}: {:02x?}",
            &found[at..(at + 32).min(found.len())]
        );
    }
    version
}

/// Fills `out` with the content of `block` in `version`; version 0 is a block that was never
/// written.
pub(super) fn fill(block: usize, version: Version, out: &mut [u8]) {
    let pattern = pattern(block, version);
    let (parts, rest) = out.as_chunks_mut();
    parts.fill(pattern);
    rest.copy_from_slice(&pattern[..rest.len()]);
}

/// Calls `make` to write all bytes of `data`: in place, or through a copy for device memory.
pub(super) fn write(data: &mut IoSlice, make: impl FnOnce(&mut [u8])) {
    if let Some(bytes) = data.bytes_mut() {
        return make(bytes);
    }
    let mut bytes = vec![0; data.len()];
    make(&mut bytes);
    data.copy_in(0, &bytes);
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

impl Client {
    /// Fills a request's data: the version and address of each block, repeated over it.
    pub(super) fn fill(
        &self,
        mut data: IoSlice,
        range: Range<usize>,
        kind: &RequestKind,
    ) -> IoSlice {
        let size = self.geometry.block_bytes as usize;
        write(&mut data, |out| {
            for (index, (block, out)) in range.zip(out.chunks_mut(size)).enumerate() {
                match kind {
                    RequestKind::Write { version, .. } => fill(block, *version, out),
                    RequestKind::Compare(_, expected) => fill(block, expected[index], out),
                    _ => out.fill(0xEE),
                }
            }
        });
        data
    }
}
