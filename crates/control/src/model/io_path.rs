//! The name of an I/O path.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use switch::Path;
use switch::path::PathError;

/// The I/O path of a device, as text: `sync`, `stm`, `2q`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IoPath(pub Path);

impl FromStr for IoPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        text.parse().map(Self)
    }
}

impl TryFrom<String> for IoPath {
    type Error = PathError;

    fn try_from(text: String) -> Result<Self, PathError> {
        text.parse()
    }
}

impl From<IoPath> for String {
    fn from(path: IoPath) -> Self {
        path.to_string()
    }
}

impl fmt::Display for IoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
