//! Concurrent reads and writes of the same blocks: a read returns each block either old or new.

use super::Bench;
use block::device::Submit;
use block::request::{Completion, Operation};
use reactor::Driver;
use std::collections::BTreeSet;

const WRITE: Operation = Operation::Write { durable: false };
/// Blocks of a request.
const BLOCKS: u32 = 4;
/// The first block of requests.
const START: u64 = 8;
const ROUNDS: u64 = 300;
/// Requests in flight.
const DEPTH: usize = 16;

/// Requests in flight, by their tags.
#[derive(Default)]
struct UnderWay {
    reads: BTreeSet<u64>,
    writes: BTreeSet<u64>,
}

impl UnderWay {
    /// Submits a request for [`BLOCKS`] blocks at `lba`. A write fills its blocks with one word
    /// that no other write uses.
    fn submit<D: Driver>(&mut self, bench: &mut Bench<D>, operation: Operation, lba: u64) {
        let mut request = bench.request(operation, lba, BLOCKS);
        let tags = match operation {
            WRITE => &mut self.writes,
            _ => &mut self.reads,
        };
        tags.insert(request.tag);
        if let (WRITE, Some(data)) = (operation, &mut request.data) {
            let word = request.tag.to_le_bytes();
            data.copy_in(0, &word.repeat(data.len() / word.len()));
        }
        match bench.submit(request) {
            Submit::Done(completion) => self.settle(bench, &completion),
            Submit::Queued => {}
            Submit::Busy(request) => panic!("no room for a few requests: {request:?}"),
        }
    }

    fn settle<D: Driver>(&mut self, bench: &Bench<D>, completion: &Completion) {
        assert_eq!(completion.result, Ok(()), "{completion:?}");
        if self.writes.remove(&completion.tag) {
            return;
        }
        let of_read = self.reads.remove(&completion.tag);
        assert!(of_read, "no request waits for {completion:?}");
        let data = completion.data.as_ref().expect("a read has data");
        let mut block = vec![0; bench.geometry().block_bytes as usize];
        for number in 0..BLOCKS as usize {
            data.copy_out(number * block.len(), &mut block);
            let mut words = block.chunks(size_of::<u64>());
            assert!(
                words.all(|word| *word == block[..size_of::<u64>()]),
                "block {number} of a read is of two writes"
            );
        }
    }

    fn wait<D: Driver>(&mut self, bench: &mut Bench<D>, most: usize) {
        while self.reads.len() + self.writes.len() > most {
            let completion = bench.wait();
            self.settle(bench, &completion);
        }
    }
}

pub(super) fn whole_blocks<D: Driver>(bench: &mut Bench<D>) {
    let mut under_way = UnderWay::default();
    // The initial content comes from no single write.
    for lba in [START, START + 1] {
        under_way.submit(bench, WRITE, lba);
        under_way.wait(bench, 0);
    }
    for _ in 0..ROUNDS {
        for lba in [START, START + 1] {
            under_way.submit(bench, WRITE, lba);
            under_way.submit(bench, Operation::Read, lba);
        }
        under_way.wait(bench, DEPTH - 4);
    }
    under_way.wait(bench, 0);
}
