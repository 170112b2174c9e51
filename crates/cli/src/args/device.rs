//! Local devices on the command line.

use clap::builder::{PathBufValueParser, TypedValueParser};
use config::schema::{DeviceKind, DeviceTextError};

/// Parses the size of a RAM device.
pub fn ram(size: &str) -> Result<DeviceKind, DeviceTextError> {
    format!("ram:{size}").parse()
}

/// Parses the size of a null device.
pub fn null(size: &str) -> Result<DeviceKind, DeviceTextError> {
    format!("null:{size}").parse()
}

/// Parses `PROFILE:SIZE`.
pub fn flash(spec: &str) -> Result<DeviceKind, DeviceTextError> {
    format!("flash:{spec}").parse()
}

/// Parses the path of a file or block device.
pub fn file() -> impl TypedValueParser<Value = DeviceKind> {
    PathBufValueParser::new().map(DeviceKind::file)
}
