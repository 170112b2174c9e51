//! The conformance suite for every device: local or remote, bare or under layers, on any driver.
//!
//! [`run`] takes a device and a constructor of drivers, drives a core by hand ([`Bench`]), and
//! panics with a description of the violation. It overwrites the first and last blocks of the
//! device. It is also used outside this crate's tests, for remote namespaces and simulated devices.

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

/// Checks the whole contract on `device`, which must have at least 64 blocks.
///
/// # Panics
/// If the device violates the contract; the message contains the violation and the seed.
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
    // Written data is still there for the next channel, on another core.
    let mut bench = Bench::open(driver(), device).expect("the device opens again");
    cases::reuse(&mut bench, suite);
    bench.close();
}
