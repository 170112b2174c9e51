//! Random requests, many at once, checked against a model of every block's content.
//!
//! Requests in flight never overlap a block that one of them changes, because the contract leaves
//! the result open.

use super::{Bench, Suite};
use base::Prng;
use base::units::Lba;
use block::device::Submit;
use block::request::{BlockError, Completion, Operation, Request};
use reactor::{Driver, IoSlice};
use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks in use at each end of the device.
const WINDOW: u64 = 1024;
/// Requests in flight.
const DEPTH: usize = 24;
/// Blocks of the longest request.
const LONGEST: u64 = 40;

/// The model of the content, and the requests in flight.
struct Model {
    /// The seed of each block's content, in the window's order; zero for a block of zeroes.
    content: Vec<u64>,
    /// Start of the window's second half in the device, in blocks.
    gap: u64,
    block_bytes: usize,
    in_flight: BTreeMap<u64, Flight>,
    keeps: bool,
    compares: bool,
}

struct Flight {
    operation: Operation,
    range: Range<usize>,
    /// Seed of the blocks' content after the request.
    written: u64,
    /// Expected result of a comparison.
    expected: Result<(), BlockError>,
}

pub(super) fn run<D: Driver>(bench: &mut Bench<D>, suite: Suite) {
    let blocks = bench.geometry().blocks;
    let window = blocks.min(2 * WINDOW);
    let half = window / 2;
    let mut model = Model {
        content: vec![0; usize::try_from(window).expect("a few thousand")],
        gap: blocks - window,
        block_bytes: bench.geometry().block_bytes as usize,
        in_flight: BTreeMap::new(),
        keeps: suite.keeps,
        compares: suite.compares,
    };
    let first = u32::try_from(half).expect("a few thousand");
    let second = u32::try_from(window - half).expect("a few thousand");
    assert_eq!(bench.operate(Operation::Deallocate, 0, first), Ok(()));
    assert_eq!(
        bench.operate(Operation::Deallocate, blocks - u64::from(second), second),
        Ok(())
    );
    let mut random = Prng::from_seed(suite.seed);
    for _ in 0..suite.requests {
        while model.in_flight.len() >= DEPTH {
            let completion = bench.wait();
            model.settle(&completion, suite);
        }
        let Some(request) = model.draw(bench, &mut random) else {
            continue;
        };
        match bench.submit(request) {
            Submit::Done(completion) => model.settle(&completion, suite),
            Submit::Queued => {}
            Submit::Busy(request) => {
                model.in_flight.remove(&request.tag);
            }
        }
    }
    while !model.in_flight.is_empty() {
        let completion = bench.wait();
        model.settle(&completion, suite);
    }
    model.read_all(bench, suite);
}

impl Model {
    /// Draws a request; `None` if it conflicts with one in flight.
    fn draw<D: Driver>(&mut self, bench: &mut Bench<D>, random: &mut Prng) -> Option<Request> {
        let operation = match draw_operation(random) {
            Operation::Compare | Operation::Verify if !self.compares => Operation::Read,
            operation => operation,
        };
        let half = self.content.len() / 2;
        // A request must not span the two halves of the window.
        let start = random.below(self.content.len() as u64 - 1);
        let start = usize::try_from(start).expect("below a length");
        let end = if start < half {
            half
        } else {
            self.content.len()
        };
        let longest = (LONGEST * 512 / self.block_bytes as u64).max(4);
        let len = usize::try_from(1 + random.below(longest)).expect("a few blocks");
        let range = start..(start + len).min(end);
        let overlaps = |flight: &Flight| {
            let apart = flight.range.end <= range.start || range.end <= flight.range.start;
            !apart && (operation.is_write() || flight.operation.is_write())
        };
        if operation != Operation::Flush && self.in_flight.values().any(overlaps) {
            return None;
        }
        let blocks = u32::try_from(range.len()).expect("a few blocks");
        let gap = if start < half { 0 } else { self.gap };
        let mut request = bench.request(operation, start as u64 + gap, blocks);
        let written = match operation {
            Operation::Write { .. } => random.next_u64().max(1),
            _ => 0,
        };
        let mut expected = Ok(());
        if let Some(data) = &mut request.data {
            for (index, block) in range.clone().enumerate() {
                let write = matches!(operation, Operation::Write { .. });
                let seed = if write { written } else { self.content[block] };
                if operation != Operation::Read {
                    fill(
                        data,
                        index * self.block_bytes,
                        self.block_bytes,
                        seed,
                        block,
                    );
                }
            }
            if operation == Operation::Compare && random.chance(1, 2) {
                change_a_byte(data, random);
                expected = Err(BlockError::CompareFailure);
            }
        }
        let flight = Flight {
            operation,
            range,
            written,
            expected,
        };
        self.in_flight.insert(request.tag, flight);
        Some(request)
    }

