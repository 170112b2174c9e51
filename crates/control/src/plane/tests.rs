//! Removal of devices that something still has open.

use super::*;
use crate::calibration::{CalibrationRequest, CalibrationState};
use base::Nanos;
use block::layer::{Fault, FaultEffect, FaultOptions, FaultRule};
use config::schema::{BlockSize, DeviceKind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use target::Limits;

const SIZE: Size = Size::from_bytes(1 << 20);

const MODEL: &str = "version = 1
[provenance]
device = \"a device of a test\"
[prices.mixed]
read_millitokens = 1000
write_millitokens = 10000
[prices.read_only]
read_millitokens = 1000
[[curve]]
tokens_per_second = 100000
p50_ns = 100000
p95_ns = 100000
p99_ns = 100000
p999_ns = 100000
";

fn plane(change_timeout: Nanos) -> Plane {
    let limits = Limits {
        change_timeout,
        ..Limits::default()
    };
    Plane::new(Target::new(limits, 1).expect("good limits"), vec![0])
}

fn add(plane: &Plane, device: config::schema::Device) -> Arc<dyn Device> {
    let name = "d".to_owned();
    let added = plane.apply(&Action::AddDevice { name, device }, None);
    added.expect("it can be opened");
    plane.device("d").expect("it was added").device
}

fn remove(plane: &Plane) -> Result<(), ApplyError> {
    let name = "d".to_owned();
    plane.apply(&Action::RemoveDevice { name }, None)
}

/// Every other change waited for it.
#[test]
fn memory_is_removed_without_a_wait() {
    let patience = Nanos::from_secs(10);
    let plane = plane(patience);
    let block_size = BlockSize::B4096;
    let size = SIZE;
    let held = add(
        &plane,
        config::schema::Device::new(DeviceKind::Ram { size, block_size }),
    );
    let begun = Instant::now();
    remove(&plane).expect("no namespace uses it");
    assert!(begun.elapsed() < Duration::from(patience));
    drop(held);
}

fn path(name: &str) -> PathBuf {
    block::temporary(name)
}

fn file(path: &Path) -> config::schema::Device {
    config::schema::Device::new(DeviceKind::File {
        path: path.to_owned(),
        size: Some(SIZE),
        block_size: BlockSize::B4096,
        create: true,
        read_only: false,
    })
}

/// The removal said that it was done, and the next device could not have the file.
#[test]
fn a_file_that_stays_locked_is_not_removed() {
    let plane = plane(Nanos::from_millis(50));
    let path = path("locked");
    let held = add(&plane, file(&path));
    let error = remove(&plane).expect_err("it is in use").to_string();
    assert!(error.contains("its file stays locked"), "{error}");
    plane.device("d").expect("it is still there");
    drop(held);
    remove(&plane).expect("nothing uses it");
    drop(add(&plane, file(&path)));
    remove(&plane).expect("nothing uses it");
}

/// A file and a model of its costs, which end with the test.
struct Calibrated {
    disk: PathBuf,
    model: PathBuf,
}

impl Calibrated {
    fn new(name: &str) -> Self {
        let (disk, model) = (path(name), path(&format!("{name}-model")));
        std::fs::write(&model, MODEL).expect("a small file");
        Self { disk, model }
    }

    fn device(&self) -> config::schema::Device {
        config::schema::Device {
            model: Some(self.model.clone()),
            ..file(&self.disk)
        }
    }
}

fn calibrate(plane: &Plane) {
    let request = CalibrationRequest {
        share_percent: 1,
        seconds: 3600,
    };
    plane.calibrate("d", request).expect("it has a model");
}

/// It was stopped and forgotten before the removal failed.
#[test]
fn a_removal_that_fails_leaves_a_calibration_as_it_is() {
    let plane = plane(Nanos::from_millis(50));
    let disk = Calibrated::new("calibrated");
    let held = add(&plane, disk.device());
    calibrate(&plane);
    remove(&plane).expect_err("it is in use");
    let calibration = plane.calibration("d").expect("it is not forgotten");
    assert_eq!(calibration.state, CalibrationState::Running);
    drop(held);
    let end = Instant::now() + Duration::from_secs(60);
    // Its thread may take its time to end.
    while let Err(error) = remove(&plane) {
        assert!(Instant::now() < end, "{error}");
    }
    plane.recalibrations.show("d").expect_err("it is forgotten");
}

#[test]
fn a_calibration_above_a_cache_ends_with_its_device() {
    let plane = plane(Nanos::from_millis(50));
    let disk = Calibrated::new("cached");
    let device = config::schema::Device {
        cache: Some(SIZE),
        ..disk.device()
    };
    drop(add(&plane, device));
    calibrate(&plane);
    let end = Instant::now() + Duration::from_secs(60);
    let cache = plane.device("d").expect("it was added").cache;
    let cache = cache.expect("it has one");
    while !cache.has_channels() {
        assert!(Instant::now() < end, "it is not calibrated");
        std::thread::yield_now();
    }
    drop(cache);
    while let Err(error) = remove(&plane) {
        assert!(Instant::now() < end, "{error}");
    }
}

/// The ranges went with the device, although the same change brought it back.
#[test]
fn a_device_that_a_change_adds_again_keeps_its_ranges_to_zero() {
    let plane = plane(Nanos::from_secs(10));
    let path = path("again");
    let device = || file(&path);
    drop(add(&plane, device()));
    let content = plane.device("d").expect("it was added").content;
    let before = vec![to_zero(content, 4096..8192)];
    plane.set_to_zero(before.clone());
    remove(&plane).expect("nothing uses it");
    drop(add(&plane, device()));
    plane.settle();
    assert_eq!(plane.to_zero(), before);
    remove(&plane).expect("nothing uses it");
    // Another change: its file may have been used otherwise since.
    plane.settle();
    drop(add(&plane, device()));
    assert_eq!(plane.to_zero(), []);
    let _ = std::fs::remove_file(path);
}

fn to_zero(content: String, range: std::ops::Range<u64>) -> ToZero {
    ToZero {
        device: "d".to_owned(),
        content,
        first_byte: range.start,
        end_byte: range.end,
    }
}

/// Less than a block stayed at either end, which a namespace that grew showed again.
#[test]
fn a_device_with_larger_blocks_is_zeroed_to_the_byte() {
    let plane = plane(Nanos::from_secs(10));
    let path = path("larger-blocks");
    let length = usize::try_from(SIZE.bytes).expect("a small file");
    std::fs::write(&path, vec![7; length]).expect("it is written");
    let device = config::schema::Device::new(DeviceKind::File {
        path: path.clone(),
        size: Some(SIZE),
        block_size: BlockSize::B4096,
        create: false,
        read_only: false,
    });
    drop(add(&plane, device));
    let content = plane.device("d").expect("it was added").content;
    let range = 512..4096 * 5 + 1024;
    plane.set_to_zero(vec![to_zero(content, range.clone())]);
    let mut subsystem = Subsystem::new("nqn.2026-11.com.example:a");
    subsystem.namespaces.push(Namespace::new(1, "d"));
    let mut shown = |size: Option<u64>, zeroed: std::ops::Range<u64>| {
        subsystem.namespaces[0].size = size.map(Size::from_bytes);
        let subsystem = subsystem.clone();
        let add = Action::AddSubsystem { subsystem };
        plane.zero_before(&add).expect("within the device");
        let found = std::fs::read(&path).expect("it is there");
        for (at, &byte) in (0..).zip(&found) {
            assert_eq!(byte, if zeroed.contains(&at) { 0 } else { 7 }, "byte {at}");
        }
    };
    shown(Some(4096), 512..4096);
    shown(None, range);
    assert_eq!(plane.to_zero(), []);
    let _ = std::fs::remove_file(path);
}

/// By it an alert sees that the device hangs.
#[test]
fn the_remainder_of_an_erase_is_shown() {
    let plane = plane(Nanos::from_secs(10));
    let (size, block_size) = (SIZE, BlockSize::B4096);
    let device = DeviceKind::Ram { size, block_size };
    let device = add(&plane, config::schema::Device::new(device));
    let options = FaultOptions {
        rules: vec![FaultRule::new(FaultEffect::Hang)],
        ..FaultOptions::default()
    };
    let hangs = Arc::new(Fault::new(device, &options).expect("one rule"));
    let content = plane.device("d").expect("it was added").content;
    let device = Arc::clone(&hangs) as _;
    plane
        .opened()
        .devices
        .get_mut("d")
        .expect("it was added")
        .device = device;
    plane.set_to_zero(vec![to_zero(content, 4096..16_384)]);
    let mut subsystem = Subsystem::new("nqn.2026-11.com.example:a");
    subsystem.namespaces.push(Namespace::new(1, "d"));
    let shows = Action::AddSubsystem { subsystem };
    std::thread::scope(|scope| {
        let zeroes = scope.spawn(|| plane.zero_before(&shows));
        let expected = EraseSnapshot {
            device: "d".to_owned(),
            remaining_bytes: 12_288,
        };
        testing::eventually("it hangs", || {
            plane.snapshot().erase.as_ref() == Some(&expected)
        });
        testing::eventually("it is released", || {
            hangs.release();
            zeroes.is_finished()
        });
        zeroes.join().expect("no panic").expect("it is erased");
    });
    assert_eq!(plane.snapshot().erase, None);
}
