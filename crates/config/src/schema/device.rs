//! Devices and the layers over them.

use super::declare::{Row, Schema, read_node, unknown_type};
use super::{Keyword, Size, keyword, text_of};
use crate::limits::{DELAY_PER_KIB_NS_MAX, DELAY_US_MAX};
use crate::node::{Node, Value};
use crate::table::{Keys, Table};
use base::Nanos;
use base::units::Lba;
use block::BlockError;
use block::device::flash::Profile;
use block::layer::fault::FaultOperation;
use block::layer::{DelayOptions, FaultEffect, FaultOptions};
use block::limits::{CACHE_DIRTY_EXPIRE_MAX, CACHE_DIRTY_EXPIRE_MIN};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use switch::PathSpec;

crate::schema! {
    /// A device and the layers over it.
    ///
    /// Layers, outermost first: `cache`, `io_path`, `verify`, `delay`, `fault`, `crypt`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Device {
        /// Its kind.
        pub kind: DeviceKind = flat(),
        /// Several namespaces may use it at the same time.
        pub shared: bool = or(false),
        /// Adds latency to requests, for tests.
        pub delay: Option<Delay> = optional("no added latency"),
        /// Makes requests fail, for tests.
        pub fault: Option<Fault> = optional("no faults"),
        /// Stores checksums of writes and verifies reads, for tests.
        pub verify: bool = or(false),
        /// Encrypts the device.
        pub crypt: Option<Crypt> = optional("not encrypted"),
        /// I/O path from the cores to the device.
        pub io_path: Option<IoPath> = optional("each core submits by itself"),
        /// Size of a write-back cache in memory, shared by all cores. A crash loses writes without
        /// Flush or FUA. Not together with `model`.
        pub cache: Option<Size> = optional("no cache"),
        /// Age at which the cache writes a dirty page back.
        pub cache_dirty_expire_ms: Option<u64> = optional("5000")
            in millis(CACHE_DIRTY_EXPIRE_MIN)..=millis(CACHE_DIRTY_EXPIRE_MAX),
        /// Cost model and latency curve, as `switchyard calibrate` writes them. Tenants then share
        /// the device by tokens.
        pub model: Option<PathBuf> = optional("none: SLOs and weights have no effect"),
    }

    /// Encryption of a device with AES-256-XTS.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Crypt {
        /// File with the key: 32 bytes in base64, accessible only to its owner (mode 0600).
        pub key_file: Option<PathBuf> = optional("`key_command`"),
        /// Program and its arguments, run without a shell, that prints the key within 30 s. Not over
        /// the API, nor with `--confine`.
        pub key_command: Vec<String> = list("`key_file`"),
        /// Encrypts the device if it is not encrypted and contains only zeroes.
        pub create: bool = or(false),
    }

    /// Latency that is added to requests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Delay {
        /// Added to each read.
        pub read_us: u64 = or(0) in 0..=DELAY_US_MAX,
        /// Added to each read per KiB, rounded up.
        pub read_per_kib_ns: u64 = or(0) in 0..=DELAY_PER_KIB_NS_MAX,
        /// Added to each request that changes data.
        pub write_us: u64 = or(0) in 0..=DELAY_US_MAX,
        /// Added to each write per KiB, rounded up.
        pub write_per_kib_ns: u64 = or(0) in 0..=DELAY_PER_KIB_NS_MAX,
        /// Added to each Flush.
        pub flush_us: u64 = or(0) in 0..=DELAY_US_MAX,
    }

    /// Requests that fail: the same ones for the same seed and order of requests.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Fault {
        /// Seed of all random choices.
        pub seed: u64 = required("write a number; the same one gives the same faults"),
        /// Rules; the first that matches and strikes decides.
        pub rules: Vec<FaultRule> = required(
            "write at least one, like rules = [{ operation = \"read\", one_in = 1000, error = \"media\" }]"
        ),
    }

    /// Requests that are struck, and the effect: one of `error`, `delay_us`, `hang` and `torn_blocks`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FaultRule {
        /// Operations that match.
        pub operation: FaultOperation = or(FaultOperation::Any),
        /// First logical block that matches.
        pub first_block: u64 = or(0),
        /// Number of blocks that match.
        pub blocks: Option<u64> = optional("to the end of the device"),
        /// Strikes one in this number of matching requests, at random.
        pub one_in: u64 = or(1),
        /// Number of matching requests before the rule begins.
        pub skip: u64 = or(0),
        /// The most requests that are struck.
        pub times: Option<u64> = optional("no limit"),
        /// The request fails with this error; `corrupt`: a read succeeds with one bit flipped.
        pub error: Option<FaultError> = optional("no error"),
        /// The request completes this much later.
        pub delay_us: Option<u64> = optional("no delay") in 1..=DELAY_US_MAX,
        /// The request is carried out, but never completes while the device is in use.
        pub hang: bool = or(false),
        /// The request changes only its first N blocks, at most all but the last, and fails.
        pub torn_blocks: Option<u32> = optional("no torn requests"),
    }
}

