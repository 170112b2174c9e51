//! The conformance suite for devices, and devices and drivers for tests.
//!
//! `block` also compiles this module into its own unit tests, for its own contract: hence the paths
//! begin with `block`.

mod clocked_driver;
pub mod conformance;
mod test_device;
mod test_driver;

pub use clocked_driver::{Clock, ClockedDriver};
pub use test_device::TestDevice;
pub use test_driver::{driver, holding_driver};
