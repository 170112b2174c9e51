//! The devices and layers of this crate pass the suite, on the io_uring driver.

use crate::device::{Flash, Null, Ram};
use crate::layer::{Delay, DelayOptions, Fault, FaultOptions, Stats, Verify};
use crate::testing::conformance::{Bench, Suite, run};
use crate::testing::driver;
use crate::{BlockError, Device, Geometry};
use base::Nanos;
use std::sync::Arc;

const SIZE: u64 = 16 << 20;

fn ram(block_bytes: u32) -> Arc<dyn Device> {
    Arc::new(Ram::new(SIZE, block_bytes).expect("a small device"))
}

fn delay(inner: Arc<dyn Device>) -> Arc<dyn Device> {
    let options = DelayOptions {
        read: Nanos::from_micros(20),
        read_per_kib: Nanos(100),
        write: Nanos::from_micros(30),
        write_per_kib: Nanos(200),
        flush: Nanos::from_micros(50),
    };
    Arc::new(Delay::new(inner, options))
}

fn fault(inner: Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(Fault::new(inner, &FaultOptions::default()).expect("no rules"))
}

fn verify(inner: Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(Verify::new(inner).expect("a small device"))
}

fn atomic() -> Suite {
    Suite {
        atomic: true,
        ..Suite::default()
    }
}

#[test]
fn ram_devices_pass() {
    for (seed, block_bytes) in [(1, 512), (2, 4096)] {
        let suite = Suite {
            seed,
            requests: 10_000,
            atomic: true,
            ..Suite::default()
        };
        run(driver, &*ram(block_bytes), suite);
    }
}

#[test]
fn null_devices_pass() {
    for block_bytes in [512, 4096] {
        let null = Null::new(1 << 40, block_bytes).expect("any size");
        run(
            driver,
            &null,
            Suite {
                keeps: false,
                ..Suite::default()
            },
        );
    }
}

#[test]
fn emulated_flash_passes() {
    for (profile, block_bytes) in [("A", 512), ("A/8", 4096), ("dram-ssd", 512)] {
        let profile = profile.parse().expect("a profile");
        let flash = Flash::new(profile, SIZE, block_bytes).expect("a small device");
        run(driver, &flash, atomic());
    }
}

#[test]
fn each_layer_passes() {
    for layer in [delay, fault, verify] {
        for block_bytes in [512, 4096] {
            run(driver, &*layer(ram(block_bytes)), atomic());
        }
    }
    run(driver, &Stats::new(ram(512)), Suite::default());
}

#[test]
fn stacked_layers_pass() {
    let stack = Stats::new(verify(delay(fault(verify(ram(4096))))));
    run(
        driver,
        &stack,
        Suite {
            seed: 3,
            ..Suite::default()
        },
    );
    let stats = stack.snapshot();
    assert_eq!(stats.in_flight(), 0);
    assert!(stats.total().completed > 2_000);
}

#[test]
fn devices_of_impossible_sizes_are_refused() {
    for (bytes, block_bytes) in [(0, 512), (1_000, 512), (4_096, 1024), (512, 4096)] {
        assert!(
            Ram::new(bytes, block_bytes).is_err(),
            "{bytes}, {block_bytes}"
        );
        assert!(
            Null::new(bytes, block_bytes).is_err(),
            "{bytes}, {block_bytes}"
        );
    }
    assert!(
        Ram::new(1 << 62, 512).is_err(),
        "more than the address space"
    );
}

#[test]
fn resized_memory_keeps_its_content_and_grows_by_zeroes() {
    let device = Ram::new(1 << 20, 512).expect("a small device");
    let mut bench = Bench::open(driver(), &device).expect("it opens");
    let (first, last) = (vec![1; 512], vec![2; 512]);
    bench.write(0, &first).expect("within the device");
    bench.write(2047, &last).expect("within the device");
    let driver = bench.close();
    device.resize(4096).expect("twice the size");
    assert_eq!(
        device.geometry(),
        Geometry {
            block_bytes: 512,
            blocks: 4096
        }
    );
    let mut bench = Bench::open(driver, &device).expect("it opens");
    assert_eq!(bench.read(0, 1), Ok(first.clone()));
    assert_eq!(bench.read(2047, 1), Ok(last));
    assert_eq!(bench.read(2048, 8), Ok(vec![0; 4096]));
    let driver = bench.close();
    device.resize(2047).expect("a little less");
    device.resize(4096).expect("and back");
    let mut bench = Bench::open(driver, &device).expect("it opens");
    assert_eq!(bench.read(0, 1), Ok(first));
    assert_eq!(
        bench.read(2047, 1),
        Ok(vec![0; 512]),
        "what was cut off is gone"
    );
    assert_eq!(bench.read(4096, 1), Err(BlockError::OutOfRange));
    bench.close();
    assert!(device.resize(0).is_err());
    assert!(device.resize(u64::MAX).is_err());
}

#[test]
fn erased_memory_reads_as_zeroes_also_where_its_content_is_checked() {
    let ram = Arc::new(Ram::new(1 << 20, 512).expect("a small device"));
    let device = Verify::new(ram).expect("few blocks");
    let mut bench = Bench::open(driver(), &device).expect("it opens");
    bench.write(0, &[1; 16 * 512]).expect("within the device");
    let driver = bench.close();
    device.erase(512, 14 * 512).expect("within the device");
    let mut bench = Bench::open(driver, &device).expect("it opens");
    assert_eq!(bench.read(0, 1), Ok(vec![1; 512]));
    assert_eq!(bench.read(1, 14), Ok(vec![0; 14 * 512]));
    assert_eq!(bench.read(15, 1), Ok(vec![1; 512]));
    let driver = bench.close();
    // Part of a block.
    device
        .erase(15 * 512 + 100, 412)
        .expect("within the device");
    let mut bench = Bench::open(driver, &device).expect("it opens");
    let expected = [vec![1; 100], vec![0; 412]].concat();
    assert_eq!(bench.read(15, 1), Ok(expected));
    bench.close();
    device.erase(2047 * 512, 1024).expect_err("beyond the end");
}
