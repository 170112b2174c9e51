//! The effect of each layer on requests and completions.

mod stats;

pub(crate) use stats::Stats;

use super::fault::FaultOperation;
use super::{Delay, DelayOptions, Fault, FaultEffect, FaultOptions, FaultRule, Verify};
use crate::device::Ram;
use crate::testing::Clock;
use crate::testing::conformance::Bench;
use crate::testing::driver;
use crate::{BlockError, Device, Operation, Submit};
use base::units::Lba;
use base::{Nanos, Time};
use reactor::Driver;
use reactor::uring::UringDriver;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

fn ram() -> Arc<dyn Device> {
    Arc::new(Ram::new(1 << 20, 512).expect("a small device"))
}

fn open(device: &dyn Device) -> Bench<UringDriver> {
    Bench::open(driver(), device).expect("the device opens")
}

fn faulty(seed: u64, rules: &[FaultRule]) -> Fault {
    let options = FaultOptions {
        seed,
        rules: rules.to_vec(),
    };
    Fault::new(ram(), &options).expect("legal rules")
}

/// Returns which of `count` reads of the first block fail.
fn failures(seed: u64, rule: FaultRule, count: usize) -> Vec<bool> {
    let device = faulty(seed, &[rule]);
    let mut bench = open(&device);
    let fails = (0..count).map(|_| bench.read(0, 1).is_err()).collect();
    bench.close();
    fails
}

#[test]
fn a_delayed_request_completes_no_earlier_than_its_time() {
    let options = DelayOptions {
        read: Nanos::from_millis(2),
        read_per_kib: Nanos::from_millis(1),
        ..DelayOptions::default()
    };
    let device = Delay::new(ram(), options);
    let mut bench = open(&device);
    bench.write(0, &[1; 4096]).expect("a write without delay");
    let before = bench.driver().now();
    assert_eq!(bench.read(0, 8), Ok(vec![1; 4096]));
    let took = bench.driver().now().since(before);
    assert!(took >= Nanos::from_millis(6), "{took}");
    bench.close();
}

#[test]
fn delays_pass_side_by_side_in_the_order_of_their_ends() {
    let options = DelayOptions {
        read: Nanos::from_millis(30),
        write: Nanos::from_millis(1),
        ..DelayOptions::default()
    };
    let device = Delay::new(ram(), options);
    let clock = Rc::new(Cell::new(Time(5_000_000_000)));
    let driver = Clock::driver(driver(), Rc::clone(&clock));
    let mut bench = Bench::open(driver, &device).expect("the device opens");
    let read = bench.request(Operation::Read, 0, 1);
    let write = bench.request(Operation::Write { durable: false }, 9, 1);
    let (slow, fast) = (read.tag, write.tag);
    assert!(matches!(bench.submit(read), Submit::Queued));
    assert!(matches!(bench.submit(write), Submit::Queued));
    for tag in [fast, slow] {
        clock.set(bench.deadline());
        assert_eq!(bench.wait().tag, tag);
    }
    bench.close();
}

#[test]
fn a_rule_strikes_where_it_says_and_nowhere_else() {
    let rule = FaultRule {
        operation: FaultOperation::Write,
        first: Lba(10),
        blocks: Some(5),
        skip: 1,
        times: Some(2),
        ..FaultRule::new(FaultEffect::Error(BlockError::WriteFailure))
    };
    let device = faulty(1, &[rule]);
    let mut bench = open(&device);
    let block = [1; 512];
    assert_eq!(bench.write(9, &block), Ok(()), "before the range");
    assert_eq!(bench.write(15, &block), Ok(()), "after the range");
    assert!(bench.read(10, 5).is_ok(), "another operation");
    assert_eq!(bench.write(10, &block), Ok(()), "skipped");
    assert_eq!(
        bench.write(8, &[2; 3 * 512]),
        Err(BlockError::WriteFailure),
        "reaches in"
    );
    assert_eq!(
        bench.read(9, 1),
        Ok(block.to_vec()),
        "a failed write has no effect"
    );
    assert_eq!(bench.write(14, &block), Err(BlockError::WriteFailure));
    assert_eq!(bench.write(12, &block), Ok(()), "twice, no more");
    assert_eq!(device.strikes(), [2]);
    bench.close();
}

#[test]
fn a_seed_fixes_who_is_struck() {
    let one_in_four = FaultRule {
        one_in: 4,
        ..FaultRule::new(FaultEffect::Error(BlockError::ReadFailure))
    };
    let first = failures(7, one_in_four, 400);
    assert_eq!(failures(7, one_in_four, 400), first);
    assert_ne!(failures(8, one_in_four, 400), first);
    let struck = first.iter().filter(|&&failed| failed).count();
    assert!((50..150).contains(&struck), "{struck} of 400");
}

#[test]
fn a_torn_write_changes_its_first_blocks_and_fails() {
    let rule = FaultRule {
        operation: FaultOperation::Write,
        skip: 1,
        ..FaultRule::new(FaultEffect::Torn { blocks: 2 })
    };
    let device = faulty(1, &[rule]);
    let mut bench = open(&device);
    assert_eq!(bench.write(0, &[1; 4 * 512]), Ok(()));
    assert_eq!(bench.write(0, &[2; 4 * 512]), Err(BlockError::WriteFailure));
    let found = bench.read(0, 4).expect("a read");
    assert!(found[..1024].iter().all(|&byte| byte == 2));
    assert!(found[1024..].iter().all(|&byte| byte == 1));
    assert_eq!(bench.write(0, &[3; 512]), Err(BlockError::WriteFailure));
    assert_eq!(
        bench.read(0, 1),
        Ok(vec![2; 512]),
        "the last block is never changed"
    );
    bench.close();
}

