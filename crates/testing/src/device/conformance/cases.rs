//! One case for each rule of the device contract.

use super::{Bench, Suite};
use base::Prng;
use base::units::{Lba, MIB};
use block::device::Submit;
use block::request::{BlockError, Completion, Operation, Request};
use reactor::{Driver, IoSlice, Memory, Region};
use std::collections::BTreeSet;

const WRITE: Operation = Operation::Write { durable: false };

const fn zeroes_of(deallocate: bool, durable: bool) -> Operation {
    Operation::WriteZeroes {
        deallocate,
        durable,
    }
}

/// Every operation with a block range.
const RANGED: [Operation; 10] = [
    Operation::Read,
    Operation::Write { durable: false },
    Operation::Write { durable: true },
    zeroes_of(false, false),
    zeroes_of(true, false),
    zeroes_of(false, true),
    zeroes_of(true, true),
    Operation::Deallocate,
    Operation::Compare,
    Operation::Verify,
];

/// `blocks` blocks of a unique pattern.
fn pattern<D: Driver>(bench: &Bench<D>, seed: u64, blocks: u32) -> Vec<u8> {
    let mut bytes = vec![0; blocks as usize * bench.geometry().block_bytes as usize];
    Prng::from_seed(seed).fill(&mut bytes);
    bytes
}

/// Returns the bytes that a read returns after `bytes` were written.
fn kept(suite: Suite, bytes: &[u8]) -> Vec<u8> {
    if suite.keeps {
        bytes.to_vec()
    } else {
        vec![0; bytes.len()]
    }
}

fn assert_bytes(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}: first byte that differs");
}

/// Most blocks of a request with data on this bench.
fn most_blocks<D: Driver>(bench: &mut Bench<D>) -> u32 {
    let block = bench.geometry().block_bytes;
    let most = bench.driver().buffers().largest().min(MIB);
    let most = u32::try_from(most).expect("a buffer is below 4 GiB");
    let most = most.min(bench.capabilities().max_transfer_bytes) / block;
    u32::try_from(bench.geometry().blocks / 2).map_or(most, |half| most.min(half))
}

pub(super) fn ranges<D: Driver>(bench: &mut Bench<D>) {
    let blocks = bench.geometry().blocks;
    let read_only = bench.capabilities().read_only;
    let beyond = [
        (blocks, 1),
        (blocks - 1, 2),
        (u64::MAX, 1),
        (u64::MAX - 1, 2),
        (u64::MAX, 8),
        (blocks + 1, 1),
        (1 << 63, 1),
        // Overflows when converted to bytes.
        (u64::MAX / 512, 1),
        (u64::MAX / 4096 + 1, 1),
    ];
    for operation in RANGED {
        let expected = if read_only && operation.is_write() {
            BlockError::ReadOnly
        } else {
            BlockError::OutOfRange
        };
        for (lba, count) in beyond {
            let result = bench.operate(operation, lba, count);
            assert_eq!(
                result,
                Err(expected),
                "{operation:?} of {count} blocks at {lba}"
            );
        }
        if !operation.has_data() {
            let result = bench.operate(operation, blocks - 1, u32::MAX);
            assert_eq!(result, Err(expected), "{operation:?} far beyond the end");
        }
    }
}

pub(super) fn malformed<D: Driver>(bench: &mut Bench<D>) {
    let block = bench.geometry().block_bytes as usize;
    let read_only = bench.capabilities().read_only;
    let mut refuse = |operation: Operation, blocks, bytes: Option<usize>| {
        let tag = bench.tag();
        let data = bytes.map(|bytes| bench.buffer(bytes).expect("a free buffer"));
        let request = Request {
            tag,
            operation,
            lba: Lba(1),
            blocks,
            data,
        };
        let expected = if read_only && operation.is_write() {
            BlockError::ReadOnly
        } else {
            BlockError::Malformed
        };
        let result = bench.run(request).result;
        assert_eq!(
            result,
            Err(expected),
            "{operation:?}: {blocks} blocks, {bytes:?} bytes"
        );
    };
    for operation in RANGED {
        if operation.has_data() {
            for bytes in [
                None,
                Some(0),
                Some(block - 1),
                Some(block + 1),
                Some(3 * block),
            ] {
                refuse(operation, 2, bytes);
            }
            refuse(operation, 0, Some(0));
        } else {
            refuse(operation, 1, Some(block));
            refuse(operation, 0, None);
        }
    }
    // A buffer with several owners can be a source of a write, but not the destination of a read.
    let mut request = bench.request(Operation::Read, 0, 1);
    request.data = request.data.map(IoSlice::into_shared);
    assert_eq!(
        bench.run(request).result,
        Err(BlockError::Malformed),
        "a read into shared memory"
    );
}

