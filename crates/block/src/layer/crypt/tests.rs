//! Encrypted devices: what is on the device below, and who opens it.

use super::{COPIES_AT, COPY_BYTES, Crypt, CryptKey};
use crate::device::{FileDevice, FileOptions, Ram};
use crate::layer::fault::FaultOperation;
use crate::layer::{Fault, FaultEffect, FaultOptions, FaultRule};
use crate::limits::{CRYPT_HEADER_BYTES, CRYPT_PIECE_BYTES, LAYER_QUEUE_DEPTH};
use crate::testing::conformance::{Bench, Suite, run};
use crate::testing::driver;
use crate::{BlockError, Device, Geometry, Operation, Submit};
use base::units::{KIB, MIB};
use base::{Nanos, Time};
use reactor::uring::UringDriver;
use std::sync::Arc;

const SIZE: u64 = 16 << 20;

/// First byte of the volume on the device.
const DATA_AT: u64 = CRYPT_HEADER_BYTES;

fn key(byte: u8) -> CryptKey {
    CryptKey::new(&[byte; 32])
}

fn ram(block_bytes: u32) -> Arc<dyn Device> {
    Arc::new(Ram::new(SIZE, block_bytes).expect("a small device"))
}

fn create(below: &Arc<dyn Device>) -> Crypt {
    Crypt::open(Arc::clone(below), &key(1), true).expect("an empty device")
}

fn open(device: &dyn Device) -> Bench<UringDriver> {
    Bench::open(driver(), device).expect("the device opens")
}

/// All bytes of a device.
fn content(device: &dyn Device) -> Vec<u8> {
    let mut bench = open(device);
    let geometry = device.geometry();
    let step = u32::try_from(MIB).expect("1 MiB") / geometry.block_bytes;
    let mut all = Vec::new();
    for lba in (0..geometry.blocks).step_by(step as usize) {
        all.extend(bench.read(lba, step).expect("within the device"));
    }
    bench.close();
    all
}

fn refusal(below: &Arc<dyn Device>, key: &CryptKey, create: bool) -> String {
    let refused = Crypt::open(Arc::clone(below), key, create);
    refused.expect_err("it does not open").to_string()
}

/// Data whose blocks of 512 bytes all begin with a word.
fn words(blocks: usize) -> Vec<u8> {
    let block = |i: usize| {
        [
            &b"PLAINTEXT"[..],
            &[u8::try_from(i % 251).unwrap_or(0); 503],
        ]
        .concat()
    };
    (0..blocks).flat_map(block).collect()
}

fn has_plaintext(bytes: &[u8]) -> bool {
    bytes.windows(9).any(|window| window == b"PLAINTEXT")
}

#[test]
fn encrypted_devices_pass_the_suite() {
    for block_bytes in [512, 4096] {
        let below = ram(block_bytes);
        let suite = Suite {
            atomic: true,
            ..Suite::default()
        };
        run(driver, &create(&below), suite);
    }
    let path = crate::temporary("crypt");
    let file = FileDevice::open(FileOptions {
        path: path.clone(),
        block_bytes: 512,
        size: Some(SIZE),
        create: true,
        read_only: false,
        direct: true,
    });
    let below: Arc<dyn Device> = Arc::new(file.expect("a new file"));
    run(driver, &create(&below), Suite::default());
    let flaws = FaultOptions::default();
    let faulty: Arc<dyn Device> = Arc::new(Fault::new(ram(512), &flaws).expect("no rules"));
    run(driver, &create(&faulty), Suite::default());
    std::fs::remove_file(path).expect("it is there");
}

#[test]
fn the_device_below_holds_no_plaintext_and_each_block_differs() {
    let below = ram(512);
    let device = create(&below);
    let mut bench = open(&device);
    // At once, in pieces, and into blocks that a Compare reads.
    for (lba, blocks) in [(0, 1), (100, 64), (1000, 2048)] {
        bench.write(lba, &words(blocks)).expect("within the device");
        let read = bench.read(lba, u32::try_from(blocks).unwrap_or(0));
        assert_eq!(read, Ok(words(blocks)));
        let compared = bench.send(Operation::Compare, lba, &words(blocks));
        assert_eq!(compared, Ok(()));
    }
    bench.write(8000, &[5; 1024]).expect("within the device");
    bench.close();
    let all = content(&*below);
    assert!(!has_plaintext(&all));
    let at = usize::try_from(DATA_AT).unwrap_or(0) + 8000 * 512;
    assert_ne!(
        all[at..at + 512],
        all[at + 512..at + 1024],
        "the same content"
    );
    assert_eq!(content(&device).len() as u64, SIZE - DATA_AT);
}

