//! Properties, and Property Get and Set.
//!
//! `[NVMe Base 2.0 §3.1.3, §6.5, §6.6]`

use crate::bytes::byte_of;
use crate::nvme::{Command, FabricsType, Status};

/// OFST: a property by its offset. `[NVMe Base 2.0 §3.1.3]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Property(pub u32);

impl Property {
    /// Controller Capabilities, 8 bytes.
    pub const CAP: Self = Self(0x00);
    /// Version, 4 bytes.
    pub const VS: Self = Self(0x08);
    /// Controller Configuration, 4 bytes.
    pub const CC: Self = Self(0x14);
    /// Controller Status, 4 bytes.
    pub const CSTS: Self = Self(0x1c);
    /// NVM Subsystem Reset, 4 bytes.
    pub const NSSR: Self = Self(0x20);
    /// Controller Ready Timeouts, 4 bytes.
    pub const CRTO: Self = Self(0x68);

    /// Returns the size of the property; `None` if fabrics do not have it.
    pub const fn size(self) -> Option<PropertySize> {
        Some(match self {
            Self::CAP => PropertySize::Eight,
            Self::VS | Self::CC | Self::CSTS | Self::NSSR | Self::CRTO => PropertySize::Four,
            _ => return None,
        })
    }
}

impl core::fmt::Display for Property {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match *self {
            Self::CAP => "CAP",
            Self::VS => "VS",
            Self::CC => "CC",
            Self::CSTS => "CSTS",
            Self::NSSR => "NSSR",
            Self::CRTO => "CRTO",
            Self(other) => return write!(f, "property {other:#x}"),
        })
    }
}

/// ATTRIB: size of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PropertySize {
    /// 4 bytes.
    Four,
    /// 8 bytes.
    Eight,
}

impl PropertySize {
    fn parse(attrib: u8) -> Result<Self, Status> {
        match attrib & 0b111 {
            0 => Ok(Self::Four),
            1 => Ok(Self::Eight),
            _ => Err(Status::INVALID_FIELD.with_dnr()),
        }
    }

    const fn code(self) -> u32 {
        match self {
            Self::Four => 0,
            Self::Eight => 1,
        }
    }
}

/// Property Get; dwords 0 and 1 of the completion have the value. `[NVMe Base 2.0 §6.5]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PropertyGet {
    /// ATTRIB.
    pub size: PropertySize,
    /// OFST.
    pub property: Property,
}

impl PropertyGet {
    /// Parses the command dwords.
    ///
    /// # Errors
    ///
    /// Invalid Field for a size other than 4 or 8 bytes.
    pub fn parse(command: &Command) -> Result<Self, Status> {
        Ok(Self {
            size: PropertySize::parse(byte_of(command.cdw(10), 0))?,
            property: Property(command.cdw(11)),
        })
    }

    /// Encodes the command.
    pub fn encode(&self, cid: u16) -> Command {
        let mut command = Command::new_fabrics(FabricsType::PROPERTY_GET, cid);
        command.set_cdw(10, self.size.code());
        command.set_cdw(11, self.property.0);
        command
    }
}

/// Property Set. `[NVMe Base 2.0 §6.6]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PropertySet {
    /// ATTRIB.
    pub size: PropertySize,
    /// OFST.
    pub property: Property,
    /// VALUE; the lower four bytes for a property of that size.
    pub value: u64,
}

impl PropertySet {
    /// A Property Set of CC.
    #[must_use]
    pub const fn configure(configuration: Configuration) -> Self {
        Self {
            size: PropertySize::Four,
            property: Property::CC,
            value: configuration.0 as u64,
        }
    }

    /// Parses the command dwords.
    ///
    /// # Errors
    ///
    /// Invalid Field for a size other than 4 or 8 bytes.
    pub fn parse(command: &Command) -> Result<Self, Status> {
        Ok(Self {
            size: PropertySize::parse(byte_of(command.cdw(10), 0))?,
            property: Property(command.cdw(11)),
            value: command.cdw64(12),
        })
    }

    /// Encodes the command.
    pub fn encode(&self, cid: u16) -> Command {
        let mut command = Command::new_fabrics(FabricsType::PROPERTY_SET, cid);
        command.set_cdw(10, self.size.code());
        command.set_cdw(11, self.property.0);
        command.set_cdw64(12, self.value);
        command
    }
}

/// CAP: Controller Capabilities. `[NVMe Base 2.0 §3.1.3.1]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// MQES, zero-based: maximum entries of a queue.
    pub max_queue_entries: u16,
    /// CQR: queues are contiguous; always set over fabrics.
    pub contiguous_queues: bool,
    /// AMS, 0 to 3: arbitration mechanisms in addition to round robin.
    pub arbitration: u8,
    /// TO, in units of 500 ms: maximum time until CSTS.RDY changes.
    pub timeout: u8,
    /// NSSRS: NVM Subsystem Reset is supported.
    pub subsystem_reset: bool,
    /// CSS: supported command sets; see the constants.
    pub command_sets: u8,
    /// MPSMIN, 0 to 15: log2 of the smallest memory page, minus 12.
    pub page_shift_min: u8,
    /// MPSMAX, 0 to 15: log2 of the largest memory page, minus 12.
    pub page_shift_max: u8,
    /// CRMS, 0 to 3: bit 0 ready with media, bit 1 ready independent of media.
    pub ready_modes: u8,
}

impl Capabilities {
    /// CSS bit 0: the NVM command set.
    pub const CSS_NVM: u8 = 1 << 0;
    /// CSS bit 6: one or more command sets, with CNS 1Ch.
    pub const CSS_COMMAND_SETS: u8 = 1 << 6;
    /// CRMS bit 0: ready with media.
    pub const CRMS_WITH_MEDIA: u8 = 1 << 0;