    fn settle(&mut self, completion: &Completion, suite: Suite) {
        let flight = self.in_flight.remove(&completion.tag);
        let flight = flight.unwrap_or_else(|| panic!("no request waits for {completion:?}"));
        let (operation, range) = (flight.operation, flight.range);
        let what = format!("{operation:?} of {range:?}, {suite:?}");
        assert_eq!(completion.result, flight.expected, "{what}");
        if operation == Operation::Read {
            let data = completion.data.as_ref().expect("a read has data");
            self.check(data, &range, &what);
        }
        if operation.is_write() && self.keeps {
            self.content[range].fill(flight.written);
        }
    }

    fn check(&self, data: &IoSlice, range: &Range<usize>, what: &str) {
        let mut found = vec![0; self.block_bytes];
        for (index, block) in range.clone().enumerate() {
            data.copy_out(index * self.block_bytes, &mut found);
            let expected = content(self.content[block], block, self.block_bytes);
            assert!(
                found == expected,
                "block {block} is not what was written: {what}"
            );
        }
    }

    fn read_all<D: Driver>(&self, bench: &mut Bench<D>, suite: Suite) {
        let half = self.content.len() / 2;
        for block in 0..self.content.len() {
            let lba = block as u64 + if block < half { 0 } else { self.gap };
            let request = Request {
                tag: bench.tag(),
                operation: Operation::Read,
                lba: Lba(lba),
                blocks: 1,
                data: bench.buffer(self.block_bytes),
            };
            let completion = bench.run(request);
            assert_eq!(completion.result, Ok(()));
            let data = completion.data.expect("a read has data");
            self.check(
                &data,
                &(block..block + 1),
                &format!("in the end, {suite:?}"),
            );
        }
    }
}

fn draw_operation(random: &mut Prng) -> Operation {
    match random.below(100) {
        0..35 => Operation::Read,
        35..65 => Operation::Write {
            durable: random.chance(1, 20),
        },
        65..75 => Operation::WriteZeroes {
            deallocate: random.chance(1, 2),
            durable: random.chance(1, 20),
        },
        75..80 => Operation::Deallocate,
        80..88 => Operation::Compare,
        88..94 => Operation::Verify,
        _ => Operation::Flush,
    }
}

fn change_a_byte(data: &mut IoSlice, random: &mut Prng) {
    let at = usize::try_from(random.below(data.len() as u64)).expect("below a length");
    let mut byte = [0];
    data.copy_out(at, &mut byte);
    data.copy_in(at, &[byte[0] ^ 0x10]);
}

/// Returns the content of a block written with `seed`.
fn content(seed: u64, block: usize, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    if seed != 0 {
        Prng::from_seed(seed ^ block as u64).fill(&mut content);
    }
    content
}

fn fill(data: &mut IoSlice, at: usize, bytes: usize, seed: u64, block: usize) {
    data.copy_in(at, &content(seed, block, bytes));
}
