//! The cache over devices in memory: slow ones, failing ones, and ones that lose power.

mod abandoned;
mod age;
mod erase;
mod failures;
mod power_loss;
mod threads;
mod wake_up;

use super::*;
use crate::device::{FileDevice, FileOptions, Flash, Ram};
use crate::layer::fault::FaultOperation;
use crate::layer::{Delay, DelayOptions, Fault, FaultEffect, FaultOptions, FaultRule, Stats};
use crate::testing::conformance::{self, Bench, Suite};
use crate::testing::driver;
use crate::{Operation, PathDevice};
use base::{Nanos, Prng};
use reactor::uring::UringDriver;
use switch::{Path, PathRules};

const SIZE: u64 = 16 << 20;

fn ram(block_bytes: u32) -> Arc<dyn Device> {
    Arc::new(Ram::new(SIZE, block_bytes).expect("memory"))
}

fn slow(below: Arc<dyn Device>) -> Arc<dyn Device> {
    let options = DelayOptions {
        read: Nanos::from_micros(20),
        write: Nanos::from_micros(50),
        flush: Nanos::from_micros(50),
        ..DelayOptions::default()
    };
    Arc::new(Delay::new(below, options))
}

fn options(pages: u32, dirty_background: u32, dirty_max: u32) -> CacheOptions {
    CacheOptions {
        dirty_background,
        dirty_max,
        ..CacheOptions::new(pages)
    }
}

fn cache(below: Arc<dyn Device>, options: CacheOptions) -> Cache {
    Cache::new(below, options).expect("legal options")
}

fn open(device: &dyn Device) -> Bench<UringDriver> {
    Bench::open(driver(), device).expect("it opens")
}

fn faulty(below: Arc<dyn Device>, rule: FaultRule) -> Arc<Fault> {
    let options = FaultOptions {
        seed: 1,
        rules: vec![rule],
    };
    Arc::new(Fault::new(below, &options).expect("legal rules"))
}

/// Caches that hold the whole device, a part of it, almost nothing, and no dirty page at all.
fn sizes() -> [CacheOptions; 5] {
    let mut look_up = options(512, 64, 256);
    look_up.read_ahead.context_look_up = true;
    [
        options(8192, 100, 4000),
        look_up,
        options(32, 2, 8),
        options(1, 0, 1),
        options(64, 0, 0),
    ]
}

#[test]
fn caches_of_all_sizes_pass_over_memory() {
    for (seed, size) in (1..).zip(sizes()) {
        for block_bytes in [512, 4096] {
            let suite = Suite {
                seed,
                ..Suite::default()
            };
            conformance::run(driver, &cache(ram(block_bytes), size), suite);
        }
    }
}

#[test]
fn caches_of_all_sizes_pass_over_a_slow_device() {
    for (seed, size) in (1..).zip(sizes()) {
        let suite = Suite {
            seed,
            requests: 1_000,
            ..Suite::default()
        };
        conformance::run(driver, &cache(slow(ram(512)), size), suite);
    }
}

#[test]
fn it_passes_over_faults_and_delays() {
    // Late requests overtake each other; failing ones are in `failures`.
    let rule = |operation, micros| FaultRule {
        operation,
        one_in: 3,
        ..FaultRule::new(FaultEffect::Delay(Nanos::from_micros(micros)))
    };
    let faults = FaultOptions {
        seed: 5,
        rules: vec![
            rule(FaultOperation::Write, 300),
            rule(FaultOperation::Read, 200),
            rule(FaultOperation::Flush, 400),
        ],
    };
    for size in sizes() {
        let late = Fault::new(slow(ram(512)), &faults).expect("legal rules");
        conformance::run(driver, &cache(slow(Arc::new(late)), size), not_fresh());
    }
}

#[test]
fn it_passes_over_emulated_flash_and_under_layers() {
    for (block_bytes, size) in [(512, options(64, 8, 32)), (4096, options(1024, 100, 400))] {
        let profile = "dram-ssd".parse().expect("a profile");
        let flash = Arc::new(Flash::new(profile, SIZE, block_bytes).expect("memory"));
        let device = Stats::new(Arc::new(cache(flash, size)));
        conformance::run(driver, &device, Suite::default());
        assert_eq!(device.snapshot().in_flight(), 0);
    }
}

#[test]
fn it_passes_over_a_device_that_ends_within_a_page() {
    let ram = Arc::new(Ram::new(SIZE - 3 * 512, 512).expect("memory"));
    for size in sizes() {
        conformance::run(driver, &cache(ram.clone(), size), not_fresh());
    }
}

