//! The suite that every device passes: local or remote, bare or under layers, on any driver.
//!
//! [`run`] takes a device and a way to make drivers, runs a core by hand ([`Bench`]), and panics
//! with what is wrong. It writes all over the first and last blocks of the device. Also of use
//! beyond tests of this crate: a remote namespace and a simulated one pass it as well.

mod atomicity;
mod bench;
mod cases;
mod extents;
mod suite;
mod workload;

pub use bench::Bench;
pub use suite::Suite;

use block::device::Device;
use reactor::Driver;

/// Checks everything that the contract says about `device`, which must have at least 64 blocks.
///
/// # Panics
/// When the device breaks the contract: the message says how, and for which seed.
pub fn run<D: Driver>(mut driver: impl FnMut() -> D, device: &dyn Device, suite: Suite) {
    println!("conformance of {device:?}, {suite:?}");
    let geometry = device.geometry();
    assert!(matches!(geometry.block_bytes, 512 | 4096), "{geometry:?}");
    assert!(
        geometry.blocks >= 64,
        "too small for the suite: {geometry:?}"
    );
    let most = device.capabilities().max_transfer_bytes;
    assert!(
        most >= geometry.block_bytes,
        "not even one block in a request"
    );
    let mut bench = Bench::open(driver(), device).expect("the device opens");
    cases::ranges(&mut bench);
    cases::malformed(&mut bench);
    if device.capabilities().read_only {
        cases::read_only(&mut bench, suite);
    } else {
        if suite.fresh {
            cases::fresh(&mut bench);
        }
        cases::edges(&mut bench, suite);
        cases::any_memory(&mut bench, suite);
        if suite.compares {
            cases::compare(&mut bench, suite);
        }
        cases::zeroes(&mut bench, suite);
        cases::durable(&mut bench, suite);
        if device.capabilities().extents_max > 0 {
            extents::extents(&mut bench, suite);
        }
        if suite.atomic {
            atomicity::whole_blocks(&mut bench);
        }
        cases::many(&mut bench, suite);
        workload::run(&mut bench, suite);
        cases::close_under_load(&mut bench);
    }
    bench.close();
    // What was written is still there for the next one, on another core.
    let mut bench = Bench::open(driver(), device).expect("the device opens again");
    cases::reuse(&mut bench, suite);
    bench.close();
}