#[test]
fn what_hangs_ends_when_released_or_closed() {
    let rule = FaultRule {
        operation: FaultOperation::Read,
        ..FaultRule::new(FaultEffect::Hang)
    };
    let device = faulty(1, &[rule]);
    let mut bench = open(&device);
    let request = bench.request(Operation::Read, 0, 1);
    let tag = request.tag;
    assert!(matches!(bench.submit(request), Submit::Queued));
    assert_eq!(bench.write(0, &[1; 512]), Ok(()), "others pass");
    assert!(!bench.turn(Nanos::from_millis(1)), "it hangs");
    device.release();
    let completion = bench.wait();
    assert_eq!((completion.tag, completion.result), (tag, Ok(())));
    let request = bench.request(Operation::Read, 0, 1);
    let tag = request.tag;
    assert!(matches!(bench.submit(request), Submit::Queued));
    bench.shut();
    let completion = bench
        .finished()
        .expect("a closed channel leaves nobody behind");
    assert_eq!(
        (completion.tag, completion.result),
        (tag, Err(BlockError::Aborted))
    );
    assert_eq!(completion.data.map(|data| data.len()), Some(512));
}

#[test]
fn a_sleeping_core_is_woken_by_a_release() {
    let device = Arc::new(faulty(1, &[FaultRule::new(FaultEffect::Hang)]));
    let mut bench = open(&*device);
    let request = bench.request(Operation::Read, 0, 1);
    assert!(matches!(bench.submit(request), Submit::Queued));
    let releasing = Arc::clone(&device);
    let thread = std::thread::spawn(move || releasing.release());
    assert_eq!(bench.wait().result, Ok(()));
    thread.join().expect("the other thread is well");
    bench.close();
}

#[test]
fn bad_rules_are_refused() {
    let rule = FaultRule::new(FaultEffect::Corrupt);
    let none = FaultOptions {
        seed: 1,
        rules: vec![FaultRule { one_in: 0, ..rule }],
    };
    Fault::new(ram(), &none).expect_err("one in zero");
    let many = FaultOptions {
        seed: 1,
        rules: vec![rule; 65],
    };
    Fault::new(ram(), &many).expect_err("too many rules");
}

#[test]
fn verify_notices_data_that_another_layer_corrupts() {
    let rule = FaultRule {
        operation: FaultOperation::Read,
        skip: 1,
        times: Some(1),
        ..FaultRule::new(FaultEffect::Corrupt)
    };
    let device = Verify::new(Arc::new(faulty(3, &[rule]))).expect("a small device");
    let mut bench = open(&device);
    bench.write(4, &[7; 8 * 512]).expect("a write");
    assert_eq!(bench.read(4, 8), Ok(vec![7; 8 * 512]));
    assert_eq!(bench.read(4, 8), Err(BlockError::Corrupt));
    assert_eq!(bench.read(4, 8), Ok(vec![7; 8 * 512]));
    bench.close();
}

#[test]
fn verify_notices_changes_behind_its_back_on_any_core() {
    let below = ram();
    let device = Verify::new(Arc::clone(&below)).expect("a small device");
    let (mut bench, mut other, mut behind) = (open(&device), open(&device), open(&*below));
    bench.write(4, &[7; 1024]).expect("a write");
    bench
        .operate(Operation::Deallocate, 8, 1)
        .expect("a deallocation");
    for lba in [5, 8] {
        behind.write(lba, &[9; 512]).expect("a write below");
        assert_eq!(other.read(lba, 1), Err(BlockError::Corrupt));
        other.write(lba, &[9; 512]).expect("a write repairs it");
        assert_eq!(bench.read(lba, 1), Ok(vec![9; 512]));
    }
    behind.write(20, &[9; 512]).expect("a write below");
    assert!(
        bench.read(20, 1).is_ok(),
        "a block that nobody wrote is unknown"
    );
}

#[test]
fn verify_keeps_what_it_knows_when_the_device_grows() {
    let below = ram();
    let device = Verify::new(Arc::clone(&below)).expect("a small device");
    let mut bench = open(&device);
    bench.write(4, &[7; 512]).expect("a write");
    bench.close();
    device.resize(4096).expect("twice the size");
    let (mut bench, mut behind) = (open(&device), open(&*below));
    behind.write(4, &[9; 512]).expect("a write below");
    assert_eq!(bench.read(4, 1), Err(BlockError::Corrupt));
    bench
        .write(4095, &[7; 512])
        .expect("a write to a new block");
    behind.write(4095, &[9; 512]).expect("a write below");
    assert_eq!(bench.read(4095, 1), Err(BlockError::Corrupt));
}

/// A range that begins and ends within a block covers parts of one more block.
#[test]
fn a_fault_strikes_an_erase_of_a_part_of_its_block() {
    let rule = FaultRule {
        first: Lba(1),
        blocks: Some(1),
        ..FaultRule::new(FaultEffect::Error(BlockError::Internal))
    };
    let device = faulty(1, &[rule]);
    device.erase(0, 512).expect("another block");
    device.erase(100, 512).expect_err("a part of the block");
    device.erase(1024, 512).expect("another block");
}
