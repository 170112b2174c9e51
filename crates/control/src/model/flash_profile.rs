//! The name of an emulated flash device.

use std::fmt;
use std::str::FromStr;

use super::as_text;
use block::device::flash::{Profile, ProfileError};

/// The profile of an emulated flash device, as text: `A`, `B/8`, `dram-ssd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashProfile(pub Profile);

as_text!(FlashProfile);

impl FromStr for FlashProfile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for FlashProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