const fn millis(time: Nanos) -> u64 {
    time.0 / 1_000_000
}

impl Delay {
    /// Returns the options of the layer.
    #[must_use]
    pub fn options(&self) -> DelayOptions {
        DelayOptions {
            read: Nanos::from_micros(self.read_us),
            read_per_kib: Nanos(self.read_per_kib_ns),
            write: Nanos::from_micros(self.write_us),
            write_per_kib: Nanos(self.write_per_kib_ns),
            flush: Nanos::from_micros(self.flush_us),
        }
    }
}

impl Fault {
    /// Returns the options of the layer; `None` if a rule has no effect, or more than one. A checked
    /// configuration has no such rule.
    #[must_use]
    pub fn options(&self) -> Option<FaultOptions> {
        let rules = self.rules.iter().map(FaultRule::rule);
        Some(FaultOptions {
            seed: self.seed,
            rules: rules.collect::<Option<_>>()?,
        })
    }
}

impl FaultRule {
    fn rule(&self) -> Option<block::layer::FaultRule> {
        Some(block::layer::FaultRule {
            operation: self.operation,
            first: Lba(self.first_block),
            blocks: self.blocks,
            skip: self.skip,
            one_in: self.one_in,
            times: self.times,
            effect: self.effect()?,
        })
    }

    /// Returns the effect; `None` where there is none, or more than one. A lost medium is noticed by
    /// reading; requests that only change data then fail as writes do.
    #[must_use]
    pub fn effect(&self) -> Option<FaultEffect> {
        let reads = [
            FaultOperation::Any,
            FaultOperation::Read,
            FaultOperation::Compare,
            FaultOperation::Verify,
        ];
        let error = |error| match error {
            FaultError::Media if reads.contains(&self.operation) => {
                FaultEffect::Error(BlockError::ReadFailure)
            }
            FaultError::Media => FaultEffect::Error(BlockError::WriteFailure),
            FaultError::Internal => FaultEffect::Error(BlockError::Internal),
            FaultError::NoSpace => FaultEffect::Error(BlockError::NoSpace),
            FaultError::Corrupt => FaultEffect::Corrupt,
        };
        let delay = self.delay_us.map(Nanos::from_micros);
        let torn = self.torn_blocks;
        let effects = [
            self.error.map(error),
            delay.map(FaultEffect::Delay),
            self.hang.then_some(FaultEffect::Hang),
            torn.map(|blocks| FaultEffect::Torn { blocks }),
        ];
        let mut effects = effects.into_iter().flatten();
        effects.next().filter(|_| effects.next().is_none())
    }
}

keyword! {
    /// The error of a request that a rule strikes.
    pub enum FaultError {
        /// The medium lost the data (EIO).
        Media = "media",
        /// Unspecified device error.
        Internal = "internal",
        /// No space left (ENOSPC).
        NoSpace = "no_space",
        /// The data read differs in one bit from the data written, and success is reported.
        Corrupt = "corrupt",
    }
}

text_of! {
    /// The I/O path of a device, as [text](PathSpec): `sync`, `2q`, `stm:handover_us=500`.
    IoPath(PathSpec)
}

text_of! {
    /// The profile of an emulated flash device, as text: `A`, `B/8`, `dram-ssd`.
    FlashProfile(Profile)
}

impl Keyword for FaultOperation {
    const WORDS: &'static [(&'static str, Self)] = Self::NAMES;
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
#[error("{0} is not a supported block size; write 512 or 4096")]
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
            crypt: None,
            io_path: None,
            cache: None,
            cache_dirty_expire_ms: None,
            model: None,
        }
    }
}

/// A kind of device, for flags and the documentation.
#[derive(Clone, Debug)]
pub struct KindRow {
    /// The word for `type`, and the flag: `ram`.
    pub name: &'static str,
    /// The keys that a text gives, in order: `profile`, `size`.
    pub parts: &'static [&'static str],
    /// The form of the text: `PROFILE:SIZE`.
    pub form: &'static str,
    /// An example of the text: `A/8:1G`.
    pub example: &'static str,
    /// The meaning.
    pub meaning: &'static str,
    /// The keys.
    pub rows: fn() -> Vec<Row>,
}

