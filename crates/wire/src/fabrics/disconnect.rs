//! Disconnect: deletes an I/O queue. `[NVMe Base 2.0 §6.4]`

use crate::bytes::low16;
use crate::nvme::{Command, FabricsType};

/// The Disconnect command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Disconnect {
    /// RECFMT: 0, the only format.
    pub record_format: u16,
}

impl Disconnect {
    /// Parses the dword.
    pub fn parse(command: &Command) -> Self {
        Self {
            record_format: low16(command.cdw(10)),
        }
    }

    /// Encodes the command.
    pub fn encode(&self, cid: u16) -> Command {
        let mut command = Command::new_fabrics(FabricsType::DISCONNECT, cid);
        command.set_cdw(10, u32::from(self.record_format));
        command
    }
}
