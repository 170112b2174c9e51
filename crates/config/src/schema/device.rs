//! Devices and the layers over them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use block::device::flash::{Profile, ProfileError};
use serde::{Deserialize, Serialize};
use switch::PathSpec;

use super::{Size, SizeError, keyword, text_of};

/// A device and the layers over it.
///
/// Requests pass the layers from the outside in: `cache`, then `io_path`, then `verify`, then `delay`,
/// then `fault`, then the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its kind.
    #[serde(flatten)]
    pub kind: DeviceKind,
    /// More than one namespace may use it at a time.
    #[serde(default)]
    pub shared: bool,
    /// Makes every request slower.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub delay: Option<Delay>,
    /// Makes some requests fail.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<Fault>,
    /// Remembers checksums of what was written, and checks what is read.
    #[serde(default)]
    pub verify: bool,
    /// The way of requests from the target's cores to it; without one each core sends by itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub io_path: Option<IoPath>,
    /// The size of a write-back cache that the target's cores share; none without it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cache: Option<Size>,
    /// The age at which the cache writes a dirty page back, in milliseconds; its default without.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cache_dirty_expire_ms: Option<u64>,
    /// The file that says what requests cost on it and how late reads are, as calibration writes
    /// it: then tenants share the device by tokens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<PathBuf>,
}

/// The kind of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum DeviceKind {
    /// Memory of this process; gone when it ends.
    Ram {
        /// Its size.
        size: Size,
        /// The logical block.
        block_size: BlockSize,
    },
    /// Forgets what is written, and reads as zeroes.
    Null {
        /// Its nominal size.
        size: Size,
        /// The logical block.
        block_size: BlockSize,
    },
    /// Memory that takes as long as a flash device, and in which requests disturb each other.
    Flash {
        /// Which device it is like.
        profile: FlashProfile,
        /// Its size.
        size: Size,
        /// The logical block.
        block_size: BlockSize,
    },
    /// A regular file or a block device.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The part that is used, or the size of a new file; `None` means the size of the file.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        size: Option<Size>,
        /// The logical block.
        block_size: BlockSize,
        /// Creates the file where there is none.
        #[serde(default)]
        create: bool,
        /// Opens the file for reading only.
        #[serde(default)]
        read_only: bool,
    },
}

text_of! {
    /// The I/O path of a device, as [text](PathSpec): `sync`, `2q`, `stm:handover_us=500`.
    IoPath(PathSpec)
}

text_of! {
    /// The profile of an emulated flash device, as text: `A`, `B/8`, `dram-ssd`.
    FlashProfile(Profile)
}

/// Bytes of a logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub enum BlockSize {
    /// 512 bytes.
    B512,
    /// 4,096 bytes.
    B4096,
}

/// Makes every request slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
pub struct Delay {
    /// Added to each request that reads, in microseconds.
    pub read_us: u64,
    /// And for each KiB that it names, rounded up, in nanoseconds.
    pub read_per_kib_ns: u64,
    /// Added to each request that changes something, in microseconds.
    pub write_us: u64,
    /// And for each KiB that is written, rounded up, in nanoseconds.
    pub write_per_kib_ns: u64,
    /// Added to each flush, in microseconds.
    pub flush_us: u64,
}

/// Makes some requests fail, the same ones for the same seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The seed of every random choice.
    pub seed: u64,
    /// The rules; the first that matches and strikes decides.
    pub rules: Vec<FaultRule>,
}

/// Which requests are struck, and what happens to them: one of `error`, `delay_us`, `hang` and
/// `torn_blocks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// The requests it looks at.
    #[serde(default = "any_operation")]
    pub operation: FaultOperation,
    /// The first logical block it looks at.
    #[serde(default)]
    pub first_block: u64,
    /// Number of blocks that it covers; `None` means to the device's end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub blocks: Option<u64>,
    /// Strikes one in so many matching requests, at random; 1 strikes each.
    #[serde(default = "one")]
    pub one_in: u64,
    /// Lets so many matching requests pass before it begins.
    #[serde(default)]
    pub skip: u64,
    /// Strikes at most so many times; `None` means without end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub times: Option<u64>,
    /// The error with which the request is answered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<FaultError>,
    /// The request is done, and its answer comes so many microseconds later.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub delay_us: Option<u64>,
    /// The request is done, and never answered while the device is in use.
    #[serde(default)]
    pub hang: bool,
    /// So many blocks of what the request changes are changed, at most all but the last, and the
    /// request fails.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub torn_blocks: Option<u32>,
}

