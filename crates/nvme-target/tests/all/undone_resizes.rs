//! A resize that one core cannot follow is undone without any loss.

use crate::common;
use crate::common::events::{changed, watch};
use crate::common::{BLOCK, Bed, Client, NQN, io_on, pattern};
use base::units::MIB;
use block::{Capabilities, Channel, Device, DeviceError, Geometry};
use reactor::Driver;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use switchyard_target::{Limits, TargetError};
use wire::nvme::{IoOpcode, Status};

/// The first blocks of a memory device, which keeps the data beyond a smaller size. On request, the
/// second next opening fails.
#[derive(Debug)]
struct FailsToOpen {
    inner: Arc<dyn Device>,
    blocks: AtomicU64,
    /// Openings up to and including the one that fails; 0: none fails.
    left: AtomicUsize,
}

impl FailsToOpen {
    /// Returns a device of 256 blocks; the memory has 1024.
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: common::ram(4 * MIB),
            blocks: AtomicU64::new(256),
            left: AtomicUsize::new(0),
        })
    }
}

impl Device for FailsToOpen {
    fn geometry(&self) -> Geometry {
        Geometry {
            blocks: self.blocks.load(Ordering::SeqCst),
            ..self.inner.geometry()
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let one_less = |left: usize| left.checked_sub(1);
        let left = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        if left == Ok(1) {
            return Err(DeviceError::Invalid("no more channels".to_owned()));
        }
        self.inner.open(driver)
    }

    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        self.blocks.store(blocks, Ordering::SeqCst);
        Ok(())
    }
}

/// Regression: one core had the new size and the other core the old one, while the caller was told
/// that nothing had changed.
#[test]
fn a_resize_that_one_core_cannot_follow_is_undone_on_all() {
    let bed = Bed::with(Limits::default(), 2);
    let device = FailsToOpen::new();
    let shared: Arc<dyn Device> = Arc::clone(&device) as _;
    let target = bed.handle();
    target
        .add_namespace(NQN, common::namespace(2, shared))
        .expect("both cores open it");
    device.left.store(2, Ordering::SeqCst);
    let resized = target.resize_namespace(NQN, 2, 512);
    resized.expect_err("one core did not follow");
    assert_eq!(device.geometry().blocks, 256);
    let (_admin, queues) = bed.host_named("nqn.2026-11.io.example:host", 2);
    for mut client in queues {
        let mut read = |slba| client.fetch(io_on(2, IoOpcode::READ, slba, 1), BLOCK).0;
        assert!(read(255).status.is_success());
        assert!(read(256).status.is(Status::LBA_OUT_OF_RANGE));
    }
}

/// Regression: the content was erased before the cores had followed, and was missing after the
/// undo.
#[test]
fn a_shrink_that_is_undone_loses_nothing_and_one_that_is_made_is_in_force_on_all() {
    let bed = Bed::with(Limits::default(), 2);
    let device = FailsToOpen::new();
    let target = bed.handle();
    target
        .add_namespace(NQN, common::namespace(2, Arc::clone(&device) as _))
        .expect("both cores open it");
    let (_admin, mut queues) = bed.host_named("nqn.2026-11.io.example:host", 2);
    let data = pattern(7, BLOCK);
    let write = io_on(2, IoOpcode::WRITE, 200, 1);
    assert!(queues[0].execute(write, &data).status.is_success());
    let mut read = |slba| {
        let read = |client: &mut Client| client.fetch(io_on(2, IoOpcode::READ, slba, 1), BLOCK);
        queues.iter_mut().map(read).collect::<Vec<_>>()
    };
    device.left.store(2, Ordering::SeqCst);
    let resized = target.resize_namespace(NQN, 2, 128);
    assert!(matches!(resized, Err(TargetError::Undone(_))));
    assert!(read(200).iter().all(|(_, found)| *found == data));
    target.resize_namespace(NQN, 2, 128).expect("both follow");
    for (completion, _) in read(200) {
        assert!(completion.status.is(Status::LBA_OUT_OF_RANGE));
    }
}

/// Regression: a host that connected during a failed resize had seen a size that was then undone,
/// and was never notified.
#[test]
fn hosts_hear_of_a_resize_that_is_undone() {
    let bed = Bed::with(Limits::default(), 2);
    let device = FailsToOpen::new();
    let target = bed.handle();
    target
        .add_namespace(NQN, common::namespace(2, Arc::clone(&device) as _))
        .expect("both cores open it");
    let (mut admin, _io) = bed.host();
    watch(&mut admin);
    device.left.store(2, Ordering::SeqCst);
    let resized = target.resize_namespace(NQN, 2, 512);
    assert!(matches!(resized, Err(TargetError::Undone(_))));
    assert_eq!(changed(&mut admin), [2]);
}
