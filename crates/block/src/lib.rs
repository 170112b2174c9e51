//! The device contract, devices and layers, and the suite that each of them passes.

pub mod cache;
#[cfg(any(test, feature = "testing"))]
mod clocked_driver;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod delay_queue;
pub mod device;
pub mod extents;
pub mod layer;
pub mod limits;
mod locked_file;
pub mod path;
pub mod request;
#[cfg(any(test, feature = "testing"))]
mod skipped;
mod submitter_memory;
#[cfg(any(test, feature = "testing"))]
mod temporary;
#[cfg(any(test, feature = "testing"))]
mod test_device;
#[cfg(test)]
mod test_driver;

pub use cache::{Cache, CacheOptions, CacheSnapshot};
#[cfg(any(test, feature = "testing"))]
pub use clocked_driver::{Clock, ClockedDriver};
pub use device::{
    CacheLife, Capabilities, Channel, Device, DeviceError, DeviceTime, Direct, Geometry, Submit,
    SubmitExtents, check, check_extents,
};
pub use extents::{Extent, Extents};
pub use locked_file::LockedFile;
pub use path::{Dispatcher, PathDevice};
pub use request::{BlockError, Completion, IoCounts, Operation, Request};
#[cfg(any(test, feature = "testing"))]
pub use skipped::skipped;
pub use submitter_memory::{Placed, SubmitterMemory};
#[cfg(any(test, feature = "testing"))]
pub use temporary::{Folder, temporary, temporary_folder};
#[cfg(any(test, feature = "testing"))]
pub use test_device::TestDevice;