/// The effect of a rule on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// It is answered with this.
    Error(FaultError),
    /// It is done, and answered so many microseconds later.
    DelayUs(u64),
    /// It is done, and never answered.
    Hang,
    /// So many of its blocks are changed, and it fails.
    TornBlocks(u32),
}

impl FaultRule {
    /// Returns the effect on a request; `None` where the rule has none, or more than one. A checked
    /// configuration has one.
    #[must_use]
    pub fn effect(&self) -> Option<FaultEffect> {
        let effects = [
            self.error.map(FaultEffect::Error),
            self.delay_us.map(FaultEffect::DelayUs),
            self.hang.then_some(FaultEffect::Hang),
            self.torn_blocks.map(FaultEffect::TornBlocks),
        ];
        let mut effects = effects.into_iter().flatten();
        effects.next().filter(|_| effects.next().is_none())
    }
}

fn any_operation() -> FaultOperation {
    FaultOperation::Any
}

fn one() -> u64 {
    1
}

keyword! {
    /// Requests that a fault rule looks at.
    pub enum FaultOperation {
        /// Every request.
        Any = "any",
        /// Reads.
        Read = "read",
        /// Writes.
        Write = "write",
        /// Flushes.
        Flush = "flush",
        /// Write Zeroes.
        WriteZeroes = "write_zeroes",
        /// Deallocations (Dataset Management).
        Deallocate = "deallocate",
        /// Compares.
        Compare = "compare",
        /// Verifications.
        Verify = "verify",
    }
}

keyword! {
    /// The error of a request that a rule strikes.
    pub enum FaultError {
        /// The medium lost the data (EIO).
        Media = "media",
        /// The device failed for no reason it knows.
        Internal = "internal",
        /// There is no space left (ENOSPC).
        NoSpace = "no_space",
        /// The data read is not the data written: one bit differs, and success is reported.
        Corrupt = "corrupt",
    }
}

impl BlockSize {
    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

/// A block size that is neither 512 nor 4,096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a block size that hosts can use; write 512 or 4096")]
pub struct BlockSizeError(u64);

impl TryFrom<u64> for BlockSize {
    type Error = BlockSizeError;

    fn try_from(bytes: u64) -> Result<Self, BlockSizeError> {
        match bytes {
            512 => Ok(Self::B512),
            4096 => Ok(Self::B4096),
            other => Err(BlockSizeError(other)),
        }
    }
}

impl From<BlockSize> for u64 {
    fn from(size: BlockSize) -> Self {
        size.bytes()
    }
}

impl Device {
    /// A device without layers, for one namespace.
    #[must_use]
    pub fn new(kind: DeviceKind) -> Self {
        Self {
            kind,
            shared: false,
            delay: None,
            fault: None,
            verify: false,
            io_path: None,
            cache: None,
            cache_dirty_expire_ms: None,
            model: None,
        }
    }
}

impl DeviceKind {
    /// The word for `type` in a configuration.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Ram { .. } => "ram",
            Self::Null { .. } => "null",
            Self::Flash { .. } => "flash",
            Self::File { .. } => "file",
        }
    }

    /// The size, where the configuration knows it.
    #[must_use]
    pub fn size(&self) -> Option<Size> {
        match self {
            Self::Ram { size, .. } | Self::Null { size, .. } | Self::Flash { size, .. } => {
                Some(*size)
            }
            Self::File { size, .. } => *size,
        }
    }

    /// States another size, where the configuration states one.
    pub fn set_size(&mut self, new: Size) {
        match self {
            Self::Ram { size, .. }
            | Self::Null { size, .. }
            | Self::Flash { size, .. }
            | Self::File {
                size: Some(size), ..
            } => *size = new,
            Self::File { size: None, .. } => {}
        }
    }

    /// The logical block.
    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        match self {
            Self::Ram { block_size, .. }
            | Self::Null { block_size, .. }
            | Self::Flash { block_size, .. }
            | Self::File { block_size, .. } => *block_size,
        }
    }

    /// Returns true if closing the device loses its content.
    #[must_use]
    pub fn is_volatile(&self) -> bool {
        matches!(self, Self::Ram { .. } | Self::Flash { .. })
    }
}