#[test]
fn only_its_key_opens_a_device_and_none_after_the_erasure() {
    let below = ram(512);
    let device = create(&below);
    let mut bench = open(&device);
    bench.write(7, &words(3)).expect("within the device");
    bench.close();
    assert!(refusal(&below, &key(2), true).contains("the key does not open it"));
    Crypt::change_key(&*below, &key(2), &key(3)).expect_err("the wrong key");
    Crypt::change_key(&*below, &key(1), &key(2)).expect("the right key");
    assert!(refusal(&below, &key(1), true).contains("the key does not open it"));
    let again = Crypt::open(Arc::clone(&below), &key(2), false).expect("its new key");
    let mut bench = open(&again);
    assert_eq!(bench.read(7, 3), Ok(words(3)));
    bench.close();
    let before = content(&*below);
    Crypt::erase_key(&*below).expect("a device with a key");
    for create in [false, true] {
        assert!(refusal(&below, &key(2), create).contains("its key was erased"));
    }
    let after = content(&*below);
    for at in COPIES_AT.map(|at| usize::try_from(at).unwrap_or(0)) {
        let wrapped = at + 76..at + 156;
        assert!(before[wrapped.clone()].iter().any(|&byte| byte != 0));
        assert!(after[wrapped].iter().all(|&byte| byte == 0));
    }
    Crypt::erase_key(&*below).expect("once more");
    Crypt::erase_key(&*ram(512)).expect_err("no header");
}

#[test]
fn a_copy_of_the_device_opens_and_a_torn_header_is_mended() {
    let below = ram(4096);
    let device = create(&below);
    let mut bench = open(&device);
    bench.write(9, &words(8)).expect("within the device");
    bench.close();
    for torn in COPIES_AT {
        let copy = ram(4096);
        let mut bench = open(&*copy);
        for (lba, block) in (0..).zip(content(&*below).chunks(4096)) {
            bench.write(lba, block).expect("within the device");
        }
        bench
            .write(torn / 4096, &[0xA5; COPY_BYTES])
            .expect("within the device");
        bench.close();
        for _ in 0..2 {
            let opened = Crypt::open(Arc::clone(&copy), &key(1), false).expect("one copy");
            let mut bench = open(&opened);
            assert_eq!(bench.read(9, 1), Ok(words(8)));
            bench.close();
        }
        assert_eq!(content(&*copy), content(&*below), "the copy was mended");
    }
}

#[test]
fn content_is_not_overwritten_and_headers_are_not_guessed() {
    let below = ram(512);
    assert!(refusal(&below, &key(1), false).contains("create = true"));
    assert!(
        content(&*below).iter().all(|&byte| byte == 0),
        "nothing was written"
    );
    for lba in [1, 3000, SIZE / 512 - 1] {
        let used = ram(512);
        let mut bench = open(&*used);
        bench.write(lba, &[1; 512]).expect("within the device");
        bench.close();
        let error = refusal(&used, &key(1), true);
        assert!(
            error.contains(&format!("content at byte {}", lba * 512)),
            "{error}"
        );
    }
    drop(create(&below));
    let small: Arc<dyn Device> = Arc::new(Ram::new(DATA_AT, 512).expect("a small device"));
    assert!(refusal(&small, &key(1), true).contains("use a larger one"));
}

#[test]
fn zeroes_are_zeroes_whether_written_deallocated_or_never_used() {
    let below = ram(512);
    let device = create(&below);
    let mut bench = open(&device);
    assert_eq!(bench.read(50, 2), Ok(vec![0; 1024]), "never used");
    bench.write(50, &[0; 512]).expect("within the device");
    bench.write(51, &words(1)).expect("within the device");
    bench
        .operate(Operation::Deallocate, 51, 1)
        .expect("supported");
    let zeroes = vec![0; 3 * 512];
    assert_eq!(bench.read(50, 3), Ok(zeroes.clone()));
    assert_eq!(bench.send(Operation::Compare, 50, &zeroes), Ok(()));
    let other = [&zeroes[..1024], &words(1)].concat();
    let compared = bench.send(Operation::Compare, 50, &other);
    assert_eq!(compared, Err(BlockError::CompareFailure));
    bench.close();
    let all = content(&*below);
    let at = |lba: usize| usize::try_from(DATA_AT).unwrap_or(0) + lba * 512;
    assert!(
        all[at(50)..at(51)].iter().any(|&byte| byte != 0),
        "encrypted"
    );
    assert!(
        all[at(51)..at(52)].iter().all(|&byte| byte == 0),
        "deallocated"
    );
}

