//! Devices and the layers over them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{FlashProfile, IoPath, Size, keyword};

/// A device and the layers over it.
///
/// Requests pass the layers from the outside in: statistics, then `cache`, then `io_path`, then `verify`, then
/// `delay`, then `fault`, then the device.
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
    pub(crate) fn set_size(&mut self, new: Size) {
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
