//! Commands over many extents: each extent has the effect of a separate request.

use super::{Bench, Suite};
use base::Prng;
use base::units::Lba;
use block::extents::{Extent, Extents};
use block::request::{BlockError, Operation};
use reactor::Driver;

const WRITE: Operation = Operation::Write { durable: false };

/// Content of the extent that begins at block `lba`.
fn content<D: Driver>(bench: &Bench<D>, seed: u64, lba: u64, blocks: u32) -> Vec<u8> {
    let mut bytes = vec![0; blocks as usize * bench.geometry().block_bytes as usize];
    Prng::from_seed(seed ^ lba).fill(&mut bytes);
    bytes
}

/// A command over `ranges`; a write carries the content of `seed`.
fn command<D: Driver>(
    bench: &mut Bench<D>,
    operation: Operation,
    ranges: &[(u64, u32)],
    seed: u64,
) -> Extents {
    let extents = ranges.iter().map(|&(lba, blocks)| {
        let bytes = content(bench, seed, lba, blocks);
        let mut data = bench.buffer(bytes.len()).expect("a free buffer");
        if operation != Operation::Read {
            data.copy_in(0, &bytes);
        }
        Extent {
            tag: lba,
            lba: Lba(lba),
            blocks,
            data: Some(data),
            result: Ok(()),
        }
    });
    Extents {
        extents: extents.collect(),
        operation,
        tag: bench.tag(),
    }
}

/// Reads data written over several extents, by one command and one by one; and checks refused
/// commands.
pub(super) fn extents<D: Driver>(bench: &mut Bench<D>, suite: Suite) {
    let last = bench.geometry().blocks - 1;
    let ranges = [(1, 1), (3, 2), (5, 1), (20, 4), (last, 1)];
    for (seed, durable) in [(1, false), (2, true)] {
        let written = command(bench, Operation::Write { durable }, &ranges, seed);
        let written = bench.run_extents(written);
        assert!(written.extents.iter().all(|extent| extent.result.is_ok()));
        let read = command(bench, Operation::Read, &ranges, seed);
        let read = bench.run_extents(read);
        for (extent, &(lba, blocks)) in read.extents.iter().zip(&ranges) {
            assert_eq!(
                (extent.tag, extent.lba, extent.blocks),
                (lba, Lba(lba), blocks)
            );
            assert_eq!(extent.result, Ok(()));
            let mut expected = content(bench, seed, lba, blocks);
            if !suite.keeps {
                expected.fill(0);
            }
            let mut found = Vec::new();
            let data = extent.data.as_ref().expect("the data comes back");
            data.append_to(0, &mut found);
            assert_eq!(found, expected, "by one command: block {lba}");
            assert_eq!(bench.read(lba, blocks), Ok(expected), "alone: block {lba}");
        }
    }
    refused(bench);
}

/// A command that fails its check changes nothing.
fn refused<D: Driver>(bench: &mut Bench<D>) {
    let before = bench.read(1, 8);
    let blocks = bench.geometry().blocks;
    let wrong: [(&[(u64, u32)], BlockError); 6] = [
        (&[], BlockError::Malformed),
        (&[(1, 2), (2, 1)], BlockError::Malformed),
        (&[(4, 1), (2, 1)], BlockError::Malformed),
        (&[(2, 1), (2, 1)], BlockError::Malformed),
        (&[(1, 1), (blocks, 1)], BlockError::OutOfRange),
        (&[(1, 1), (u64::MAX, 1)], BlockError::OutOfRange),
    ];
    for (ranges, error) in wrong {
        let command = command(bench, WRITE, ranges, 7);
        let ended = bench.run_extents(command);
        assert!(
            ended.extents.iter().all(|e| e.result == Err(error)),
            "{ended:?}"
        );
    }
    let most = bench.capabilities().extents_max;
    let mut too_many = command(bench, WRITE, &[(1, 1)], 7);
    let one = || Extent {
        tag: 0,
        lba: Lba(1),
        blocks: 1,
        data: None,
        result: Ok(()),
    };
    too_many.extents.extend((0..most).map(|_| one()));
    let ended = bench.run_extents(too_many);
    assert!(
        ended
            .extents
            .iter()
            .all(|e| e.result == Err(BlockError::Malformed))
    );
    let mut flush = command(bench, WRITE, &[(1, 1)], 7);
    flush.operation = Operation::Flush;
    let ended = bench.run_extents(flush);
    assert_eq!(ended.extents[0].result, Err(BlockError::Malformed));
    assert_eq!(bench.read(1, 8), before, "nothing was touched");
}