impl DeviceKind {
    /// Returns the device with this logical block, which refuses writes, if it is a file, where
    /// `read_only` is true.
    #[must_use]
    pub fn with(mut self, block: BlockSize, is_read_only: bool) -> Self {
        match &mut self {
            Self::Ram { block_size, .. }
            | Self::Null { block_size, .. }
            | Self::Flash { block_size, .. } => *block_size = block,
            Self::File {
                block_size,
                read_only,
                ..
            } => (*block_size, *read_only) = (block, is_read_only),
        }
        self
    }

    /// A file or block device that is there.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File {
            path: path.into(),
            size: None,
            block_size: BlockSize::B4096,
            create: false,
            read_only: false,
        }
    }
}

/// Writes the type and what the device is made of: `ram 1G`, `flash A/8:1G`, `file PATH`.
impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name())?;
        match self {
            Self::Ram { size, .. } | Self::Null { size, .. } => write!(f, " {size}"),
            Self::Flash { profile, size, .. } => write!(f, " {profile}:{size}"),
            Self::File { path, .. } => write!(f, " {}", path.display()),
        }
    }
}

/// The reason for which a text is no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceTextError {
    /// It does not have the form of one.
    #[error("write ram:1G, null:1G, flash:A/8:1G, dram-ssd:1G or file:PATH")]
    Form,
    /// It does not have the form of an emulated flash device.
    #[error("write a profile and a size, such as A/8:1G")]
    FlashForm,
    /// There is no such profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The size is none.
    #[error(transparent)]
    Size(#[from] SizeError),
}

impl FromStr for DeviceKind {
    type Err = DeviceTextError;

    /// Reads `ram:SIZE`, `null:SIZE`, `flash:PROFILE:SIZE`, `dram-ssd:SIZE` or `file:PATH`, with blocks of
    /// 4,096 bytes.
    fn from_str(text: &str) -> Result<Self, DeviceTextError> {
        let block_size = BlockSize::B4096;
        let flash = |text: &str| {
            let parts = text.split_once(':');
            let (profile, size) = parts.ok_or(DeviceTextError::FlashForm)?;
            Ok(Self::Flash {
                profile: profile.parse()?,
                size: size.parse()?,
                block_size,
            })
        };
        match text.split_once(':').ok_or(DeviceTextError::Form)? {
            ("ram", size) => Ok(Self::Ram {
                size: size.parse()?,
                block_size,
            }),
            ("null", size) => Ok(Self::Null {
                size: size.parse()?,
                block_size,
            }),
            ("flash", rest) => flash(rest),
            (profile, _) if profile.starts_with("dram-ssd") => flash(text),
            ("file", path) if !path.is_empty() => Ok(Self::file(path)),
            _ => Err(DeviceTextError::Form),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_and_refused() {
        let read = |text: &str| text.parse::<DeviceKind>();
        for text in ["ram 1G", "null 512", "flash A/8:1G", "file /a:b"] {
            let kind = read(&text.replacen(' ', ":", 1)).expect("a device");
            assert_eq!(kind.to_string(), text);
        }
        assert_eq!(read("dram-ssd+5us:1G"), read("flash:dram-ssd+5us:1G"));
        for bad in ["", "ram", "disk:1G", "file:"] {
            assert_eq!(read(bad), Err(DeviceTextError::Form), "{bad}");
        }
        for (bad, word) in [
            ("ram:x", "512M"),
            ("flash:A/8", "A/8:1G"),
            ("flash:D:1G", "dram-ssd"),
            ("flash:A/8:x", "512M"),
        ] {
            let error = read(bad).expect_err(bad).to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn only_files_are_opened_for_reading_only() {
        let read_only = |text: &str| {
            let kind = text.parse::<DeviceKind>().expect("a device");
            let kind = kind.with(BlockSize::B512, true);
            assert_eq!(kind.block_size(), BlockSize::B512);
            matches!(
                kind,
                DeviceKind::File {
                    read_only: true,
                    ..
                }
            )
        };
        assert!(read_only("file:/a") && !read_only("ram:1G"));
    }
}
