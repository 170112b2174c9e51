//! Writes that exceed one command, with a Flush before and after them.

use base::Prng;
use block::{Geometry, Operation};
use std::ops::Range;

/// Size of the range that such an application uses, in maximum-size commands, from the first block.
const COMMANDS: u64 = 4;

/// Draws one request after another: a write, a Flush, zeroes in several commands over the written
/// range and the blocks after it, a Flush, and a read of the first command's range.
#[derive(Debug)]
pub(super) struct Splitting {
    prng: Prng,
    /// Next requests, in reverse order.
    next: Vec<(Operation, Range<u64>)>,
}

impl Splitting {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            prng: Prng::from_seed(seed ^ 0x5917),
            next: Vec::new(),
        }
    }

    /// Returns the next operation and its blocks. `takes` is the maximum of blocks per command.
    pub(super) fn draw(&mut self, geometry: Geometry, takes: u64) -> (Operation, Range<usize>) {
        if self.next.is_empty() {
            self.plan(geometry.blocks, takes);
        }
        let (operation, Range { start, end }) = self.next.pop().expect("a few");
        let index = |n: u64| usize::try_from(n).expect("a small device");
        (operation, index(start)..index(end))
    }

    fn plan(&mut self, blocks: u64, takes: u64) {
        let blocks = blocks.min(COMMANDS * takes);
        let start = self.prng.below(blocks);
        let all = start..start + 1 + self.prng.below(blocks - start);
        let first = start..all.end.min(start + takes);
        let zeroes = if self.prng.chance(1, 3) {
            Operation::Deallocate
        } else {
            Operation::WriteZeroes {
                deallocate: self.prng.chance(1, 2),
                durable: false,
            }
        };
        let flush = (Operation::Flush, 0..0);
        self.next.extend([
            (Operation::Read, first.clone()),
            flush.clone(),
            (zeroes, all),
            flush,
            (Operation::Write { durable: false }, first),
        ]);
    }
}
