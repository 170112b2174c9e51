//! An I/O path.

use std::fmt;
use std::str::FromStr;

use super::as_text;
use switch::PathSpec;
use switch::path::PathError;

/// The I/O path of a device, as [text](PathSpec): `sync`, `2q`, `stm:handover_us=500`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoPath(pub PathSpec);

as_text!(IoPath);

impl FromStr for IoPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for IoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
