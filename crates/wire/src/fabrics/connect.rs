//! Connect: creates a queue, and with the admin queue an association. `[NVMe Base 2.0 §6.3]`

use crate::bytes::{byte_of, high16, join16, low16};
use crate::layout::layout;
use crate::nvme::{Command, FabricsType, Nqn, NqnError};

/// The Connect command. Its data is [`ConnectData`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Connect {
    /// RECFMT: 0, the only format.
    pub record_format: u16,
    /// QID: 0 for the admin queue.
    pub queue_id: u16,
    /// SQSIZE, zero-based: entries of the queue. At least 1; on the admin queue at least 31.
    pub sq_size: u16,
    /// CATTR.
    pub attributes: ConnectAttributes,
    /// KATO, milliseconds: keep-alive timeout, on the admin queue; 0 for none.
    pub keep_alive_timeout_ms: u32,
}

/// CATTR. `[NVMe Base 2.0 §6.3]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ConnectAttributes(pub u8);

impl ConnectAttributes {
    /// Bit 2: the host disables SQ flow control; SQHD is then reserved.
    pub const DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;

    /// Returns the attributes with bits 1:0 (priority class) replaced.
    #[must_use]
    pub const fn with_priority_class(self, priority: u8) -> Self {
        Self(self.0 & !0b11 | priority & 0b11)
    }

    /// Returns bit 2: the host disables SQ flow control.
    pub const fn disables_sq_flow_control(self) -> bool {
        self.0 & Self::DISABLE_SQ_FLOW_CONTROL != 0
    }
}

impl Connect {
    /// SQHD of completions on a queue without SQ flow control. `[NVMe Base 2.0 §6.3]`
    pub const SQHD_WITHOUT_FLOW_CONTROL: u16 = 0xffff;

    /// Offsets in the command, for [`InvalidParameter::in_command`].
    pub const RECFMT_OFFSET: u16 = 40;
    /// Offset of QID.
    pub const QID_OFFSET: u16 = 42;
    /// Offset of SQSIZE.
    pub const SQSIZE_OFFSET: u16 = 44;

    /// Parses the command dwords.
    pub fn parse(command: &Command) -> Self {
        let (cdw10, cdw11) = (command.cdw(10), command.cdw(11));
        Self {
            record_format: low16(cdw10),
            queue_id: high16(cdw10),
            sq_size: low16(cdw11),
            attributes: ConnectAttributes(byte_of(cdw11, 16)),
            keep_alive_timeout_ms: command.cdw(12),
        }
    }

    /// The command. Its data pointer is for the caller to set: in-capsule, 1024 bytes.
    pub fn encode(&self, cid: u16) -> Command {
        let mut command = Command::new_fabrics(FabricsType::CONNECT, cid);
        command.set_cdw(10, join16(self.record_format, self.queue_id));
        command.set_cdw(11, join16(self.sq_size, u16::from(self.attributes.0)));
        command.set_cdw(12, self.keep_alive_timeout_ms);
        command
    }
}

layout! {
    /// The data of Connect. `[NVMe Base 2.0 §6.3]`
    pub struct ConnectData: 1024 {
        /// HOSTID.
        host_id: [u8; 16] = 0,
        /// CNTLID: FFFFh requests any controller; on I/O queues the association's own.
        cntlid: u16 = 16,
        /// SUBNQN, padded with zeroes.
        subnqn_field: [u8; 256] = 256,
        /// HOSTNQN, padded with zeroes.
        hostnqn_field: [u8; 256] = 512,
    }
}

impl ConnectData {
    /// CNTLID: the subsystem chooses (dynamic controller model).
    pub const CNTLID_DYNAMIC: u16 = 0xffff;
    /// CNTLID: any controller of the static controller model.
    pub const CNTLID_STATIC_ANY: u16 = 0xfffe;