/// Declares the kinds of devices, each with its word, the form and an example of its text, `volatile` if closing
/// it loses its content, the keys that the text gives, and all keys. Each kind has the keys `size`
/// and `block_size`.
macro_rules! device_kinds {
    ($(
        $(#[$($meta:tt)*])*
        $kind:ident = $word:literal $form:literal $example:literal $($volatile:ident)? ($($part:ident),+) {
            $(
                $(#[$($field_meta:tt)*])*
                $field:ident: $type:ty = $read:ident($($argument:expr),*),
            )+
        }
    )+) => {
        /// The kind of a device.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum DeviceKind {
            $(
                $(#[$($meta)*])*
                $kind {
                    $( $(#[$($field_meta)*])* $field: $type, )+
                },
            )+
        }

        impl DeviceKind {
            /// All kinds.
            pub const ALL: &'static [KindRow] = &[$(KindRow {
                name: $word,
                parts: &[$(stringify!($part)),+],
                form: $form,
                example: $example,
                meaning: crate::doc_text!($(#[$($meta)*])*).trim_ascii(),
                rows: || {
                    [$(crate::row!(
                        $read, $field, $type,
                        crate::doc_text!($(#[$($field_meta)*])*), [$($argument),*]
                    )),+]
                    .concat()
                },
            }),+];

            /// The word for `type` in a configuration.
            #[must_use]
            pub const fn type_name(&self) -> &'static str {
                match self { $(Self::$kind { .. } => $word,)+ }
            }

            /// Returns true if closing the device loses its content.
            #[must_use]
            pub const fn is_volatile(&self) -> bool {
                match self {
                    $(Self::$kind { .. } => !matches!(stringify!($($volatile)?).as_bytes(), b""),)+
                }
            }

            /// The size, where the configuration states it.
            #[must_use]
            pub fn size(&self) -> Option<Size> {
                match self { $(Self::$kind { size, .. } => Option::from(*size),)+ }
            }

            /// The logical block.
            #[must_use]
            pub const fn block_size(&self) -> BlockSize {
                match self { $(Self::$kind { block_size, .. } => *block_size,)+ }
            }

            /// States another size, where the configuration states one.
            pub fn set_size(&mut self, new: Size) {
                match self { $(Self::$kind { size, .. } => size.restate(new),)+ }
            }

            fn block_size_mut(&mut self) -> &mut BlockSize {
                match self { $(Self::$kind { block_size, .. } => block_size,)+ }
            }

            /// The parts of its text.
            fn parts(&self) -> Vec<String> {
                match self { $(Self::$kind { $($part,)+ .. } => vec![$(Part::shown($part)),+],)+ }
            }
        }

        impl Keys for DeviceKind {
            fn read(table: &Table<'_>) -> Option<Self> {
                // Without a type it is unknown which of the other keys are good.
                match table.one_of("type", &[$($word),+]) {
                    $(Some($word) => {
                        $(let $field = table.$read(stringify!($field) $(, $argument)*);)+
                        Some(Self::$kind { $($field: $field?),+ })
                    })+
                    _ => unknown_type(table),
                }
            }
        }

        impl Schema for DeviceKind {
            fn check_ranges(&self, _: &crate::Spot<'_>) {}

            fn rows() -> Vec<Row> {
                let names: Vec<_> = Self::ALL.iter().map(|kind| kind.name).collect();
                vec![Row {
                    key: "type".to_owned(),
                    values: names.join(", "),
                    default: "required".to_owned(),
                    meaning: "Kind of the device, which decides the other keys.".to_owned(),
                }]
            }

            fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                map.serialize_entry("type", self.type_name())?;
                match self {
                    $(Self::$kind { $($field),+ } => {
                        $(crate::entry!($read, map, stringify!($field), *$field);)+
                    })+
                }
                Ok(())
            }
        }

        impl crate::FromNode for DeviceKind {
            fn from_node(found: &crate::FoundNode<'_>) -> Option<Self> {
                crate::read_table(found)
            }
        }
    };
}

device_kinds! {
    /// RAM; its content is lost when the process ends.
    Ram = "ram" "SIZE" "1G" volatile (size) {
        /// Size.
        size: Size = required("write its size, like size = \"1G\""),
        /// Bytes of a logical block.
        block_size: BlockSize = or(BlockSize::B4096),
    }
    /// Null device: discards writes, reads zeroes.
    Null = "null" "SIZE" "1T" (size) {
        /// Nominal size.
        size: Size = required("write its size, like size = \"1G\""),
        /// Bytes of a logical block.
        block_size: BlockSize = or(BlockSize::B4096),
    }
    /// RAM with the latency of a flash device, in which writes delay reads.
    Flash = "flash" "PROFILE:SIZE" "A/8:1G" volatile (profile, size) {
        /// Emulated device: A, B, C (of the ReFlex paper), a part such as A/8 (an eighth), or
        /// dram-ssd (7 µs).
        profile: FlashProfile = required("write which one, like profile = \"A/8\""),
        /// Size.
        size: Size = required("write its size, like size = \"1G\""),
        /// Bytes of a logical block.
        block_size: BlockSize = or(BlockSize::B4096),
    }
    /// A regular file or a block device.
    File = "file" "PATH" "/srv/disk.img" (path) {
        /// Path of the file or block device.
        path: PathBuf = required("write where it is, like path = \"/srv/disk.img\""),
        /// Size that is used, or of a new file.
        size: Option<Size> = optional("size of the file"),
        /// Bytes of a logical block.
        block_size: BlockSize = or(BlockSize::B512),
        /// Creates the file if it does not exist; needs `size`.
        create: bool = or(false),
        /// Opens the file for reading only.
        read_only: bool = or(false),
    }
}

/// A size that is stated, or may be.
trait Stated {
    fn restate(&mut self, new: Size);
}

impl Stated for Size {
    fn restate(&mut self, new: Size) {
        *self = new;
    }
}

impl Stated for Option<Size> {
    fn restate(&mut self, new: Size) {
        if let Some(size) = self {
            *size = new;
        }
    }
}

/// A part of a device's text.
trait Part {
    fn shown(&self) -> String;
}

impl Part for Size {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Part for FlashProfile {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Part for PathBuf {
    fn shown(&self) -> String {
        self.display().to_string()
    }
}

impl DeviceKind {
    /// Returns the device with this logical block, where one is given, and for reading only where it
    /// is a file and `is_read_only` is true.
    #[must_use]
    pub fn with(mut self, block_size: Option<BlockSize>, is_read_only: bool) -> Self {
        if let Some(block_size) = block_size {
            *self.block_size_mut() = block_size;
        }
        if let Self::File { read_only, .. } = &mut self {
            *read_only = is_read_only;
        }
        self
    }

    /// An existing file or block device.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File {
            path: path.into(),
            size: None,
            block_size: BlockSize::B512,
            create: false,
            read_only: false,
        }
    }

    /// The path of a file or block device.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// Writes the type and the parts: `ram 1G`, `flash A/8:1G`, `file PATH`.
impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.type_name(), self.parts().join(":"))
    }
}

/// The reason why a text is no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceTextError {
    /// It does not have the form of one; with the forms.
    #[error("write {0}")]
    Form(String),
    /// A part has no meaning.
    #[error("{0}")]
    Part(String),
}

impl FromStr for DeviceKind {
    type Err = DeviceTextError;

    /// Reads `KIND:PART:PART`, such as `ram:1G` or `flash:A/8:1G`; other keys have their defaults.
    /// `dram-ssd…:SIZE` is short for `flash:dram-ssd…:SIZE`.
    fn from_str(text: &str) -> Result<Self, DeviceTextError> {
        let forms = || {
            let forms = Self::ALL
                .iter()
                .map(|kind| format!("{}:{}", kind.name, kind.example));
            DeviceTextError::Form(forms.collect::<Vec<_>>().join(", "))
        };
        let (name, rest) = match text.split_once(':').ok_or_else(forms)? {
            (profile, _) if profile.starts_with("dram-ssd") => ("flash", text),
            parts => parts,
        };
        let known = Self::ALL.iter().find(|kind| kind.name == name);
        let kind = known.filter(|_| !rest.is_empty()).ok_or_else(forms)?;
        let texts: Vec<&str> = rest.splitn(kind.parts.len(), ':').collect();
        if texts.len() < kind.parts.len() {
            let form = format!("{}, such as {}", kind.form, kind.example);
            return Err(DeviceTextError::Form(form));
        }
        let text = |text: &str| Node {
            offset: None,
            value: Value::String(text.to_owned()),
        };
        let parts = kind.parts.iter().zip(texts);
        let parts = parts.map(|(key, part)| ((*key).to_owned(), text(part)));
        let table: BTreeMap<_, _> = parts.chain([("type".to_owned(), text(name))]).collect();
        let node = Node {
            offset: None,
            value: Value::Table(table),
        };
        read_node(&node).map_err(|error| {
            let remedies = error
                .problems()
                .iter()
                .map(|problem| problem.what_to_do.as_str());
            DeviceTextError::Part(remedies.collect::<Vec<_>>().join("; "))
        })
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
            let error = read(bad).expect_err(bad).to_string();
            assert!(error.contains("write ram:1G, "), "{error}");
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
            let kind = kind.with(Some(BlockSize::B512), true);
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
