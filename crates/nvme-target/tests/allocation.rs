//! A warm core allocates nothing for a read or a write, however its data is transferred.
#![allow(unsafe_code)] // A global allocator is an unsafe trait.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::cast_possible_truncation)] // Sizes in tests are small.
#![allow(clippy::too_many_lines)] // A story is told in one go.

#[path = "all/common/mod.rs"]
mod common;

use base::Nanos;
use base::units::MIB;
use common::{BLOCK, Bed, Client, Dialect, io, namespace, pattern, target_with};
use qos::cost::Price;
use qos::curve::Point;
use qos::{CostModel, Curve, Percentile, TokenPoolRules, TokenRate};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use switchyard_target::{DeviceQos, Limits, NamespaceOptions};
use testing::device::TestDevice;
use wire::nvme::{IoOpcode, SglDescriptor};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.try_with(Cell::get).unwrap_or(false) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller upholds the contract of `alloc`, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory came from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Executes 64 commands at a time: reads, in-capsule writes, and a write by R2T.
fn round(client: &mut Client, data: &[u8]) {
    let mut bytes = Vec::new();
    for cid in 0..64u16 {
        let (opcode, payload) = if cid % 2 == 0 {
            (IoOpcode::READ, &[][..])
        } else {
            (IoOpcode::WRITE, data)
        };
        let mut command = io(opcode, u64::from(cid), 1);
        command.set_cid(cid);
        command.set_sgl(if cid % 2 == 0 {
            SglDescriptor::transport(BLOCK as u32)
        } else {
            SglDescriptor::in_capsule(0, BLOCK as u32)
        });
        bytes.extend(client.session.capsule(&command, payload));
    }
    client.send(&bytes);
    for _ in 0..64 {
        client.receive();
    }
    let big = pattern(1, 64 * BLOCK);
    assert!(client.write_by_r2t(100, &big).status.is_success());
}

#[test]
fn a_warm_core_does_not_allocate() {
    let point = Point {
        rate: TokenRate(1_000_000),
        latency: [Nanos::from_micros(500); Percentile::COUNT],
    };
    let curve = Curve::new(vec![point]).expect("a curve");
    let model = CostModel::new(Price::READ, Price::READ);
    let device = DeviceQos::new("flash", TokenPoolRules::default(), model, curve);
    for qos in [None, Some(device)] {
        warm_up_and_count(qos);
    }
}

fn warm_up_and_count(qos: Option<Arc<DeviceQos>>) {
    let scheduled = qos.is_some();
    // Marks the thread that opens the device, which is the target's.
    let marking = TestDevice::new(common::ram(16 * MIB), |ram| {
        COUNTED.set(true);
        ram
    });
    let options = NamespaceOptions {
        qos,
        ..namespace(1, Arc::new(marking))
    };
    let bed = Bed {
        target: common::run(target_with(Limits::default(), 1, [options]), 1),
        ram: common::ram(MIB),
    };
    let data = pattern(7, BLOCK);
    for data_digest in [false, true] {
        let (_admin, mut client) = bed.host_with(Dialect {
            data_digest,
            ..Dialect::default()
        });
        for _ in 0..200 {
            round(&mut client, &data);
        }
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        assert!(before > 0, "the target's thread is counted");
        for _ in 0..200 {
            round(&mut client, &data);
        }
        let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(
            allocated, 0,
            "in 13,000 commands, data digest: {data_digest}, scheduled: {scheduled}"
        );
    }
}
