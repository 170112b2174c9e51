//! Get Features and Set Features, and the supported features.
//!
//! `[NVMe Base 2.0 §5.15, §5.27]`

use crate::bytes::{byte_of, high16, join16, low16};
use crate::layout::layout;
use crate::nvme::command::Command;
use crate::nvme::opcode::{AdminOpcode, code_names};

code_names! {
    /// FID: feature identifier. `[NVMe Base 2.0 §5.27.1]`
    FeatureId {
        /// Arbitration.
        ARBITRATION = 0x01, "Arbitration";
        /// Power Management.
        POWER_MANAGEMENT = 0x02, "Power Management";
        /// LBA Range Type.
        LBA_RANGE_TYPE = 0x03, "LBA Range Type";
        /// Temperature Threshold.
        TEMPERATURE_THRESHOLD = 0x04, "Temperature Threshold";
        /// Error Recovery.
        ERROR_RECOVERY = 0x05, "Error Recovery";
        /// Volatile Write Cache.
        VOLATILE_WRITE_CACHE = 0x06, "Volatile Write Cache";
        /// Number of Queues.
        NUMBER_OF_QUEUES = 0x07, "Number of Queues";
        /// Interrupt Coalescing; not used over fabrics.
        INTERRUPT_COALESCING = 0x08, "Interrupt Coalescing";
        /// Interrupt Vector Configuration; not used over fabrics.
        INTERRUPT_VECTOR = 0x09, "Interrupt Vector Configuration";
        /// Write Atomicity Normal.
        WRITE_ATOMICITY = 0x0a, "Write Atomicity Normal";
        /// Asynchronous Event Configuration.
        ASYNC_EVENT_CONFIGURATION = 0x0b, "Asynchronous Event Configuration";
        /// Autonomous Power State Transition.
        AUTONOMOUS_POWER_STATE = 0x0c, "Autonomous Power State Transition";
        /// Host Memory Buffer; not used over fabrics.
        HOST_MEMORY_BUFFER = 0x0d, "Host Memory Buffer";
        /// Timestamp.
        TIMESTAMP = 0x0e, "Timestamp";
        /// Keep Alive Timer.
        KEEP_ALIVE_TIMER = 0x0f, "Keep Alive Timer";
        /// Host Behavior Support.
        HOST_BEHAVIOR = 0x16, "Host Behavior Support";
        /// I/O Command Set Profile.
        COMMAND_SET_PROFILE = 0x19, "I/O Command Set Profile";
        /// Software Progress Marker.
        SOFTWARE_PROGRESS = 0x80, "Software Progress Marker";
        /// Host Identifier.
        HOST_IDENTIFIER = 0x81, "Host Identifier";
        /// Reservation Notification Mask.
        RESERVATION_NOTIFICATION_MASK = 0x82, "Reservation Notification Mask";
        /// Extensions supported by the host
        /// ([`HostExtensions`](crate::nvme::vendor::HostExtensions)).
        HOST_EXTENSIONS = 0xc0, "Host Extensions";
        /// Reservation Persistence.
        RESERVATION_PERSISTENCE = 0x83, "Reservation Persistence";
        /// Namespace Write Protection Config.
        NAMESPACE_WRITE_PROTECTION = 0x84, "Namespace Write Protection Config";
    }
}

code_names! {
    /// SEL: selects a value of a feature. `[NVMe Base 2.0 §5.15]`
    FeatureSelect {
        /// The current value.
        CURRENT = 0b000, "current";
        /// The value after a reset without a saved value.
        DEFAULT = 0b001, "default";
        /// The value after a reset.
        SAVED = 0b010, "saved";
        /// Capabilities of the feature (Get Features, SEL = 011b).
        CAPABILITIES = 0b011, "supported capabilities";
    }
}

/// Capabilities (SEL 011b), bit 1: each namespace has its own value.
pub const CAPABILITY_NAMESPACE_SPECIFIC: u32 = 1 << 1;

/// Capabilities (SEL 011b), bit 2: the value can be changed.
pub const CAPABILITY_CHANGEABLE: u32 = 1 << 2;

/// Get Features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GetFeatures {
    /// NSID, for a feature of a namespace.
    pub nsid: u32,
    /// FID.
    pub feature: FeatureId,
    /// SEL, 0 to 7.
    pub select: FeatureSelect,
    /// Dword 11: depends on the feature.
    pub dword11: u32,
    /// UUID Index, 0 to 127.
    pub uuid_index: u8,
}

impl GetFeatures {
    /// Parses the command dwords.
    pub fn parse(command: &Command) -> Self {
        let cdw10 = command.cdw(10);
        Self {
            nsid: command.nsid(),
            feature: FeatureId(byte_of(cdw10, 0)),
            select: FeatureSelect(byte_of(cdw10, 8) & 0b111),
            dword11: command.cdw(11),
            uuid_index: byte_of(command.cdw(14), 0) & 0x7f,
        }
    }

