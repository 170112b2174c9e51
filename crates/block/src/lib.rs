//! Block devices: the [`Device`] trait, devices and layers. The conformance suite
//! that all of them pass is in the crate `testing`.

#[cfg(test)]
extern crate self as block;

pub mod cache;
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
#[cfg(test)]
mod suite_tests;
#[cfg(any(test, feature = "testing"))]
mod temporary;
#[cfg(test)]
#[path = "../../testing/src/device/mod.rs"]
#[allow(dead_code, unreachable_pub)] // Public for other crates, in `testing`.
mod testing;

pub use cache::{Cache, CacheOptions, CacheSnapshot};
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
