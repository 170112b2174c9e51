//! Removal of devices that something still has open.

use super::*;
use crate::model::{BlockSize, DeviceKind};
use base::Nanos;
use target::Limits;

const SIZE: Size = Size::from_bytes(1 << 20);

fn plane(change_timeout: Nanos) -> Plane {
    let limits = Limits {
        change_timeout,
        ..Limits::default()
    };
    Plane::new(Target::new(limits, 1).expect("good limits"), vec![0])
}

fn add(plane: &Plane, kind: DeviceKind) -> Arc<dyn Device> {
    let device = model::Device::new(kind);
    let name = "d".to_owned();
    let added = plane.apply(&Action::AddDevice { name, device });
    added.expect("it can be opened");
    plane.device("d").expect("it was added").device
}

fn remove(plane: &Plane) -> Result<(), ApplyError> {
    let name = "d".to_owned();
    plane.apply(&Action::RemoveDevice { name })
}

/// Every other change waited for it.
#[test]
fn memory_is_removed_without_a_wait() {
    let patience = Nanos::from_secs(10);
    let plane = plane(patience);
    let block_size = BlockSize::B4096;
    let size = SIZE;
    let held = add(&plane, DeviceKind::Ram { size, block_size });
    let begun = Instant::now();
    remove(&plane).expect("no namespace uses it");
    assert!(begun.elapsed() < Duration::from(patience));
    drop(held);
}

/// The removal said that it was done, and the next device could not have the file.
#[test]
fn a_file_that_stays_locked_is_not_removed() {
    let plane = plane(Nanos::from_millis(50));
    let name = format!("switchyard-locked-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let kind = DeviceKind::File {
        path: path.clone(),
        size: Some(SIZE),
        block_size: BlockSize::B4096,
        create: true,
        read_only: false,
    };
    let held = add(&plane, kind.clone());
    let error = remove(&plane).expect_err("it is in use").to_string();
    assert!(error.contains("its file stays locked"), "{error}");
    plane.device("d").expect("it is still there");
    drop(held);
    remove(&plane).expect("nothing uses it");
    drop(add(&plane, kind));
    remove(&plane).expect("nothing uses it");
    std::fs::remove_file(&path).expect("it is ours");
}
