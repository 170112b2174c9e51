//! The name of an emulated flash device.

use std::fmt;
use std::str::FromStr;

use block::device::flash::{Profile, ProfileError};
use serde::{Deserialize, Serialize};

/// The profile of an emulated flash device, as text: `A`, `B/8`, `dram-ssd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FlashProfile(pub Profile);

impl FromStr for FlashProfile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        text.parse().map(Self)
    }
}

impl TryFrom<String> for FlashProfile {
    type Error = ProfileError;

    fn try_from(text: String) -> Result<Self, ProfileError> {
        text.parse()
    }
}

impl From<FlashProfile> for String {
    fn from(profile: FlashProfile) -> Self {
        profile.to_string()
    }
}

impl fmt::Display for FlashProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