fn not_fresh() -> Suite {
    Suite {
        requests: 600,
        fresh: false,
        ..Suite::default()
    }
}

#[test]
fn it_passes_over_a_file() {
    let file = FileDevice::open(FileOptions {
        path: crate::temporary("device"),
        block_bytes: 4096,
        size: Some(SIZE),
        create: true,
        read_only: false,
        direct: true,
    });
    let file = Arc::new(file.expect("a file"));
    for size in sizes() {
        conformance::run(driver, &cache(file.clone(), size), not_fresh());
    }
}

#[test]
fn it_passes_over_a_path_with_unawaited_write_back() {
    // Without a queue, with one that submitters run, and with one that a dispatcher also runs.
    for path in [Path::Sync, Path::Stm, Path::Htm, Path::VfsHtm] {
        let below = PathDevice::start(slow(ram(4096)), path, PathRules::default());
        let below = below.expect("the path starts");
        let cache = Cache::over_path(below, options(256, 32, 128)).expect("legal options");
        conformance::run(driver, &cache, not_fresh());
    }
}

/// Pages that a Flush waits for must not be plugged until the plug's delay has passed.
#[test]
fn a_flush_does_not_wait_for_the_plug() {
    for path in [Path::Atm, Path::Htm, Path::VfsHtm] {
        let below = PathDevice::start(ram(4096), path, PathRules::default());
        let below = below.expect("the path starts");
        let cache = Cache::over_path(below.clone(), options(256, 32, 128)).expect("legal options");
        let mut bench = open(&cache);
        for round in 0..4 {
            bench.write(2, &[round; 4096]).expect("a write");
            bench.operate(Operation::Flush, 0, 0).expect("a flush");
        }
        let plugged = below.snapshot().elections_lost;
        assert_eq!(plugged, 0, "{path}");
        bench.close();
    }
}

#[test]
fn what_was_read_or_written_is_read_without_the_device() {
    let below = Arc::new(Stats::new(ram(512)));
    let cache = cache(below.clone(), options(1024, 500, 500));
    let mut bench = open(&cache);
    bench.write(16, &[7; 8 * 512]).expect("a write");
    bench.read(400, 8).expect("a read");
    let before = below.snapshot().total().completed;
    assert_eq!(
        before, 1,
        "the write is in the cache, the read came from below"
    );
    for _ in 0..10 {
        assert_eq!(bench.read(16, 8), Ok(vec![7; 8 * 512]));
        assert_eq!(bench.read(402, 3), Ok(vec![0; 3 * 512]));
    }
    assert_eq!(below.snapshot().total().completed, before);
    bench
        .write(403, &[9; 512])
        .expect("a part of a page that is there");
    assert_eq!(below.snapshot().total().completed, before);
    bench.close();
    let mut bench = open(&*below);
    assert_eq!(
        bench.read(16, 8),
        Ok(vec![7; 8 * 512]),
        "written back at the close"
    );
    assert_eq!(bench.read(403, 1), Ok(vec![9; 512]));
    assert_eq!(bench.read(404, 1), Ok(vec![0; 512]));
    bench.close();
}

/// Reads pages one by one. Returns the counters afterwards.
fn read_pages(context_look_up: bool, pages: impl Iterator<Item = u64>) -> CacheSnapshot {
    let mut options = options(4096, 10, 10);
    options.read_ahead.context_look_up = context_look_up;
    let cache = cache(slow(ram(4096)), options);
    let mut bench = open(&cache);
    for page in pages {
        bench.read(page, 1).expect("a read");
    }
    bench.close();
    cache.snapshot()
}

#[test]
fn sequential_streams_are_read_ahead() {
    for look_up in [false, true] {
        let counters = read_pages(look_up, 0..1_000);
        assert!(counters.misses <= 2, "{counters:?}");
        assert!((998..=1_100).contains(&counters.read_ahead), "{counters:?}");
    }
}

/// `vfs_htm` with the look-up would be `htm` with it.
#[test]
fn a_path_without_context_look_up_has_no_cache_with_one() {
    for path in Path::ALL {
        let below = PathDevice::unattended(ram(4096), path, PathRules::default());
        let mut options = options(256, 32, 128);
        options.read_ahead.context_look_up = true;
        let cache = Cache::over_path(below.expect("good rules"), options);
        let without = matches!(path, Path::VfsHtm | Path::TwoQueue);
        assert_eq!(cache.is_err(), without, "{path}");
    }
}

