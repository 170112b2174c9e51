//! The status of a completed command.

/// Status field of a completion, without the phase tag: code in bits 7:0, type in bits 10:8, retry
/// delay in bits 12:11, more in bit 13, do-not-retry in bit 14. `[NVMe Base 2.0 §3.3.3.2.1]`
///
/// Two statuses are equal if all fifteen bits are; [`Status::is`] compares only type and code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

/// SCT: status code type. `[NVMe Base 2.0 §3.3.3.2.1]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatusType {
    /// Applies to any command.
    Generic,
    /// Specific to one command.
    CommandSpecific,
    /// Errors of the medium or its data.
    MediaAndDataIntegrity,
    /// Errors of the path to the namespace.
    PathRelated,
    /// Reserved values 4 to 6.
    Reserved(u8),
    /// Vendor specific.
    VendorSpecific,
}

const CODE_MASK: u16 = 0x00ff;
const TYPE_AND_CODE_MASK: u16 = 0x07ff;
const CRD_SHIFT: u16 = 11;
const CRD_MASK: u16 = 0b11 << CRD_SHIFT;
const MORE: u16 = 1 << 13;
const DNR: u16 = 1 << 14;

impl Status {
    /// A status of type `sct` (0 to 7) and code `sc`.
    pub const fn from_type_and_code(sct: u8, sc: u8) -> Self {
        Self((((sct & 0b111) as u16) << 8) | sc as u16)
    }

    /// Returns true for Successful Completion.
    #[inline]
    pub const fn is_success(self) -> bool {
        self.0 & TYPE_AND_CODE_MASK == 0
    }

    /// Returns true if both have the same type and code, regardless of the retry bits.
    #[inline]
    pub const fn is(self, other: Self) -> bool {
        self.0 & TYPE_AND_CODE_MASK == other.0 & TYPE_AND_CODE_MASK
    }

    /// SC: the code within its type.
    pub const fn code(self) -> u8 {
        (self.0 & CODE_MASK) as u8
    }

    /// SCT: the type.
    pub const fn status_type(self) -> StatusType {
        match (self.0 >> 8) & 0b111 {
            0 => StatusType::Generic,
            1 => StatusType::CommandSpecific,
            2 => StatusType::MediaAndDataIntegrity,
            3 => StatusType::PathRelated,
            7 => StatusType::VendorSpecific,
            reserved => StatusType::Reserved((reserved & 0b111) as u8),
        }
    }

    /// Returns type and code alone, as printed by Linux: `0x281` is an unrecovered read error.
    pub const fn type_and_code(self) -> u16 {
        self.0 & TYPE_AND_CODE_MASK
    }

    /// DNR: a retry of the command would fail again.
    pub const fn dnr(self) -> bool {
        self.0 & DNR != 0
    }

    /// M: the error log page has more information.
    pub const fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// CRD: index of the controller's retry delay, 1 to 3; 0 for none.
    pub const fn crd(self) -> u8 {
        ((self.0 & CRD_MASK) >> CRD_SHIFT) as u8
    }

    /// Returns the status with DNR set.
    #[must_use]
    pub const fn with_dnr(self) -> Self {
        Self(self.0 | DNR)
    }

    /// Returns the status with M set.
    #[must_use]
    pub const fn with_more(self) -> Self {
        Self(self.0 | MORE)
    }

    /// Returns the status with this retry delay index, 0 to 3.
    #[must_use]
    pub const fn with_crd(self, crd: u8) -> Self {
        Self((self.0 & !CRD_MASK) | (((crd & 0b11) as u16) << CRD_SHIFT))
    }
}

impl Status {
    /// Writes the status with a name.
    pub(super) fn write(
        self,
        name: Option<&str>,
        f: &mut core::fmt::Formatter<'_>,
    ) -> core::fmt::Result {
        match name {
            Some(name) => write!(f, "{name} ({:#05x})", self.type_and_code())?,
            None => write!(f, "status {:#05x}", self.type_and_code())?,
        }
        if self.crd() != 0 {
            write!(f, ", retry delay {}", self.crd())?;
        }
        if self.more() {
            f.write_str(", more in the error log")?;
        }
        if self.dnr() {
            f.write_str(", do not retry")?;
        }
        Ok(())
    }
}

impl core::fmt::Display for Status {
    /// Format: `LBA Out of Range (0x080), do not retry`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.write(self.name(), f)
    }
}

#[cfg(test)]
mod tests;
