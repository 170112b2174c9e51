//! Locks on the blocks of writes that are sent again.

use super::span::Span;
use crate::command::BlockRequest;

/// The ranges of replayed writes. Until such a write is acknowledged, no newer write that overlaps
/// with it may leave: either of the two could be the last to take effect.
#[derive(Debug, Default)]
pub(crate) struct RangeLocks {
    held: Vec<Span>,
}

impl RangeLocks {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            held: Vec::with_capacity(capacity),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Locks the range of a request.
    pub(crate) fn lock(&mut self, request: &BlockRequest) {
        self.held.push(request.span());
    }

    /// Unlocks a range that was locked.
    pub(crate) fn unlock(&mut self, request: &BlockRequest) {
        let span = request.span();
        if let Some(place) = self.held.iter().position(|&held| held == span) {
            self.held.swap_remove(place);
        }
    }

    /// Returns true if a new request has to wait.
    pub(crate) fn blocks(&self, request: &BlockRequest) -> bool {
        if self.held.is_empty() || !request.operation.is_write() {
            return false;
        }
        let span = request.span();
        self.held.iter().any(|held| held.overlaps(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::units::Lba;
    use block::Operation;

    fn write(lba: u64, blocks: u32) -> BlockRequest {
        BlockRequest {
            nsid: 1,
            namespace: 0,
            operation: Operation::Write { durable: false },
            lba: Lba(lba),
            blocks,
            blocks_done: 0,
            blocks_left: 0,
            private_data: false,
        }
    }

    #[test]
    fn a_newer_write_waits_for_an_overlapping_replay_and_for_nothing_else() {
        let mut locks = RangeLocks::with_capacity(1);
        locks.lock(&write(10, 5));
        assert!(locks.blocks(&write(14, 1)));
        assert!(locks.blocks(&write(0, 11)));
        assert!(!locks.blocks(&write(15, 1)));
        assert!(!locks.blocks(&write(5, 5)));
        let elsewhere = BlockRequest {
            nsid: 2,
            ..write(10, 5)
        };
        assert!(!locks.blocks(&elsewhere));
        let read = BlockRequest {
            nsid: 1,
            namespace: 0,
            operation: Operation::Read,
            ..write(10, 5)
        };
        assert!(!locks.blocks(&read));
        locks.unlock(&write(10, 5));
        assert!(locks.is_empty() && !locks.blocks(&write(10, 5)));
    }
}
