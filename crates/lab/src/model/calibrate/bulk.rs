//! Effect of a thread that moves bulk on a core's caches.

use crate::limit::Region;

/// Bytes that are moved at a time: as much as a dataplane loop does where `Latency` is near.
const PIECE: usize = 64 * 1024;
/// Bytes of source and destination together: more than a core's own caches hold.
const MEMORY: usize = 64 << 20;

/// Memory to be moved, piece by piece.
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

    /// Moves the next piece.
    pub(super) fn moves(&mut self) {
        let (from, to) = self.memory.bytes_mut().split_at_mut(MEMORY / 2);
        to[self.at..][..PIECE].copy_from_slice(&from[self.at..][..PIECE]);
        self.at = (self.at + PIECE) % (MEMORY / 2);
    }
}
