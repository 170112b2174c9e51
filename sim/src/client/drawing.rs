//! The draw of an application's next request.

use super::Client;
use crate::application::Mix;
use block::Operation;
use std::ops::Range;

impl Client {
    /// Draws the next operation.
    fn operation(&mut self) -> Operation {
        const WRITE: Operation = Operation::Write { durable: false };
        if self.work.syncs && self.prng.chance(1, 2) {
            return Operation::Flush;
        }
        let roll = self.prng.below(100);
        match (self.work.mix, roll) {
            (Mix::Plain, 0..50) | (Mix::Everything, 0..38) => Operation::Read,
            (Mix::Plain, 50..97) | (Mix::Everything, 38..76) => WRITE,
            (Mix::Everything, 76..81) => Operation::WriteZeroes {
                deallocate: roll.is_multiple_of(2),
                durable: false,
            },
            (Mix::Everything, 81..85) => Operation::Deallocate,
            (Mix::Everything, 85..92) => Operation::Compare,
            (Mix::Everything, 92..95) => Operation::Verify,
            _ => Operation::Flush,
        }
    }

    /// Draws the next operation and its blocks.
    pub(super) fn draw(&mut self) -> Option<(Operation, Range<usize>)> {
        let operation = self.operation();
        let range = match operation {
            Operation::Flush => 0..0,
            _ => self.range(operation)?,
        };
        Some((operation, range))
    }
}
