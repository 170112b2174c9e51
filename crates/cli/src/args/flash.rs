//! An emulated flash device on the command line.

use control::Size;
use control::model::{BlockSize, DeviceKind, FlashProfile};
use std::fmt;
use std::str::FromStr;

/// `PROFILE:SIZE`, such as `A/8:1G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashSpec {
    profile: FlashProfile,
    size: Size,
}

impl FlashSpec {
    /// The device.
    pub const fn kind(self, block_size: BlockSize) -> DeviceKind {
        let Self { profile, size } = self;
        DeviceKind::Flash {
            profile,
            size,
            block_size,
        }
    }
}

impl fmt::Display for FlashSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.profile, self.size)
    }
}

impl FromStr for FlashSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "write a profile and a size, such as A/8:1G".to_owned();
        let (profile, size) = text.split_once(':').ok_or_else(form)?;
        Ok(Self {
            profile: profile.parse().map_err(|error| format!("{error}"))?,
            size: size.parse().map_err(|error| format!("{error}"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_and_a_size_are_a_device() {
        let spec: FlashSpec = "A/8:1G".parse().unwrap();
        let DeviceKind::Flash { profile, size, .. } = spec.kind(BlockSize::B512) else {
            panic!("{spec:?}");
        };
        assert_eq!((profile.to_string().as_str(), size.bytes), ("A/8", 1 << 30));
        for (bad, word) in [("A/8", "A/8:1G"), ("D:1G", "dram-ssd"), ("A:x", "512M")] {
            let error = bad.parse::<FlashSpec>().unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