    /// Encodes the command; the caller sets its data pointer.
    pub fn encode(&self, cid: u16) -> Command {
        let mut command = Command::new(AdminOpcode::GET_FEATURES.0, cid);
        command.set_nsid(self.nsid);
        command.set_cdw(
            10,
            u32::from(self.feature.0) | (u32::from(self.select.0 & 0b111) << 8),
        );
        command.set_cdw(11, self.dword11);
        command.set_cdw(14, u32::from(self.uuid_index & 0x7f));
        command
    }
}

/// Set Features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SetFeatures {
    /// NSID, for a feature of a namespace.
    pub nsid: u32,
    /// FID.
    pub feature: FeatureId,
    /// SV: save the value across resets.
    pub save: bool,
    /// Dwords 11, 12 and 13: depend on the feature.
    pub dwords: [u32; 3],
    /// Dword 15: depends on the feature.
    pub dword15: u32,
    /// UUID Index, 0 to 127.
    pub uuid_index: u8,
}

impl SetFeatures {
    /// A Set Features with its value in dword 11.
    pub const fn new(feature: FeatureId, dword11: u32) -> Self {
        Self {
            nsid: 0,
            feature,
            save: false,
            dwords: [dword11, 0, 0],
            dword15: 0,
            uuid_index: 0,
        }
    }

    /// Dword 11: the value of most features.
    pub const fn dword11(&self) -> u32 {
        self.dwords[0]
    }

    /// Parses the command dwords.
    pub fn parse(command: &Command) -> Self {
        let cdw10 = command.cdw(10);
        Self {
            nsid: command.nsid(),
            feature: FeatureId(byte_of(cdw10, 0)),
            save: cdw10 & (1 << 31) != 0,
            dwords: [command.cdw(11), command.cdw(12), command.cdw(13)],
            dword15: command.cdw(15),
            uuid_index: byte_of(command.cdw(14), 0) & 0x7f,
        }
    }

    /// Encodes the command; the caller sets its data pointer.
    pub fn encode(&self, cid: u16) -> Command {
        let mut command = Command::new(AdminOpcode::SET_FEATURES.0, cid);
        command.set_nsid(self.nsid);
        command.set_cdw(10, u32::from(self.feature.0) | (u32::from(self.save) << 31));
        for (index, value) in self.dwords.iter().enumerate() {
            command.set_cdw(11 + index, *value);
        }
        command.set_cdw(14, u32::from(self.uuid_index & 0x7f));
        command.set_cdw(15, self.dword15);
        command
    }
}

/// Number of Queues: dword 11 of Set Features, dword 0 of its completion. `[NVMe Base 2.0
/// §5.27.1.5]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NumberOfQueues {
    /// NSQR or NSQA, zero-based: I/O submission queues. 65,535 is invalid.
    pub submission: u16,
    /// NCQR or NCQA, zero-based: I/O completion queues.
    pub completion: u16,
}

impl NumberOfQueues {
    /// A number of `queues` of each kind.
    ///
    /// # Panics
    ///
    /// If `queues` is 0.
    pub const fn of(queues: u16) -> Self {
        assert!(queues > 0);
        Self {
            submission: queues - 1,
            completion: queues - 1,
        }
    }

    /// Returns the number of queue pairs: the smaller of both counts.
    pub fn pairs(self) -> u32 {
        u32::from(self.submission.min(self.completion)) + 1
    }

    /// Parses the dword.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            submission: low16(dword),
            completion: high16(dword),
        }
    }

    /// Encodes the dword.
    pub const fn to_dword(self) -> u32 {
        join16(self.submission, self.completion)
    }
}

/// Asynchronous Event Configuration: events that the host enables. `[NVMe Base 2.0 §5.27.1.8]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AsyncEventConfiguration(pub u32);

impl AsyncEventConfiguration {
    /// Namespace Attribute Notices.
    pub const NAMESPACE_ATTRIBUTE: Self = Self(1 << 8);
    /// Asymmetric Namespace Access Change Notices.
    pub const ANA_CHANGE: Self = Self(1 << 11);
    /// Discovery Log Page Change Notification.
    pub const DISCOVERY_LOG_CHANGE: Self = Self(1 << 31);

    /// Returns true if every bit of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of the bits.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

layout! {
    /// Host Behavior Support: features that the host supports, so that the controller may use them;
    /// 1 for yes, 0 for no, other values are reserved. `[NVMe Base 2.0 §5.27.1.18]`
    pub struct HostBehavior: 512 {
        /// ACRE: Command Interrupted and retry delays (CRD of a completion's status).
        acre: u8 = 0,
        /// ETDAS: data area 4 of the telemetry log pages.
        etdas: u8 = 1,
        /// LBAFEE: extended LBA formats.
        lbafee: u8 = 2,
    }
}

/// Volatile Write Cache: bit 0 of dword 11, WCE. `[NVMe Base 2.0 §5.27.1.4]`
pub const VOLATILE_WRITE_CACHE_ENABLE: u32 = 1 << 0;

/// Host Identifier, EXHID: dword 11 bit 0, the identifier has 128 bits. `[NVMe Base 2.0
/// §5.27.1.25]`
pub const HOST_IDENTIFIER_EXTENDED: u32 = 1 << 0;
