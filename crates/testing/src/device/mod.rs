//! The suite that every device passes, and devices and drivers of tests.
//!
//! `block` compiles this module into its own unit tests as well, where the contract is that of the
//! crate under test: hence the paths begin with `block`.

mod clocked_driver;
pub mod conformance;
mod test_device;
mod test_driver;

pub use clocked_driver::{Clock, ClockedDriver};
pub use test_device::TestDevice;
pub use test_driver::{driver, holding_driver};