#[test]
fn random_reads_are_read_ahead_only_with_context_look_up() {
    // Pages that are close to each other: the page before each was read 13 reads ago, which is
    // further back than the streams that are distinguished.
    let pages = || (0..1_024).map(|read| read * 709 % 1_024);
    let counters = read_pages(false, pages());
    assert_eq!((counters.read_ahead, counters.misses), (0, 1_024));
    let counters = read_pages(true, pages());
    assert!(counters.read_ahead > 100, "{counters:?}");
}

#[test]
fn a_read_ahead_that_fails_fails_no_request() {
    let rule = FaultRule {
        operation: FaultOperation::Read,
        first: base::units::Lba(100),
        blocks: Some(1),
        ..FaultRule::new(FaultEffect::Error(BlockError::ReadFailure))
    };
    let below = faulty(ram(4096), rule);
    let cache = cache(below.clone(), options(256, 10, 10));
    let mut bench = open(&cache);
    for page in 60..140 {
        let expected = if page == 100 {
            Err(BlockError::ReadFailure)
        } else {
            Ok(vec![0; 4096])
        };
        assert_eq!(bench.read(page, 1), expected, "page {page}");
    }
    assert!(below.strikes()[0] >= 2, "it was read ahead, and then read");
    bench.close();
}

#[test]
fn dirty_limits_hold_and_pressure_goes_to_the_device() {
    let cache = cache(slow(ram(4096)), options(256, 16, 32));
    let mut bench = open(&cache);
    let mut under_way = 0;
    for page in 0..200_u64 {
        let request = bench.request(Operation::Write { durable: false }, page * 3, 1);
        match bench.submit(request) {
            crate::Submit::Done(_) => {}
            crate::Submit::Queued => under_way += 1,
            crate::Submit::Busy(_) => panic!("there is room"),
        }
        assert!(cache.snapshot().dirty <= 32);
    }
    for _ in 0..under_way {
        assert_eq!(bench.wait().result, Ok(()));
    }
    let counters = cache.snapshot();
    assert_eq!(counters.dirty_peak, 32, "{counters:?}");
    assert_eq!(counters.bypassed, 168, "no turn wrote back: {counters:?}");
    bench.turn_until("write-back", |_| cache.snapshot().dirty <= 16);
    bench.close();
    assert_eq!(cache.snapshot().dirty, 0, "the last one writes all back");
}

#[test]
fn neighbours_are_written_back_in_ascending_order_as_one() {
    let below = Arc::new(Stats::new(ram(4096)));
    let cache = cache(below.clone(), options(256, 200, 200));
    let mut bench = open(&cache);
    for page in (0..64).rev() {
        bench.write(page, &[1; 4096]).expect("a write");
    }
    assert_eq!(below.snapshot().total().completed, 0);
    bench.operate(Operation::Flush, 0, 0).expect("a flush");
    assert_eq!(
        below.snapshot().total().completed,
        3,
        "two writes and a Flush"
    );
    bench.close();
}

#[test]
fn compare_fails_where_the_content_cannot_be_written_back() {
    let rule = FaultRule {
        operation: FaultOperation::Write,
        ..FaultRule::new(FaultEffect::Error(BlockError::WriteFailure))
    };
    let cache = cache(faulty(ram(4096), rule), options(64, 32, 32));
    let mut bench = open(&cache);
    bench.write(5, &[5; 4096]).expect("it is in the cache");
    let compared = bench.send(Operation::Compare, 5, &[5; 4096]);
    assert_eq!(compared, Err(BlockError::WriteFailure));
    assert_eq!(bench.operate(Operation::Verify, 9, 1), Ok(()));
    bench.close();
}

#[test]
fn a_partial_write_fails_where_the_rest_of_its_page_cannot_be_read() {
    let rule = FaultRule {
        operation: FaultOperation::Read,
        times: Some(1),
        ..FaultRule::new(FaultEffect::Error(BlockError::ReadFailure))
    };
    let cache = cache(faulty(ram(512), rule), options(64, 32, 32));
    let mut bench = open(&cache);
    assert_eq!(bench.write(5, &[5; 512]), Err(BlockError::WriteFailure));
    assert_eq!(bench.write(5, &[6; 512]), Ok(()));
    assert_eq!(bench.read(5, 1), Ok(vec![6; 512]));
    bench.close();
}

