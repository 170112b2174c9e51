//! Authentication Send and Authentication Receive: messages of an authentication protocol. `[NVMe
//! Base 2.0 §6.1, §6.2]`

use crate::bytes::byte_of;
use crate::nvme::{Command, FabricsType};

/// The fields that Authentication Send and Authentication Receive have in common. The message is
/// their data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuthenticationTransfer {
    /// SECP: the security protocol.
    pub protocol: u8,
    /// SPSP0, then SPSP1.
    pub specific: [u8; 2],
    /// Bytes of the data: TL of Authentication Send, AL of Authentication Receive.
    pub length: u32,
}

impl AuthenticationTransfer {
    /// SECP of the authentication protocols of NVMe.
    pub const NVME: u8 = 0xe9;
    /// SPSP0 and SPSP1 of an authentication message.
    pub const MESSAGE: [u8; 2] = [1, 1];

    /// The transfer of an authentication message with `length` bytes of data.
    #[must_use]
    pub const fn message(length: u32) -> Self {
        Self {
            protocol: Self::NVME,
            specific: Self::MESSAGE,
            length,
        }
    }

    /// Parses the command dwords.
    pub fn parse(command: &Command) -> Self {
        let cdw10 = command.cdw(10);
        Self {
            protocol: byte_of(cdw10, 24),
            specific: [byte_of(cdw10, 8), byte_of(cdw10, 16)],
            length: command.cdw(11),
        }
    }

    /// Encodes a command of this type. The caller sets its data pointer.
    pub fn encode(&self, kind: FabricsType, cid: u16) -> Command {
        let [spsp0, spsp1] = self.specific;
        let mut command = Command::new_fabrics(kind, cid);
        command.set_cdw(10, u32::from_le_bytes([0, spsp0, spsp1, self.protocol]));
        command.set_cdw(11, self.length);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_where_the_specification_has_it() {
        let transfer = AuthenticationTransfer::message(0x1234);
        let command = transfer.encode(FabricsType::AUTHENTICATION_SEND, 7);
        assert_eq!(command.fabrics_type(), FabricsType::AUTHENTICATION_SEND);
        assert_eq!(command.cdw(10), 0xe901_0100);
        assert_eq!(command.cdw(11), 0x1234);
        assert_eq!(AuthenticationTransfer::parse(&command), transfer);
    }
}