    /// Offset of HOSTID, for [`InvalidParameter::in_data`].
    pub const HOSTID_OFFSET: u16 = 0;
    /// Offset of CNTLID.
    pub const CNTLID_OFFSET: u16 = 16;
    /// Offset of SUBNQN.
    pub const SUBNQN_OFFSET: u16 = 256;
    /// Offset of HOSTNQN.
    pub const HOSTNQN_OFFSET: u16 = 512;

    /// Creates the data from these names.
    pub fn new(host_id: [u8; 16], cntlid: u16, subnqn: &Nqn, hostnqn: &Nqn) -> Self {
        Self {
            host_id,
            cntlid,
            subnqn_field: subnqn.to_field(),
            hostnqn_field: hostnqn.to_field(),
        }
    }

    /// SUBNQN.
    ///
    /// # Errors
    ///
    /// The field has no valid name; answer with [`InvalidParameter::in_data`].
    pub fn subnqn(&self) -> Result<Nqn, NqnError> {
        Nqn::from_field(&self.subnqn_field)
    }

    /// HOSTNQN.
    ///
    /// # Errors
    ///
    /// The field has no valid name; answer with [`InvalidParameter::in_data`].
    pub fn hostnqn(&self) -> Result<Nqn, NqnError> {
        Nqn::from_field(&self.hostnqn_field)
    }
}

/// Dword 0 of the completion of a successful Connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectResponse {
    /// CNTLID of the controller.
    pub cntlid: u16,
    /// AUTHREQ: required authentication; 0 for none.
    pub authentication: u16,
}

impl ConnectResponse {
    /// AUTHREQ, ATR: the host has to authenticate the queue before it sends other commands.
    pub const AUTHENTICATION_REQUIRED: u16 = 1 << 1;
    /// AUTHREQ, ASCR: the host has to establish a secure channel by authentication.
    pub const SECURE_CHANNEL_REQUIRED: u16 = 1 << 2;

    /// Parses the dword.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            cntlid: low16(dword),
            authentication: high16(dword),
        }
    }

    /// Encodes the dword.
    pub const fn to_dword(self) -> u32 {
        join16(self.cntlid, self.authentication)
    }
}

/// Dword 0 of the completion of a Connect with status Connect Invalid Parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InvalidParameter {
    /// IPO: offset of the first invalid parameter.
    pub offset: u16,
    /// IATTR bit 0: the offset is into the data, not into the command.
    pub is_in_data: bool,
}

impl InvalidParameter {
    /// The invalid parameter at `offset` of the command.
    pub const fn in_command(offset: u16) -> Self {
        Self {
            offset,
            is_in_data: false,
        }
    }

    /// The invalid parameter at `offset` of the data.
    pub const fn in_data(offset: u16) -> Self {
        Self {
            offset,
            is_in_data: true,
        }
    }

    /// Parses the dword.
    pub const fn from_dword(dword: u32) -> Self {
        Self {
            offset: low16(dword),
            is_in_data: dword & (1 << 16) != 0,
        }
    }

    /// Encodes the dword.
    pub const fn to_dword(self) -> u32 {
        join16(self.offset, if self.is_in_data { 1 } else { 0 })
    }
}

/// The specification's name of the parameter, or its offset if it has no name.
impl core::fmt::Display for InvalidParameter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match (self.is_in_data, self.offset) {
            (false, Connect::QID_OFFSET) => "QID",
            (false, Connect::SQSIZE_OFFSET) => "SQSIZE",
            (true, ConnectData::HOSTID_OFFSET) => "HOSTID",
            (true, ConnectData::CNTLID_OFFSET) => "CNTLID",
            (true, ConnectData::SUBNQN_OFFSET) => "SUBNQN",
            (true, ConnectData::HOSTNQN_OFFSET) => "HOSTNQN",
            (false, offset) => return write!(f, "byte {offset} of the command"),
            (true, offset) => return write!(f, "byte {offset} of the data"),
        })
    }
}

#[cfg(test)]
mod tests;
