//! Fabrics commands by type. `[NVMe Base 2.0 §6]`

use crate::fabrics::{AuthenticationTransfer, Connect, Disconnect, PropertyGet, PropertySet};
use crate::nvme::{Command, FabricsType, Status};

/// A Fabrics command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FabricsCommand {
    /// Connect.
    Connect(Connect),
    /// Authentication Send.
    AuthenticationSend(AuthenticationTransfer),
    /// Authentication Receive.
    AuthenticationReceive(AuthenticationTransfer),
    /// Property Get.
    PropertyGet(PropertyGet),
    /// Property Set.
    PropertySet(PropertySet),
    /// Disconnect.
    Disconnect(Disconnect),
}

impl FabricsCommand {
    /// Parses a command with the Fabrics opcode.
    ///
    /// # Errors
    ///
    /// Invalid Command Opcode for an unsupported type, Invalid Field for an invalid field value.
    pub fn parse(command: &Command) -> Result<Self, Status> {
        if !command.is_fabrics() {
            return Err(Status::INVALID_OPCODE.with_dnr());
        }
        Ok(match command.fabrics_type() {
            FabricsType::CONNECT => Self::Connect(Connect::parse(command)),
            FabricsType::AUTHENTICATION_SEND => {
                Self::AuthenticationSend(AuthenticationTransfer::parse(command))
            }
            FabricsType::AUTHENTICATION_RECEIVE => {
                Self::AuthenticationReceive(AuthenticationTransfer::parse(command))
            }
            FabricsType::PROPERTY_GET => Self::PropertyGet(PropertyGet::parse(command)?),
            FabricsType::PROPERTY_SET => Self::PropertySet(PropertySet::parse(command)?),
            FabricsType::DISCONNECT => Self::Disconnect(Disconnect::parse(command)),
            _ => return Err(Status::INVALID_OPCODE.with_dnr()),
        })
    }

    /// Encodes the command. The caller sets the data pointer, if there is data.
    pub fn encode(&self, cid: u16) -> Command {
        match self {
            Self::Connect(connect) => connect.encode(cid),
            Self::AuthenticationSend(send) => send.encode(FabricsType::AUTHENTICATION_SEND, cid),
            Self::AuthenticationReceive(receive) => {
                receive.encode(FabricsType::AUTHENTICATION_RECEIVE, cid)
            }
            Self::PropertyGet(get) => get.encode(cid),
            Self::PropertySet(set) => set.encode(cid),
            Self::Disconnect(disconnect) => disconnect.encode(cid),
        }
    }
}
