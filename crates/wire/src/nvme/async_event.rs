//! The completion of an Asynchronous Event Request. `[NVMe Base 2.0 §5.2]`

use crate::nvme::log_page::LogPageId;

/// An event: dword 0 of the completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AsyncEvent {
    /// Event type, 0 to 7; see the constants.
    pub kind: u8,
    /// Asynchronous Event Information: the event within its type.
    pub information: u8,
    /// Log page with details; reading it enables the next event of this kind.
    pub log_page: LogPageId,
}

impl AsyncEvent {
    /// Event type: error.
    pub const ERROR: u8 = 0b000;
    /// Event type: SMART / health.
    pub const SMART: u8 = 0b001;
    /// Event type: notice.
    pub const NOTICE: u8 = 0b010;
    /// Event type: I/O command set specific.
    pub const COMMAND_SET: u8 = 0b110;
    /// Event type: vendor specific.
    pub const VENDOR: u8 = 0b111;

    const fn new(kind: u8, information: u8, log_page: LogPageId) -> Self {
        Self {
            kind,
            information,
            log_page,
        }
    }

    /// A namespace was added, removed or changed.
    pub const NAMESPACE_ATTRIBUTE_CHANGED: Self =
        Self::new(Self::NOTICE, 0x00, LogPageId::CHANGED_NAMESPACES);
    /// New firmware is being activated.
    pub const FIRMWARE_ACTIVATION_STARTING: Self =
        Self::new(Self::NOTICE, 0x01, LogPageId::FIRMWARE_SLOT);
    /// ANA states of namespaces changed.
    pub const ANA_CHANGE: Self = Self::new(Self::NOTICE, 0x03, LogPageId::ANA);
    /// The discovery log page changed.
    pub const DISCOVERY_LOG_CHANGE: Self = Self::new(Self::NOTICE, 0xf0, LogPageId::DISCOVERY);
    /// A reservation notification is available.
    pub const RESERVATION: Self = Self::new(Self::COMMAND_SET, 0x00, LogPageId::RESERVATION);
    /// The controller failed permanently.
    pub const PERSISTENT_INTERNAL_ERROR: Self = Self::new(Self::ERROR, 0x03, LogPageId::ERROR);
    /// The controller had an internal error and continues.
    pub const TRANSIENT_INTERNAL_ERROR: Self = Self::new(Self::ERROR, 0x04, LogPageId::ERROR);
    /// The reliability of the subsystem is degraded.
    pub const RELIABILITY_DEGRADED: Self = Self::new(Self::SMART, 0x00, LogPageId::SMART);
    /// A temperature is beyond its threshold.
    pub const TEMPERATURE_THRESHOLD: Self = Self::new(Self::SMART, 0x01, LogPageId::SMART);
    /// Spare capacity is below its threshold.
    pub const SPARE_BELOW_THRESHOLD: Self = Self::new(Self::SMART, 0x02, LogPageId::SMART);

    /// Parses the dword.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            kind: (dword & 0b111) as u8,
            information: ((dword >> 8) & 0xff) as u8,
            log_page: LogPageId(((dword >> 16) & 0xff) as u8),
        }
    }

    /// Encodes the dword.
    pub const fn to_dword(self) -> u32 {
        (self.kind & 0b111) as u32
            | ((self.information as u32) << 8)
            | ((self.log_page.0 as u32) << 16)
    }
}

impl core::fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let known = match *self {
            Self::NAMESPACE_ATTRIBUTE_CHANGED => "namespace attribute changed",
            Self::FIRMWARE_ACTIVATION_STARTING => "firmware activation starting",
            Self::ANA_CHANGE => "asymmetric namespace access change",
            Self::DISCOVERY_LOG_CHANGE => "discovery log page change",
            Self::RESERVATION => "reservation notification",
            Self::PERSISTENT_INTERNAL_ERROR => "persistent internal error",
            Self::TRANSIENT_INTERNAL_ERROR => "transient internal error",
            Self::RELIABILITY_DEGRADED => "reliability degraded",
            Self::TEMPERATURE_THRESHOLD => "temperature threshold",
            Self::SPARE_BELOW_THRESHOLD => "spare below threshold",
            _ => {
                return write!(
                    f,
                    "event type {} information {:#04x}, log page {}",
                    self.kind, self.information, self.log_page
                );
            }
        };
        f.write_str(known)
    }
}