pub(super) fn read_only<D: Driver>(bench: &mut Bench<D>, suite: Suite) {
    for operation in RANGED.into_iter().filter(|operation| operation.is_write()) {
        assert_eq!(
            bench.operate(operation, 0, 1),
            Err(BlockError::ReadOnly),
            "{operation:?}"
        );
    }
    let last = bench.geometry().blocks - 1;
    for lba in [0, last] {
        let bytes = bench.read(lba, 1).expect("a read-only device can be read");
        if suite.compares {
            assert_eq!(bench.send(Operation::Compare, lba, &bytes), Ok(()));
            assert_eq!(bench.operate(Operation::Verify, lba, 1), Ok(()));
        }
    }
    assert_eq!(bench.operate(Operation::Flush, 0, 0), Ok(()));
}

pub(super) fn fresh<D: Driver>(bench: &mut Bench<D>) {
    let last = bench.geometry().blocks - 8;
    for lba in [0, last / 2, last] {
        let bytes = bench.read(lba, 8).expect("a new device can be read");
        assert!(
            bytes.iter().all(|&byte| byte == 0),
            "a new device is zero at {lba}"
        );
    }
}

pub(super) fn edges<D: Driver>(bench: &mut Bench<D>, suite: Suite) {
    let most = most_blocks(bench);
    let last = bench.geometry().blocks - 1;
    let ranges = [
        (0, 1),
        (last, 1),
        (last - 2, 3),
        (1, 7),
        (last + 1 - u64::from(most), most),
        (0, most),
    ];
    for (number, (lba, blocks)) in (1..).zip(ranges) {
        let data = pattern(bench, number, blocks);
        bench.write(lba, &data).expect("a write within the device");
        let found = bench.read(lba, blocks).expect("a read within the device");
        assert_bytes(&found, &kept(suite, &data), "read after write");
        if suite.compares {
            assert_eq!(bench.operate(Operation::Verify, lba, blocks), Ok(()));
        }
    }
    // A block in the middle changes; the adjacent blocks do not.
    let outer = pattern(bench, 100, 3);
    let inner = pattern(bench, 101, 1);
    bench.write(10, &outer).expect("a write within the device");
    bench.write(11, &inner).expect("a write within the device");
    let mut expected = outer;
    let block = inner.len();
    expected[block..2 * block].copy_from_slice(&inner);
    let found = bench.read(10, 3).expect("a read within the device");
    assert_bytes(&found, &kept(suite, &expected), "neighbours of a write");
}

/// Data may be anywhere: at an odd offset of a buffer, in shared memory, in a region.
pub(super) fn any_memory<D: Driver>(bench: &mut Bench<D>, suite: Suite) {
    let blocks = most_blocks(bench).min(64) - 1;
    let bytes = blocks as usize * bench.geometry().block_bytes as usize;
    let region = Region::new(bytes + 4096).expect("a small region").handle();
    let data = pattern(bench, 7, blocks);
    for offset in [0, 1, 72, 513] {
        for in_region in [false, true] {
            let memory = |bench: &Bench<D>| {
                if in_region {
                    return Memory::Region(region.clone());
                }
                let buffer = bench.buffer(bytes + offset).expect("a free buffer");
                buffer.into_memory()
            };
            let operations = [WRITE, Operation::Read, Operation::Compare];
            let known = if suite.compares { 3 } else { 2 };
            for &operation in &operations[..known] {
                let mut slice = IoSlice::new(memory(bench), offset, bytes);
                let filled = if operation == WRITE {
                    data.clone()
                } else {
                    kept(suite, &data)
                };
                if operation != Operation::Read {
                    slice.copy_in(0, &filled);
                }
                if operation == WRITE {
                    slice = slice.into_shared();
                }
                let tag = bench.tag();
                let request = Request {
                    tag,
                    operation,
                    lba: Lba(5),
                    blocks,
                    data: Some(slice),
                };
                let completion = bench.run(request);
                assert_eq!(completion.result, Ok(()), "{operation:?} at byte {offset}");
                let slice = completion.data.expect("the data comes back");
                assert_eq!(slice.offset(), offset, "the data comes back where it was");
                let mut found = vec![0; bytes];
                slice.copy_out(0, &mut found);
                assert_bytes(&found, &filled, "data after the operation");
            }
        }
    }
}

