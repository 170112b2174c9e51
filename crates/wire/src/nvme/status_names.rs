//! The status codes by name.
//!
//! `[NVMe Base 2.0 §3.3.3.2.1]`, `[NVMe NVM 1.0 §3.1.2]`. A command-specific code depends on the
//! command: for numbers shared by Connect and I/O commands, [`Status::name`] returns the name for
//! I/O commands, and [`Status::of_connect`] that for Connect.

use crate::nvme::status::Status;

macro_rules! status_codes {
    ($( $(#[$doc:meta])* $constant:ident = $value:literal, $text:literal; )+) => {
        impl Status {
            $( $(#[$doc])* pub const $constant: Self = Self($value); )+

            /// The specification's name, when this crate knows the code.
            pub const fn name(self) -> Option<&'static str> {
                match self.type_and_code() {
                    $( $value => Some($text), )+
                    _ => None,
                }
            }
        }
    };
}

status_codes! {
    // Type 0: generic.
    /// Successful Completion.
    SUCCESS = 0x000, "Successful Completion";
    /// Invalid Command Opcode.
    INVALID_OPCODE = 0x001, "Invalid Command Opcode";
    /// Invalid Field in Command.
    INVALID_FIELD = 0x002, "Invalid Field in Command";
    /// Command ID Conflict.
    COMMAND_ID_CONFLICT = 0x003, "Command ID Conflict";
    /// Data Transfer Error.
    DATA_TRANSFER_ERROR = 0x004, "Data Transfer Error";
    /// Commands Aborted due to Power Loss Notification.
    ABORTED_POWER_LOSS = 0x005, "Commands Aborted due to Power Loss Notification";
    /// Internal Error.
    INTERNAL_ERROR = 0x006, "Internal Error";
    /// Command Abort Requested.
    ABORTED_BY_REQUEST = 0x007, "Command Abort Requested";
    /// Command Aborted due to SQ Deletion.
    ABORTED_SQ_DELETION = 0x008, "Command Aborted due to SQ Deletion";
    /// Command Aborted due to Failed Fused Command.
    ABORTED_FAILED_FUSED = 0x009, "Command Aborted due to Failed Fused Command";
    /// Command Aborted due to Missing Fused Command.
    ABORTED_MISSING_FUSED = 0x00a, "Command Aborted due to Missing Fused Command";
    /// Invalid Namespace or Format.
    INVALID_NAMESPACE = 0x00b, "Invalid Namespace or Format";
    /// Command Sequence Error.
    COMMAND_SEQUENCE_ERROR = 0x00c, "Command Sequence Error";
    /// Invalid SGL Segment Descriptor.
    INVALID_SGL_SEGMENT = 0x00d, "Invalid SGL Segment Descriptor";
    /// Invalid Number of SGL Descriptors.
    INVALID_SGL_COUNT = 0x00e, "Invalid Number of SGL Descriptors";
    /// Data SGL Length Invalid.
    DATA_SGL_LENGTH_INVALID = 0x00f, "Data SGL Length Invalid";
    /// Metadata SGL Length Invalid.
    METADATA_SGL_LENGTH_INVALID = 0x010, "Metadata SGL Length Invalid";
    /// SGL Descriptor Type Invalid.
    SGL_DESCRIPTOR_TYPE_INVALID = 0x011, "SGL Descriptor Type Invalid";
    /// Invalid Use of Controller Memory Buffer.
    INVALID_CMB_USE = 0x012, "Invalid Use of Controller Memory Buffer";
    /// PRP Offset Invalid.
    PRP_OFFSET_INVALID = 0x013, "PRP Offset Invalid";
    /// Atomic Write Unit Exceeded.
    ATOMIC_WRITE_UNIT_EXCEEDED = 0x014, "Atomic Write Unit Exceeded";
    /// Operation Denied.
    OPERATION_DENIED = 0x015, "Operation Denied";
    /// SGL Offset Invalid.
    SGL_OFFSET_INVALID = 0x016, "SGL Offset Invalid";
    /// Host Identifier Inconsistent Format.
    HOST_ID_INCONSISTENT = 0x018, "Host Identifier Inconsistent Format";
    /// Keep Alive Timer Expired.
    KEEP_ALIVE_EXPIRED = 0x019, "Keep Alive Timer Expired";
    /// Keep Alive Timeout Invalid.
    KEEP_ALIVE_INVALID = 0x01a, "Keep Alive Timeout Invalid";
    /// Command Aborted due to Preempt and Abort.
    ABORTED_PREEMPT = 0x01b, "Command Aborted due to Preempt and Abort";
    /// Sanitize Failed.
    SANITIZE_FAILED = 0x01c, "Sanitize Failed";
    /// Sanitize In Progress.
    SANITIZE_IN_PROGRESS = 0x01d, "Sanitize In Progress";
    /// SGL Data Block Granularity Invalid.
    SGL_GRANULARITY_INVALID = 0x01e, "SGL Data Block Granularity Invalid";
    /// Command Not Supported for Queue in CMB.
    COMMAND_NOT_SUPPORTED_FOR_QUEUE_IN_CMB = 0x01f, "Command Not Supported for Queue in CMB";
    /// Namespace is Write Protected.
    NAMESPACE_WRITE_PROTECTED = 0x020, "Namespace is Write Protected";
    /// Command Interrupted.
    COMMAND_INTERRUPTED = 0x021, "Command Interrupted";
    /// Transient Transport Error.
    TRANSIENT_TRANSPORT_ERROR = 0x022, "Transient Transport Error";
    /// Command Prohibited by Command and Feature Lockdown.
    PROHIBITED_BY_LOCKDOWN = 0x023, "Command Prohibited by Command and Feature Lockdown";
    /// Admin Command Media Not Ready.
    ADMIN_MEDIA_NOT_READY = 0x024, "Admin Command Media Not Ready";
    /// LBA Out of Range.
    LBA_OUT_OF_RANGE = 0x080, "LBA Out of Range";
    /// Capacity Exceeded.
    CAPACITY_EXCEEDED = 0x081, "Capacity Exceeded";
    /// Namespace Not Ready.
    NAMESPACE_NOT_READY = 0x082, "Namespace Not Ready";
    /// Reservation Conflict.
    RESERVATION_CONFLICT = 0x083, "Reservation Conflict";
    /// Format In Progress.
    FORMAT_IN_PROGRESS = 0x084, "Format In Progress";
    /// Invalid Value Size.
    INVALID_VALUE_SIZE = 0x085, "Invalid Value Size";
    /// Invalid Key Size.
    INVALID_KEY_SIZE = 0x086, "Invalid Key Size";
    /// KV Key Does Not Exist.
    KEY_DOES_NOT_EXIST = 0x087, "KV Key Does Not Exist";
    /// Unrecovered Error.
    UNRECOVERED_ERROR = 0x088, "Unrecovered Error";
    /// Key Exists.
    KEY_EXISTS = 0x089, "Key Exists";
    // Type 1: command specific.
    /// Completion Queue Invalid.
    COMPLETION_QUEUE_INVALID = 0x100, "Completion Queue Invalid";
    /// Invalid Queue Identifier.
    INVALID_QUEUE_ID = 0x101, "Invalid Queue Identifier";
    /// Invalid Queue Size.
    INVALID_QUEUE_SIZE = 0x102, "Invalid Queue Size";
    /// Abort Command Limit Exceeded.
    ABORT_LIMIT_EXCEEDED = 0x103, "Abort Command Limit Exceeded";
    /// Asynchronous Event Request Limit Exceeded.
    ASYNC_EVENT_LIMIT_EXCEEDED = 0x105, "Asynchronous Event Request Limit Exceeded";
    /// Invalid Firmware Slot.
    INVALID_FIRMWARE_SLOT = 0x106, "Invalid Firmware Slot";
    /// Invalid Firmware Image.
    INVALID_FIRMWARE_IMAGE = 0x107, "Invalid Firmware Image";
    /// Invalid Interrupt Vector.
    INVALID_INTERRUPT_VECTOR = 0x108, "Invalid Interrupt Vector";
    /// Invalid Log Page.
    INVALID_LOG_PAGE = 0x109, "Invalid Log Page";
    /// Invalid Format.
    INVALID_FORMAT = 0x10a, "Invalid Format";
    /// Firmware Activation Requires Conventional Reset.
    FIRMWARE_NEEDS_CONVENTIONAL_RESET = 0x10b, "Firmware Activation Requires Conventional Reset";
    /// Invalid Queue Deletion.
    INVALID_QUEUE_DELETION = 0x10c, "Invalid Queue Deletion";
    /// Feature Identifier Not Saveable.
    FEATURE_NOT_SAVEABLE = 0x10d, "Feature Identifier Not Saveable";
    /// Feature Not Changeable.
    FEATURE_NOT_CHANGEABLE = 0x10e, "Feature Not Changeable";
    /// Feature Not Namespace Specific.
    FEATURE_NOT_NAMESPACE_SPECIFIC = 0x10f, "Feature Not Namespace Specific";
    /// Firmware Activation Requires NVM Subsystem Reset.
    FIRMWARE_NEEDS_SUBSYSTEM_RESET = 0x110, "Firmware Activation Requires NVM Subsystem Reset";
    /// Firmware Activation Requires Controller Level Reset.
    FIRMWARE_NEEDS_CONTROLLER_RESET = 0x111, "Firmware Activation Requires Controller Level Reset";
    /// Firmware Activation Requires Maximum Time Violation.
    FIRMWARE_NEEDS_MAX_TIME = 0x112, "Firmware Activation Requires Maximum Time Violation";
    /// Firmware Activation Prohibited.
    FIRMWARE_PROHIBITED = 0x113, "Firmware Activation Prohibited";
    /// Overlapping Range.
    OVERLAPPING_RANGE = 0x114, "Overlapping Range";
    /// Namespace Insufficient Capacity.
    NAMESPACE_INSUFFICIENT_CAPACITY = 0x115, "Namespace Insufficient Capacity";
    /// Namespace Identifier Unavailable.
    NAMESPACE_ID_UNAVAILABLE = 0x116, "Namespace Identifier Unavailable";
    /// Namespace Already Attached.
    NAMESPACE_ALREADY_ATTACHED = 0x118, "Namespace Already Attached";
    /// Namespace Is Private.
    NAMESPACE_IS_PRIVATE = 0x119, "Namespace Is Private";
    /// Namespace Not Attached.
    NAMESPACE_NOT_ATTACHED = 0x11a, "Namespace Not Attached";
    /// Thin Provisioning Not Supported.
    THIN_PROVISIONING_NOT_SUPPORTED = 0x11b, "Thin Provisioning Not Supported";
    /// Controller List Invalid.
    CONTROLLER_LIST_INVALID = 0x11c, "Controller List Invalid";
    /// Device Self-test In Progress.
    SELF_TEST_IN_PROGRESS = 0x11d, "Device Self-test In Progress";
    /// Boot Partition Write Prohibited.
    BOOT_PARTITION_WRITE_PROHIBITED = 0x11e, "Boot Partition Write Prohibited";
    /// Invalid Controller Identifier.
    INVALID_CONTROLLER_ID = 0x11f, "Invalid Controller Identifier";
    /// Invalid Secondary Controller State.
    INVALID_SECONDARY_STATE = 0x120, "Invalid Secondary Controller State";
    /// Invalid Number of Controller Resources.
    INVALID_RESOURCE_COUNT = 0x121, "Invalid Number of Controller Resources";
    /// Invalid Resource Identifier.
    INVALID_RESOURCE_ID = 0x122, "Invalid Resource Identifier";
    /// Sanitize Prohibited While Persistent Memory Region is Enabled.
    SANITIZE_PROHIBITED_BY_PMR = 0x123, "Sanitize Prohibited While Persistent Memory Region is Enabled";
    /// ANA Group Identifier Invalid.
    INVALID_ANA_GROUP = 0x124, "ANA Group Identifier Invalid";
    /// ANA Attach Failed.
    ANA_ATTACH_FAILED = 0x125, "ANA Attach Failed";
    /// Insufficient Capacity.
    INSUFFICIENT_CAPACITY = 0x126, "Insufficient Capacity";
    /// Namespace Attachment Limit Exceeded.
    NAMESPACE_ATTACHMENT_LIMIT = 0x127, "Namespace Attachment Limit Exceeded";
    /// Prohibition of Command Execution Not Supported.
    LOCKDOWN_EXECUTION_PROHIBITED = 0x128, "Prohibition of Command Execution Not Supported";
    /// I/O Command Set Not Supported.
    IO_COMMAND_SET_NOT_SUPPORTED = 0x129, "I/O Command Set Not Supported";
    /// I/O Command Set Not Enabled.
    IO_COMMAND_SET_NOT_ENABLED = 0x12a, "I/O Command Set Not Enabled";
    /// I/O Command Set Combination Rejected.
    IO_COMMAND_SET_COMBINATION_REJECTED = 0x12b, "I/O Command Set Combination Rejected";
    /// Invalid I/O Command Set.
    INVALID_IO_COMMAND_SET = 0x12c, "Invalid I/O Command Set";
    /// Identifier Unavailable.
    IDENTIFIER_UNAVAILABLE = 0x12d, "Identifier Unavailable";
    /// Conflicting Attributes.
    CONFLICTING_ATTRIBUTES = 0x180, "Conflicting Attributes";
    /// Invalid Protection Information.
    INVALID_PROTECTION_INFORMATION = 0x181, "Invalid Protection Information";
    /// Attempted Write to Read Only Range.
    WRITE_TO_READ_ONLY_RANGE = 0x182, "Attempted Write to Read Only Range";
    /// Command Size Limit Exceeded.
    COMMAND_SIZE_LIMIT_EXCEEDED = 0x183, "Command Size Limit Exceeded";
    /// Connect Invalid Host.
    CONNECT_INVALID_HOST = 0x184, "Connect Invalid Host";
    /// Invalid Queue Type.
    INVALID_QUEUE_TYPE = 0x185, "Invalid Queue Type";
    /// Discover Restart.
    DISCOVER_RESTART = 0x190, "Discover Restart";
    /// Authentication Required.
    AUTHENTICATION_REQUIRED = 0x191, "Authentication Required";
    // Type 2: media and data integrity.
    /// Write Fault.
    WRITE_FAULT = 0x280, "Write Fault";
    /// Unrecovered Read Error.
    UNRECOVERED_READ_ERROR = 0x281, "Unrecovered Read Error";
    /// End-to-end Guard Check Error.
    GUARD_CHECK_ERROR = 0x282, "End-to-end Guard Check Error";
    /// End-to-end Application Tag Check Error.
    APPLICATION_TAG_CHECK_ERROR = 0x283, "End-to-end Application Tag Check Error";
    /// End-to-end Reference Tag Check Error.
    REFERENCE_TAG_CHECK_ERROR = 0x284, "End-to-end Reference Tag Check Error";
    /// Compare Failure.
    COMPARE_FAILURE = 0x285, "Compare Failure";
    /// Access Denied.
    ACCESS_DENIED = 0x286, "Access Denied";
    /// Deallocated or Unwritten Logical Block.
    DEALLOCATED_BLOCK = 0x287, "Deallocated or Unwritten Logical Block";
    /// End-to-end Storage Tag Check Error.
    STORAGE_TAG_CHECK_ERROR = 0x288, "End-to-end Storage Tag Check Error";
    // Type 3: path related.
    /// Internal Path Error.
    INTERNAL_PATH_ERROR = 0x300, "Internal Path Error";
    /// Asymmetric Access Persistent Loss.
    ANA_PERSISTENT_LOSS = 0x301, "Asymmetric Access Persistent Loss";
    /// Asymmetric Access Inaccessible.
    ANA_INACCESSIBLE = 0x302, "Asymmetric Access Inaccessible";
    /// Asymmetric Access Transition.
    ANA_TRANSITION = 0x303, "Asymmetric Access Transition";
    /// Controller Pathing Error.
    CONTROLLER_PATHING_ERROR = 0x360, "Controller Pathing Error";
    /// Host Pathing Error.
    HOST_PATHING_ERROR = 0x370, "Host Pathing Error";
    /// Command Aborted By Host.
    ABORTED_BY_HOST = 0x371, "Command Aborted By Host";
}

/// Codes of Connect that have another meaning for other commands. `[NVMe Base 2.0 §6.3]`
impl Status {
    /// Connect: the controller does not support the record format.
    pub const CONNECT_INCOMPATIBLE_FORMAT: Self = Self(0x180);
    /// Connect: the controller already has a host, or no free queue.
    pub const CONNECT_CONTROLLER_BUSY: Self = Self(0x181);
    /// Connect: a parameter is invalid; the result identifies it, see
    /// [`crate::fabrics::InvalidParameter`].
    pub const CONNECT_INVALID_PARAMETERS: Self = Self(0x182);
    /// Connect: the host's discovery information is outdated; it must discover again.
    pub const CONNECT_RESTART_DISCOVERY: Self = Self(0x183);

    /// Returns the status of a Connect, for display.
    #[must_use]
    pub const fn of_connect(self) -> ConnectStatus {
        ConnectStatus(self)
    }
}

/// The status of a Connect: a [`Status`] with the name that it has for this command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectStatus(Status);

impl ConnectStatus {
    /// The specification's name, when this crate knows the code.
    pub const fn name(self) -> Option<&'static str> {
        match self.0.type_and_code() {
            0x180 => Some("Connect Incompatible Format"),
            0x181 => Some("Connect Controller Busy"),
            0x182 => Some("Connect Invalid Parameters"),
            0x183 => Some("Connect Restart Discovery"),
            _ => self.0.name(),
        }
    }
}

impl core::fmt::Display for ConnectStatus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.write(self.name(), f)
    }
}
