//! Devices of this machine on the command line.

use clap::builder::{PathBufValueParser, TypedValueParser};
use control::model::{DeviceKind, DeviceTextError};

/// Reads the size of memory.
pub fn ram(size: &str) -> Result<DeviceKind, DeviceTextError> {
    format!("ram:{size}").parse()
}

/// Reads the size of a device that forgets.
pub fn null(size: &str) -> Result<DeviceKind, DeviceTextError> {
    format!("null:{size}").parse()
}

/// Reads `PROFILE:SIZE`.
pub fn flash(spec: &str) -> Result<DeviceKind, DeviceTextError> {
    format!("flash:{spec}").parse()
}

/// Reads the path of a file or block device.
pub fn file() -> impl TypedValueParser<Value = DeviceKind> {
    PathBufValueParser::new().map(DeviceKind::file)
}
