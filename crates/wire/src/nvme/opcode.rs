//! Opcodes of the admin, NVM and Fabrics command sets.
//!
//! Newtypes, not enums: a peer may send any byte, and an unknown opcode is a regular value that the
//! controller answers with Invalid Command Opcode.

macro_rules! code_names {
    ($(#[$meta:meta])* $name:ident { $( $(#[$doc:meta])* $constant:ident = $value:literal, $text:literal; )+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u8);

        impl $name {
            $( $(#[$doc])* pub const $constant: Self = Self($value); )+

            /// The specification's name, when this crate knows the code.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $value => Some($text), )+
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{:#04x}", self.0),
                }
            }
        }
    };
}
pub(crate) use code_names;

/// Opcode of every Fabrics command, on admin and I/O queues. `[NVMe Base 2.0 §6]`
pub const FABRICS_OPCODE: u8 = 0x7f;

/// Direction of a command's data. `[NVMe Base 2.0 §3.3.3.1]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataDirection {
    /// No data.
    None,
    /// Host to controller.
    ToController,
    /// Controller to host.
    ToHost,
    /// Both.
    Both,
}

impl DataDirection {
    /// Returns the direction in bits 1:0 of an opcode, or of the type of a Fabrics command.
    #[inline]
    pub const fn of(code: u8) -> Self {
        match code & 0b11 {
            0b00 => Self::None,
            0b01 => Self::ToController,
            0b10 => Self::ToHost,
            _ => Self::Both,
        }
    }
}

code_names! {
    /// Opcode of an admin command. `[NVMe Base 2.0 §5]`
    AdminOpcode {
        /// Delete I/O Submission Queue; not used over fabrics.
        DELETE_IO_SQ = 0x00, "Delete I/O Submission Queue";
        /// Create I/O Submission Queue; not used over fabrics.
        CREATE_IO_SQ = 0x01, "Create I/O Submission Queue";
        /// Get Log Page.
        GET_LOG_PAGE = 0x02, "Get Log Page";
        /// Delete I/O Completion Queue; not used over fabrics.
        DELETE_IO_CQ = 0x04, "Delete I/O Completion Queue";
        /// Create I/O Completion Queue; not used over fabrics.
        CREATE_IO_CQ = 0x05, "Create I/O Completion Queue";
        /// Identify.
        IDENTIFY = 0x06, "Identify";
        /// Abort.
        ABORT = 0x08, "Abort";
        /// Set Features.
        SET_FEATURES = 0x09, "Set Features";
        /// Get Features.
        GET_FEATURES = 0x0a, "Get Features";
        /// Asynchronous Event Request.
        ASYNC_EVENT_REQUEST = 0x0c, "Asynchronous Event Request";
        /// Namespace Management.
        NAMESPACE_MANAGEMENT = 0x0d, "Namespace Management";
        /// Firmware Commit.
        FIRMWARE_COMMIT = 0x10, "Firmware Commit";
        /// Firmware Image Download.
        FIRMWARE_DOWNLOAD = 0x11, "Firmware Image Download";
        /// Device Self-test.
        DEVICE_SELF_TEST = 0x14, "Device Self-test";
        /// Namespace Attachment.
        NAMESPACE_ATTACHMENT = 0x15, "Namespace Attachment";
        /// Keep Alive.
        KEEP_ALIVE = 0x18, "Keep Alive";
        /// Directive Send.
        DIRECTIVE_SEND = 0x19, "Directive Send";
        /// Directive Receive.
        DIRECTIVE_RECEIVE = 0x1a, "Directive Receive";
        /// Fabrics commands.
        FABRICS = 0x7f, "Fabrics";
        /// Format NVM.
        FORMAT_NVM = 0x80, "Format NVM";
        /// Security Send.
        SECURITY_SEND = 0x81, "Security Send";
        /// Security Receive.
        SECURITY_RECEIVE = 0x82, "Security Receive";
        /// Sanitize.
        SANITIZE = 0x84, "Sanitize";
        /// End Controller, vendor specific ([`EndController`](crate::nvme::vendor::EndController)).
        END_CONTROLLER = 0xc0, "End Controller";
    }
}

code_names! {
    /// Opcode of an I/O command of the NVM command set. `[NVMe NVM 1.0 §3]`
    IoOpcode {
        /// Flush.
        FLUSH = 0x00, "Flush";
        /// Write.
        WRITE = 0x01, "Write";
        /// Read.
        READ = 0x02, "Read";
        /// Write Uncorrectable.
        WRITE_UNCORRECTABLE = 0x04, "Write Uncorrectable";
        /// Compare.
        COMPARE = 0x05, "Compare";
        /// Write Zeroes.
        WRITE_ZEROES = 0x08, "Write Zeroes";
        /// Dataset Management.
        DATASET_MANAGEMENT = 0x09, "Dataset Management";
        /// Verify.
        VERIFY = 0x0c, "Verify";
        /// Reservation Register.
        RESERVATION_REGISTER = 0x0d, "Reservation Register";
        /// Reservation Report.
        RESERVATION_REPORT = 0x0e, "Reservation Report";
        /// Reservation Acquire.
        RESERVATION_ACQUIRE = 0x11, "Reservation Acquire";
        /// Reservation Release.
        RESERVATION_RELEASE = 0x15, "Reservation Release";
        /// Copy.
        COPY = 0x19, "Copy";
        /// Fabrics commands.
        FABRICS = 0x7f, "Fabrics";
        /// Write Extents, vendor specific ([`ExtentsCommand`](crate::nvme::ExtentsCommand)).
        WRITE_EXTENTS = 0x81, "Write Extents";
        /// Read Extents, vendor specific ([`ExtentsCommand`](crate::nvme::ExtentsCommand)).
        READ_EXTENTS = 0x83, "Read Extents";
    }
}

impl IoOpcode {
    /// LBCC of the effects log: the command may change the content of logical blocks.
    pub const fn changes_data(self) -> bool {
        matches!(
            self,
            Self::WRITE
                | Self::WRITE_UNCORRECTABLE
                | Self::WRITE_ZEROES
                | Self::DATASET_MANAGEMENT
                | Self::COPY
                | Self::WRITE_EXTENTS
        )
    }
}

code_names! {
    /// Type of a Fabrics command: byte 4 of a command with opcode 7Fh. `[NVMe Base 2.0 §6]`
    FabricsType {
        /// Property Set.
        PROPERTY_SET = 0x00, "Property Set";
        /// Connect.
        CONNECT = 0x01, "Connect";
        /// Property Get.
        PROPERTY_GET = 0x04, "Property Get";
        /// Authentication Send.
        AUTHENTICATION_SEND = 0x05, "Authentication Send";
        /// Authentication Receive.
        AUTHENTICATION_RECEIVE = 0x06, "Authentication Receive";
        /// Disconnect.
        DISCONNECT = 0x08, "Disconnect";
    }
}