pub(super) fn compare<D: Driver>(bench: &mut Bench<D>, suite: Suite) {
    let data = pattern(bench, 3, 16);
    bench.write(20, &data).expect("a write within the device");
    let mut same = kept(suite, &data);
    assert_eq!(bench.send(Operation::Compare, 20, &same), Ok(()));
    for at in [0, same.len() / 2, same.len() - 1] {
        same[at] ^= 1;
        let result = bench.send(Operation::Compare, 20, &same);
        assert_eq!(result, Err(BlockError::CompareFailure), "byte {at} differs");
        same[at] ^= 1;
    }
}

pub(super) fn zeroes<D: Driver>(bench: &mut Bench<D>, suite: Suite) {
    let window = u32::try_from(bench.geometry().blocks.min(4096)).expect("at most 4096");
    let most = most_blocks(bench);
    let zeroing = RANGED.into_iter().filter(|operation| {
        matches!(
            operation,
            Operation::WriteZeroes { .. } | Operation::Deallocate
        )
    });
    for operation in zeroing {
        // Ranges with odd ends, and one longer than the maximum transfer.
        for (lba, blocks) in [(3, 1), (5, 7), (8, 16), (1, window - 2)] {
            let around = pattern(bench, 11, 1);
            let (before, after) = (lba - 1, lba + u64::from(blocks));
            let filled = blocks.min(most);
            let data = pattern(bench, 12, filled);
            bench
                .write(before, &around)
                .expect("a write within the device");
            bench
                .write(after, &around)
                .expect("a write within the device");
            bench.write(lba, &data).expect("a write within the device");
            bench
                .write(after - u64::from(filled), &data)
                .expect("a write within the device");
            let what = format!("{operation:?} of {blocks} blocks at {lba}");
            assert_eq!(bench.operate(operation, lba, blocks), Ok(()), "{what}");
            for at in [lba, after - u64::from(filled)] {
                let found = bench.read(at, filled).expect("a read within the device");
                assert_bytes(&found, &vec![0; found.len()], &what);
            }
            for at in [before, after] {
                let found = bench.read(at, 1).expect("a read within the device");
                assert_bytes(&found, &kept(suite, &around), &what);
            }
        }
    }
    // The whole device in one request.
    let blocks = u32::try_from(bench.geometry().blocks).unwrap_or(u32::MAX);
    assert_eq!(bench.operate(Operation::Deallocate, 0, blocks), Ok(()));
    let found = bench.read(0, 8).expect("a read within the device");
    assert!(
        found.iter().all(|&byte| byte == 0),
        "a deallocated device is zero"
    );
}

pub(super) fn durable<D: Driver>(bench: &mut Bench<D>, suite: Suite) {
    let data = pattern(bench, 5, 4);
    let durable = Operation::Write { durable: true };
    assert_eq!(bench.send(durable, 40, &data), Ok(()));
    let found = bench.read(40, 4).expect("a read within the device");
    assert_bytes(&found, &kept(suite, &data), "a durable write");
    assert_eq!(bench.operate(Operation::Flush, 0, 0), Ok(()));
    assert_eq!(
        bench.operate(Operation::Flush, u64::MAX, 9),
        Ok(()),
        "a flush has no range"
    );
    let mut tags = BTreeSet::new();
    for _ in 0..16 {
        let write = bench.request(durable, 40, 4);
        let flush = bench.request(Operation::Flush, 0, 0);
        tags.extend([write.tag, flush.tag]);
        accept(bench, write, &mut tags);
        accept(bench, flush, &mut tags);
    }
    drain(bench, &mut tags);
}

/// Submits a request that must be accepted.
fn accept<D: Driver>(bench: &mut Bench<D>, request: Request, tags: &mut BTreeSet<u64>) {
    match bench.submit(request) {
        Submit::Done(completion) => settle(&completion, tags),
        Submit::Queued => {}
        Submit::Busy(request) => panic!("no room for a few requests: {request:?}"),
    }
}

