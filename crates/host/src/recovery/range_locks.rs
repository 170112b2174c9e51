//! Locks on the blocks of writes that are sent again.

use super::span::Span;
use crate::command::exchange::Exchange;

/// The ranges of resent writes. Until such a write is acknowledged, no newer overlapping write may
/// be sent, because either of the two could take effect last.
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

    /// Locks a range.
    pub(crate) fn lock(&mut self, span: Span) {
        self.held.push(span);
    }

    /// Unlocks a range that was locked.
    pub(crate) fn unlock(&mut self, span: Span) {
        if let Some(place) = self.held.iter().position(|&held| held == span) {
            self.held.swap_remove(place);
        }
    }

    /// Returns true if a new command has to wait.
    pub(crate) fn blocks(&self, exchange: &Exchange) -> bool {
        let locked = |span| self.held.iter().any(|held| held.overlaps(span));
        !self.held.is_empty() && exchange.written().any(locked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::BlockRequest;
    use crate::command::exchange::{Direction, Work};
    use crate::command::extents::ExtentsRequest;
    use base::units::Lba;
    use block::Operation;

    fn request(nsid: u32, operation: Operation, lba: u64, blocks: u32) -> BlockRequest {
        BlockRequest {
            nsid,
            namespace: 0,
            operation,
            lba: Lba(lba),
            blocks,
            blocks_done: 0,
            blocks_left: 0,
            private_data: false,
            extent_of: None,
        }
    }

    const WRITE: Operation = Operation::Write { durable: false };

    fn exchange(request: BlockRequest) -> Exchange {
        Exchange::new(1, Work::Block(request), Direction::None, None)
    }

    fn write(lba: u64, blocks: u32) -> Exchange {
        exchange(request(1, WRITE, lba, blocks))
    }

    #[test]
    fn a_newer_write_waits_for_an_overlapping_replay_and_for_nothing_else() {
        let mut locks = RangeLocks::with_capacity(1);
        let span = request(1, WRITE, 10, 5).span();
        locks.lock(span);
        assert!(locks.blocks(&write(14, 1)));
        assert!(locks.blocks(&write(0, 11)));
        assert!(!locks.blocks(&write(15, 1)));
        assert!(!locks.blocks(&write(5, 5)));
        assert!(!locks.blocks(&exchange(request(2, WRITE, 10, 5))));
        assert!(!locks.blocks(&exchange(request(1, Operation::Read, 10, 5))));
        locks.unlock(span);
        assert!(locks.is_empty() && !locks.blocks(&write(10, 5)));
    }

    #[test]
    fn extents_are_locked_one_by_one() {
        let mut locks = RangeLocks::with_capacity(1);
        let over = |operation, ranges: &[(u64, u32)]| {
            let extents = ranges.iter().map(|&(lba, blocks)| block::Extent {
                tag: 0,
                lba: Lba(lba),
                blocks,
                data: None,
                result: Ok(()),
            });
            let mut request = Box::new(ExtentsRequest::new());
            request.nsid = 1;
            request.command.operation = operation;
            request.command.extents = extents.collect();
            Exchange::new(1, Work::Extents(request), Direction::None, None)
        };
        let lost = over(WRITE, &[(10, 5), (20, 1)]);
        lost.written().for_each(|span| locks.lock(span));
        assert!(locks.blocks(&write(14, 1)) && locks.blocks(&write(20, 1)));
        assert!(!locks.blocks(&write(15, 5)), "between them");
        assert!(locks.blocks(&over(WRITE, &[(0, 1), (16, 2), (20, 9)])));
        assert!(!locks.blocks(&over(WRITE, &[(0, 1), (16, 2)])));
        assert!(!locks.blocks(&over(Operation::Read, &[(10, 5)])));
        lost.written().for_each(|span| locks.unlock(span));
        assert!(locks.is_empty());
    }
}
