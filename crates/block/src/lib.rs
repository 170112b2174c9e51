//! The device contract, devices and layers, and the suite that each of them passes.

pub mod device;
pub mod layer;
pub mod limits;
pub mod request;

pub use device::{Capabilities, Channel, Device, DeviceError, Direct, Geometry, Submit, check};
pub use request::{BlockError, Completion, Operation, Request};