#[test]
fn a_channel_is_gone_with_its_device_although_pages_are_cached() {
    let rule = FaultRule {
        operation: FaultOperation::Read,
        first: base::units::Lba(100),
        ..FaultRule::new(FaultEffect::Error(BlockError::Gone))
    };
    let cache = cache(faulty(ram(4096), rule), options(64, 32, 32));
    let mut bench = open(&cache);
    bench.write(5, &[5; 4096]).expect("it is in the cache");
    assert_eq!(bench.read(100, 1), Err(BlockError::Gone));
    assert_eq!(bench.read(5, 1), Err(BlockError::Gone));
    assert_eq!(bench.write(5, &[6; 4096]), Err(BlockError::Gone));
    bench.close();
    let mut bench = open(&cache);
    assert_eq!(bench.read(5, 1), Ok(vec![5; 4096]), "a new channel");
    bench.close();
}

#[test]
fn resizing_and_erasing_change_the_cache_as_well() {
    let ram = Arc::new(Ram::new(1 << 20, 512).expect("memory"));
    let cache = cache(ram.clone(), options(1024, 500, 500));
    let mut bench = open(&cache);
    bench.write(0, &[1; 32 * 512]).expect("a write");
    bench.write(1_000, &[2; 8 * 512]).expect("a write");
    // Nothing is in flight, and dirty pages stay in the cache.
    cache.erase(3 * 512, 10 * 512).expect("within the device");
    cache.resize(1_004).expect("smaller");
    assert_eq!(bench.read(0, 1), Err(BlockError::Aborted), "open it anew");
    bench.close();
    // Its channel below refers to the device's previous memory.
    assert_eq!(cache.snapshot().written_back, 0);
    cache.resize(2_048).expect("larger");
    let mut bench = open(&cache);
    assert_eq!(bench.operate(Operation::Flush, 0, 0), Ok(()));
    bench.close();
    let mut direct = open(&*ram);
    assert_eq!(direct.read(0, 3), Ok(vec![1; 3 * 512]), "not lost");
    assert_eq!(direct.read(1_000, 4), Ok(vec![2; 4 * 512]), "not lost");
    direct.close();
    let mut bench = open(&cache);
    assert_eq!(bench.read(0, 3), Ok(vec![1; 3 * 512]));
    assert_eq!(bench.read(3, 10), Ok(vec![0; 10 * 512]));
    assert_eq!(bench.read(13, 3), Ok(vec![1; 3 * 512]));
    assert_eq!(bench.read(1_000, 4), Ok(vec![2; 4 * 512]));
    assert_eq!(
        bench.read(1_004, 4),
        Ok(vec![0; 4 * 512]),
        "what was cut off is gone"
    );
    bench.close();
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    for (pages, background, most) in [(0, 0, 0), (8, 9, 8), (8, 4, 9)] {
        let refused = Cache::new(ram(512), options(pages, background, most));
        refused.expect_err("they contradict each other");
    }
    let other = Arc::new(Ram::new(1 << 20, 512).expect("memory"));
    let cache = cache(ram(512), CacheOptions::new(100));
    cache.with_write_back(other).expect_err("another size");
    for bytes in [0, (1 << 20) - 1, (1 << 40) + 1] {
        let refused = CacheOptions::of_bytes(bytes).expect_err("out of range");
        assert!(refused.to_string().contains("use 1M to 1T"), "{refused}");
    }
    let options = CacheOptions::of_bytes(4 << 20).expect("in range");
    assert_eq!((options.pages, options.dirty_max), (1_024, 408));
    for expire in [Nanos::ZERO, Nanos::from_millis(99), Nanos::from_secs(3_601)] {
        let refused = Cache::new(
            ram(512),
            CacheOptions {
                dirty_expire: expire,
                ..CacheOptions::new(100)
            },
        );
        let text = refused.expect_err("out of range").to_string();
        assert!(text.contains("use 100ms to 3600s"), "{text}");
    }
}

/// It must not read as zeroes while the page is cached, and as the device's content later.
#[test]
fn a_clean_page_that_is_partly_deallocated_is_read_anew() {
    let ram = ram(512);
    let cache = cache(ram.clone(), options(64, 8, 32));
    let mut bench = open(&cache);
    assert_eq!(bench.read(0, 8), Ok(vec![0; 4096]));
    assert_eq!(bench.operate(Operation::Deallocate, 1, 2), Ok(()));
    let mut below = open(&*ram);
    below.write(2, &[7; 512]).expect("memory");
    below.close();
    assert_eq!(bench.read(2, 1), Ok(vec![7; 512]));
    bench.close();
}
