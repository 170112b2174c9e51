//! Effect on a core's caches of a thread that copies bulk data.

use crate::limit::Region;

/// Bytes copied at a time: the amount that a dataplane loop copies while there is `Latency` load.
const PIECE: usize = 64 * 1024;
/// Bytes of source and destination together: more than a core's private caches hold.
const MEMORY: usize = 64 << 20;

/// Memory to be copied, piece by piece.
pub(super) struct Bulk {
    memory: Region,
    at: usize,
}

impl Bulk {
    pub(super) fn new() -> Self {
        Self {
            memory: Region::new(MEMORY),
            at: 0,
        }
    }

    /// Copies the next piece.
    pub(super) fn moves(&mut self) {
        let (from, to) = self.memory.bytes_mut().split_at_mut(MEMORY / 2);
        to[self.at..][..PIECE].copy_from_slice(&from[self.at..][..PIECE]);
        self.at = (self.at + PIECE) % (MEMORY / 2);
    }
}