fn settle(completion: &Completion, tags: &mut BTreeSet<u64>) {
    assert!(
        tags.remove(&completion.tag),
        "no request waits for {completion:?}"
    );
    assert_eq!(completion.result, Ok(()), "{completion:?}");
}

fn drain<D: Driver>(bench: &mut Bench<D>, tags: &mut BTreeSet<u64>) {
    while !tags.is_empty() {
        let completion = bench.wait();
        settle(&completion, tags);
    }
}

/// Submits requests until the channel has no room, at most a few thousand.
pub(super) fn many<D: Driver>(bench: &mut Bench<D>, suite: Suite) {
    let mut random = Prng::from_seed(9);
    for _ in 0..2 {
        let mut tags = BTreeSet::new();
        let mut busy = None;
        for _ in 0..4_000 {
            if busy.is_some() {
                break;
            }
            let lba = random.below(bench.geometry().blocks);
            let read = random.chance(1, 2);
            let operation = if read { Operation::Read } else { WRITE };
            let operation = if random.chance(1, 50) && suite.compares {
                Operation::Verify
            } else {
                operation
            };
            let bytes = bench.geometry().block_bytes as usize;
            let data = operation.has_data().then(|| bench.buffer(bytes));
            if data.as_ref().is_some_and(Option::is_none) {
                break;
            }
            let (tag, data) = (bench.tag(), data.flatten());
            tags.insert(tag);
            match bench.submit(Request {
                tag,
                operation,
                lba: Lba(lba),
                blocks: 1,
                data,
            }) {
                Submit::Done(completion) => settle(&completion, &mut tags),
                Submit::Queued => {}
                Submit::Busy(request) => {
                    assert_eq!(request.tag, tag, "a request comes back as it was");
                    assert_eq!(request.lba.0, lba, "a request comes back as it was");
                    tags.remove(&tag);
                    assert!(!tags.is_empty(), "busy without a request");
                    busy = Some(request);
                }
            }
            if random.chance(1, 40) {
                // Some may complete before the next ones are submitted.
                while let Some(completion) = bench.finished() {
                    settle(&completion, &mut tags);
                }
                if tags.len() > 2_000 {
                    break;
                }
            }
            if bench
                .driver()
                .buffers()
                .usage()
                .all(|(_, free, _)| free == 0)
            {
                break;
            }
        }
        drain(bench, &mut tags);
        if let Some(request) = busy {
            assert_eq!(bench.run(request).result, Ok(()), "there is room again");
        }
    }
}

/// Closing ends every request, with any result, and returns its data.
pub(super) fn close_under_load<D: Driver>(bench: &mut Bench<D>) {
    let mut tags = BTreeSet::new();
    for round in 0..48u64 {
        let operation = match round % 4 {
            0 => Operation::Read,
            1 => Operation::Write {
                durable: round % 8 == 1,
            },
            2 => Operation::Flush,
            _ => Operation::Deallocate,
        };
        let request = bench.request(operation, round % bench.geometry().blocks, 1);
        tags.insert(request.tag);
        match bench.submit(request) {
            Submit::Done(completion) => settle(&completion, &mut tags),
            Submit::Queued => {}
            Submit::Busy(request) => {
                tags.remove(&request.tag);
            }
        }
    }
    bench.shut();
    while let Some(completion) = bench.finished() {
        assert!(
            tags.remove(&completion.tag),
            "no request waits for {completion:?}"
        );
    }
    assert!(tags.is_empty(), "closed without an answer to {tags:?}");
    // After closing, requests are refused, and nothing panics.
    let request = bench.request(Operation::Read, 0, 1);
    let tag = request.tag;
    match bench.submit(request) {
        Submit::Done(completion) => assert_eq!(completion.tag, tag),
        Submit::Busy(request) => assert_eq!(request.tag, tag),
        Submit::Queued => panic!("a closed channel takes no request"),
    }
}

pub(super) fn reuse<D: Driver>(bench: &mut Bench<D>, suite: Suite) {
    if bench.capabilities().read_only {
        return read_only(bench, suite);
    }
    let data = pattern(bench, 77, 8);
    bench.write(16, &data).expect("a write within the device");
    let found = bench.read(16, 8).expect("a read within the device");
    assert_bytes(
        &found,
        &kept(suite, &data),
        "a device that was closed and opened",
    );
}