    /// Parses the property.
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            max_queue_entries: (bits & 0xffff) as u16,
            contiguous_queues: bits & (1 << 16) != 0,
            arbitration: ((bits >> 17) & 0b11) as u8,
            timeout: ((bits >> 24) & 0xff) as u8,
            subsystem_reset: bits & (1 << 36) != 0,
            command_sets: ((bits >> 37) & 0xff) as u8,
            page_shift_min: ((bits >> 48) & 0xf) as u8,
            page_shift_max: ((bits >> 52) & 0xf) as u8,
            ready_modes: ((bits >> 59) & 0b11) as u8,
        }
    }

    /// Encodes the property. Values are truncated to the width of their field.
    pub const fn to_bits(self) -> u64 {
        self.max_queue_entries as u64
            | (self.contiguous_queues as u64) << 16
            | ((self.arbitration & 0b11) as u64) << 17
            | (self.timeout as u64) << 24
            | (self.subsystem_reset as u64) << 36
            | (self.command_sets as u64) << 37
            | ((self.page_shift_min & 0xf) as u64) << 48
            | ((self.page_shift_max & 0xf) as u64) << 52
            | ((self.ready_modes & 0b11) as u64) << 59
    }
}

/// VS: a version of the specification. `[NVMe Base 2.0 §3.1.3.2]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u32);

impl Version {
    /// Version 2.0.
    pub const V2_0: Self = Self::new(2, 0, 0);

    /// Creates a version.
    pub const fn new(major: u16, minor: u8, tertiary: u8) -> Self {
        Self((major as u32) << 16 | (minor as u32) << 8 | tertiary as u32)
    }
}

impl core::fmt::Display for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{}.{}.{}",
            self.0 >> 16,
            (self.0 >> 8) & 0xff,
            self.0 & 0xff
        )
    }
}

/// CC: Controller Configuration. `[NVMe Base 2.0 §3.1.3.5]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Configuration(pub u32);

impl Configuration {
    /// The value with which a host enables a controller: EN, 64-byte commands, 16-byte completions,
    /// the NVM command set, 4 KiB pages.
    pub const ENABLE: Self = Self(1 | (6 << 16) | (4 << 20));

    /// Returns the value with which a host enables a controller with these command sets (CAP.CSS):
    /// CSS 110b if it supports the NVM command set only as one of several.
    #[must_use]
    pub const fn enable(command_sets: u8) -> Self {
        let nvm = command_sets & Capabilities::CSS_NVM != 0;
        if nvm || command_sets & Capabilities::CSS_COMMAND_SETS == 0 {
            return Self::ENABLE;
        }
        Self(Self::ENABLE.0 | 0b110 << 4)
    }

    /// EN.
    pub const fn enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// CSS, 0 to 7: 000b NVM, 110b all supported sets, 111b admin only.
    pub const fn command_set(self) -> u8 {
        ((self.0 >> 4) & 0b111) as u8
    }

    /// MPS, 0 to 15: log2 of the memory page, minus 12.
    pub const fn page_shift(self) -> u8 {
        ((self.0 >> 7) & 0xf) as u8
    }

    /// AMS, 0 to 7: the arbitration mechanism.
    pub const fn arbitration(self) -> u8 {
        ((self.0 >> 11) & 0b111) as u8
    }

    /// SHN, 0 to 3: 01b normal and 10b abrupt shutdown.
    pub const fn shutdown(self) -> u8 {
        ((self.0 >> 14) & 0b11) as u8
    }

    /// Returns the value with this SHN.
    #[must_use]
    pub const fn with_shutdown(self, shutdown: u8) -> Self {
        Self((self.0 & !(0b11 << 14)) | ((shutdown & 0b11) as u32) << 14)
    }

    /// IOSQES: log2 of the bytes of a command; 6.
    pub const fn sq_entry_shift(self) -> u8 {
        ((self.0 >> 16) & 0xf) as u8
    }

    /// IOCQES: log2 of the bytes of a completion; 4.
    pub const fn cq_entry_shift(self) -> u8 {
        ((self.0 >> 20) & 0xf) as u8
    }
}

/// CSTS: Controller Status. `[NVMe Base 2.0 §3.1.3.6]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ControllerStatus(pub u32);

impl ControllerStatus {
    /// RDY: the controller processes commands.
    pub const READY: Self = Self(1 << 0);
    /// CFS: fatal error; the controller does not recover.
    pub const FATAL: Self = Self(1 << 1);
    /// SHST 01b: shutdown in progress.
    pub const SHUTDOWN_OCCURRING: Self = Self(0b01 << 2);
    /// SHST 10b: shutdown complete.
    pub const SHUTDOWN_COMPLETE: Self = Self(0b10 << 2);

    /// RDY.
    pub const fn ready(self) -> bool {
        self.0 & Self::READY.0 != 0
    }

    /// CFS.
    pub const fn fatal(self) -> bool {
        self.0 & Self::FATAL.0 != 0
    }

    /// SHST, 0 to 3: 0 normal, 1 shutdown in progress, 2 shutdown complete.
    pub const fn shutdown(self) -> u8 {
        ((self.0 >> 2) & 0b11) as u8
    }

    /// Returns the value with the SHST of `shutdown`.
    #[must_use]
    pub const fn with_shutdown(self, shutdown: Self) -> Self {
        let field = 0b11 << 2;
        Self((self.0 & !field) | (shutdown.0 & field))
    }

    /// Returns the union of the bits.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests;