#[test]
fn sizes_and_ranges_leave_the_header_alone() {
    let below = ram(512);
    let device = create(&below);
    let blocks = (SIZE - DATA_AT) / 512;
    assert_eq!(
        device.geometry(),
        Geometry {
            block_bytes: 512,
            blocks
        }
    );
    let mut bench = open(&device);
    let beyond = bench.operate(Operation::Deallocate, u64::MAX - 5, 3);
    assert_eq!(beyond, Err(BlockError::OutOfRange));
    assert_eq!(bench.read(blocks, 1), Err(BlockError::OutOfRange));
    bench.write(blocks - 2, &words(2)).expect("the last blocks");
    bench.close();
    device
        .erase(SIZE - DATA_AT - 512, 512)
        .expect("the last block");
    device.erase(0, 100).expect_err("a part of a block");
    device
        .erase(SIZE - DATA_AT, 512)
        .expect_err("beyond the end");
    let mut bench = open(&device);
    assert_eq!(bench.read(blocks - 2, 1), Ok(words(1)));
    assert_eq!(bench.read(blocks - 1, 1), Ok(vec![0; 512]));
    bench.close();
    device.resize(2 * blocks).expect("twice the size");
    assert_eq!(below.geometry().blocks, 2 * blocks + DATA_AT / 512);
    device.resize(0).expect_err("no blocks");
    device.resize(u64::MAX).expect_err("too many blocks");
    let again = Crypt::open(below, &key(1), false).expect("its header");
    let mut bench = open(&again);
    assert_eq!(bench.read(2 * blocks - 1, 1), Ok(vec![0; 512]));
    bench.close();
}

#[test]
fn a_large_request_is_encrypted_in_pieces_so_that_a_small_one_passes_it() {
    let below = ram(512);
    let device = create(&below);
    let mut bench = open(&device);
    let write = |bench: &mut Bench<_>, lba, blocks: usize| {
        let count = u32::try_from(blocks).unwrap_or(0);
        let mut request = bench.request(Operation::Write { durable: false }, lba, count);
        request
            .data
            .as_mut()
            .expect("a write")
            .copy_in(0, &words(blocks));
        request
    };
    let large = write(&mut bench, 0, 2048);
    let small = write(&mut bench, 4000, 8);
    assert!(matches!(bench.submit(large), Submit::Queued));
    assert!(matches!(bench.submit(small), Submit::Done(_)), "at once");
    let mut turns = 0;
    while bench.finished().is_none() {
        assert_eq!(bench.deadline(), Time(0), "it needs a turn");
        bench.turn(Nanos::ZERO);
        turns += 1;
    }
    assert_eq!(turns, MIB / CRYPT_PIECE_BYTES);
    assert_eq!(bench.read(0, 2048), Ok(words(2048)));
    bench.close();
}

#[test]
fn many_writes_wait_for_buffers_and_a_close_ends_them() {
    let device = create(&ram(512));
    let mut bench = open(&device);
    let mut queued = 0;
    loop {
        let request = bench.request(Operation::Write { durable: false }, 0, 128);
        match bench.submit(request) {
            Submit::Queued => queued += 1,
            Submit::Busy(_) => break,
            Submit::Done(done) => panic!("{done:?}"),
        }
        assert!(queued < LAYER_QUEUE_DEPTH);
    }
    assert_eq!(queued, 20, "one for each buffer of at least 64 KiB");
    bench.shut();
    for _ in 0..queued {
        let done = bench.finished().expect("each completes");
        assert_eq!(done.result, Err(BlockError::Aborted));
        assert_eq!(done.data.expect("it comes back").len(), 64 * KIB);
    }
    bench.close();
}

#[test]
fn errors_of_the_device_pass_through() {
    let rule = |operation, error| FaultRule {
        operation,
        skip: 4,
        ..FaultRule::new(FaultEffect::Error(error))
    };
    let rules = vec![
        rule(FaultOperation::Read, BlockError::ReadFailure),
        rule(FaultOperation::Write, BlockError::NoSpace),
    ];
    let plain = ram(512);
    drop(create(&plain));
    let options = FaultOptions { seed: 1, rules };
    let faulty: Arc<dyn Device> = Arc::new(Fault::new(plain, &options).expect("rules"));
    let device = Crypt::open(faulty, &key(1), false).expect("its header");
    let mut bench = open(&device);
    let mut results: Vec<_> = (0..5).map(|_| bench.read(0, 1).map(drop)).collect();
    assert_eq!(results.pop(), Some(Err(BlockError::ReadFailure)));
    let compared = bench.send(Operation::Compare, 0, &[0; 512]);
    assert_eq!(compared, Err(BlockError::ReadFailure));
    let mut results: Vec<_> = (0..5).map(|_| bench.write(0, &[1; 512])).collect();
    assert_eq!(results.pop(), Some(Err(BlockError::NoSpace)));
    bench.close();
}
