//! Admin commands: their kinds, and the small commands.
//!
//! `[NVMe Base 2.0 §5]`. Identify and Get/Set Features are in separate files.

use crate::bytes::{byte_of, high16, join16, low16};
use crate::nvme::command::Command;
use crate::nvme::feature::{GetFeatures, SetFeatures};
use crate::nvme::identify::Identify;
use crate::nvme::log_page::LogPageId;
use crate::nvme::opcode::AdminOpcode;
use crate::nvme::status::Status;
use crate::nvme::vendor::EndController;

/// A command on the admin queue, other than a Fabrics command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdminCommand {
    /// Identify.
    Identify(Identify),
    /// Get Log Page.
    GetLogPage(GetLogPage),
    /// Get Features.
    GetFeatures(GetFeatures),
    /// Set Features.
    SetFeatures(SetFeatures),
    /// Abort.
    Abort(Abort),
    /// Asynchronous Event Request: completes when an event occurs.
    AsyncEventRequest,
    /// Keep Alive: restarts the keep-alive timer.
    KeepAlive,
    /// End Controller, a vendor-specific command.
    EndController(EndController),
}

impl AdminCommand {
    /// Parses an admin command other than a Fabrics command.
    ///
    /// # Errors
    ///
    /// Invalid Field for a fused command, Invalid Command Opcode for an unsupported command.
    pub fn parse(command: &Command) -> Result<Self, Status> {
        if command.fuse() != 0 {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        Ok(match AdminOpcode(command.opcode()) {
            AdminOpcode::IDENTIFY => Self::Identify(Identify::parse(command)),
            AdminOpcode::GET_LOG_PAGE => Self::GetLogPage(GetLogPage::parse(command)),
            AdminOpcode::GET_FEATURES => Self::GetFeatures(GetFeatures::parse(command)),
            AdminOpcode::SET_FEATURES => Self::SetFeatures(SetFeatures::parse(command)),
            AdminOpcode::ABORT => Self::Abort(Abort::parse(command)),
            AdminOpcode::ASYNC_EVENT_REQUEST => Self::AsyncEventRequest,
            AdminOpcode::KEEP_ALIVE => Self::KeepAlive,
            AdminOpcode::END_CONTROLLER => Self::EndController(EndController::parse(command)),
            _ => return Err(Status::INVALID_OPCODE.with_dnr()),
        })
    }

    /// Encodes the command; the caller sets its data pointer.
    pub fn encode(&self, cid: u16) -> Command {
        match self {
            Self::Identify(identify) => identify.encode(cid),
            Self::GetLogPage(get) => get.encode(cid),
            Self::GetFeatures(get) => get.encode(cid),
            Self::SetFeatures(set) => set.encode(cid),
            Self::Abort(abort) => abort.encode(cid),
            Self::AsyncEventRequest => Command::new(AdminOpcode::ASYNC_EVENT_REQUEST.0, cid),
            Self::KeepAlive => Command::new(AdminOpcode::KEEP_ALIVE.0, cid),
            Self::EndController(end) => end.encode(cid),
        }
    }
}

/// Get Log Page. `[NVMe Base 2.0 §5.16]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GetLogPage {
    /// NSID: 0 or the broadcast value for a page of controller scope.
    pub nsid: u32,
    /// LID.
    pub log_page: LogPageId,
    /// NUMD, zero-based: requested dwords.
    pub dwords: u32,
    /// LPO: byte offset into the page (a multiple of 4), or an index if `offset_is_index`.
    pub offset: u64,
    /// OT: the offset is an index into a list of structures.
    pub offset_is_index: bool,
    /// RAE: reading the page does not clear its asynchronous event.
    pub retain_async_event: bool,
    /// LSP, 0 to 127: depends on the page.
    pub specific_field: u8,
    /// LSI: depends on the page.
    pub specific_id: u16,
    /// CSI: an I/O command set.
    pub command_set: u8,
    /// UUID Index, 0 to 127.
    pub uuid_index: u8,
}

impl GetLogPage {
    /// A command that reads `bytes` of a page from byte `offset`.
    ///
    /// # Panics
    ///
    /// If `bytes` is 0 or not a multiple of 4.
    pub const fn new(log_page: LogPageId, nsid: u32, offset: u64, bytes: u32) -> Self {
        assert!(bytes > 0);
        assert!(bytes.is_multiple_of(4));
        Self {
            nsid,
            log_page,
            dwords: bytes / 4 - 1,
            offset,
            offset_is_index: false,
            retain_async_event: false,
            specific_field: 0,
            specific_id: 0,
            command_set: 0,
            uuid_index: 0,
        }
    }

    /// Returns the requested bytes, from 4 to 16 GiB.
    pub const fn data_bytes(&self) -> u64 {
        (self.dwords as u64 + 1) * 4
    }

    /// Parses the command dwords.
    pub fn parse(command: &Command) -> Self {
        let (cdw10, cdw11, cdw14) = (command.cdw(10), command.cdw(11), command.cdw(14));
        Self {
            nsid: command.nsid(),
            log_page: LogPageId(byte_of(cdw10, 0)),
            dwords: join16(high16(cdw10), low16(cdw11)),
            offset: command.cdw64(12),
            offset_is_index: cdw14 & (1 << 23) != 0,
            retain_async_event: cdw10 & (1 << 15) != 0,
            specific_field: byte_of(cdw10, 8) & 0x7f,
            specific_id: high16(cdw11),
            command_set: byte_of(cdw14, 24),
            uuid_index: byte_of(cdw14, 0) & 0x7f,
        }
    }

    /// Encodes the command; the caller sets its data pointer.
    pub fn encode(&self, cid: u16) -> Command {
        let mut command = Command::new(AdminOpcode::GET_LOG_PAGE.0, cid);
        command.set_nsid(self.nsid);
        let low = u16::from(self.log_page.0)
            | (u16::from(self.specific_field & 0x7f) << 8)
            | (u16::from(self.retain_async_event) << 15);
        command.set_cdw(10, join16(low, low16(self.dwords)));
        command.set_cdw(11, join16(high16(self.dwords), self.specific_id));
        command.set_cdw64(12, self.offset);
        command.set_cdw(
            14,
            u32::from(self.uuid_index & 0x7f)
                | (u32::from(self.offset_is_index) << 23)
                | (u32::from(self.command_set) << 24),
        );
        command
    }
}

/// Abort. `[NVMe Base 2.0 §5.1]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Abort {
    /// SQID: queue of the command to abort.
    pub sq_id: u16,
    /// CID of the command to abort.
    pub cid: u16,
}

/// Bit 0 of dword 0 of an Abort's completion: the command was not aborted.
pub const ABORT_NOT_ABORTED: u32 = 1 << 0;

impl Abort {
    /// Parses the dword.
    pub fn parse(command: &Command) -> Self {
        Self {
            sq_id: low16(command.cdw(10)),
            cid: high16(command.cdw(10)),
        }
    }

    /// Encodes the command.
    pub fn encode(&self, cid: u16) -> Command {
        let mut command = Command::new(AdminOpcode::ABORT.0, cid);
        command.set_cdw(10, join16(self.sq_id, self.cid));
        command
    }
}
