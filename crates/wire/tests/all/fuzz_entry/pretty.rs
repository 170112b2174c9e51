//! One line of text per PDU, for test failures and golden vectors.
//!
//! ```text
//! CapsuleCmd cid=0x0005 Read nsid=1 slba=0x1000 blocks=8 sgl=transport/4096
//! C2HData cid=0x0005 offset=0 length=4096 last success
//! ```
//!
//! Allocates nothing: a [`PduLine`] borrows the header and implements `Display`. Text from a peer
//! (a name) is never part of a line, so a line is always plain ASCII.

use core::fmt;

use testing::IoCommand;
use wire::fabrics::FabricsCommand;
use wire::nvme::{AdminCommand, AdminOpcode, Command, DataPointer, IoOpcode, LbaCommand};
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::{C2hData, CapsuleResp, H2cData, IcReq, IcResp, PduHeader, R2t, TermReq};

/// Kind of queue of a connection, which determines the meaning of opcodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Queue {
    /// The admin queue.
    Admin,
    /// An I/O queue.
    Io,
}

/// A PDU as one line of text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PduLine<'a> {
    header: &'a PduHeader,
    queue: Queue,
}

/// Returns the line of a PDU on this queue.
pub(crate) const fn line(header: &PduHeader, queue: Queue) -> PduLine<'_> {
    PduLine { header, queue }
}

impl fmt::Display for PduLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.header.pdu_type().name())?;
        match self.header {
            PduHeader::CapsuleCmd(pdu) => command(f, &pdu.command, self.queue),
            PduHeader::CapsuleResp(pdu) => completion(f, pdu),
            PduHeader::H2cData(pdu) => h2c_data(f, pdu),
            PduHeader::C2hData(pdu) => c2h_data(f, pdu),
            PduHeader::R2t(pdu) => r2t(f, pdu),
            PduHeader::IcReq(pdu) => ic_req(f, pdu),
            PduHeader::IcResp(pdu) => ic_resp(f, pdu),
            PduHeader::H2cTermReq(pdu) | PduHeader::C2hTermReq(pdu) => term_req(f, pdu),
        }
    }
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn ic_req(f: &mut fmt::Formatter<'_>, pdu: &IcReq) -> fmt::Result {
    write!(
        f,
        " align={} hdgst={} ddgst={} max_r2t={}",
        pdu.host_alignment.bytes(),
        on_off(pdu.header_digest),
        on_off(pdu.data_digest),
        u64::from(pdu.max_r2t) + 1,
    )
}

fn ic_resp(f: &mut fmt::Formatter<'_>, pdu: &IcResp) -> fmt::Result {
    write!(
        f,
        " align={} hdgst={} ddgst={} max_h2c_data={}",
        pdu.controller_alignment.bytes(),
        on_off(pdu.header_digest),
        on_off(pdu.data_digest),
        pdu.max_h2c_data,
    )
}

fn h2c_data(f: &mut fmt::Formatter<'_>, pdu: &H2cData) -> fmt::Result {
    write!(
        f,
        " cid={:#06x} ttag={:#06x} offset={} length={}{}",
        pdu.command_id,
        pdu.transfer_tag,
        pdu.data_offset,
        pdu.data_length,
        if pdu.last { " last" } else { "" },
    )
}

fn c2h_data(f: &mut fmt::Formatter<'_>, pdu: &C2hData) -> fmt::Result {
    write!(
        f,
        " cid={:#06x} offset={} length={}{}",
        pdu.command_id,
        pdu.data_offset,
        pdu.data_length,
        match pdu.progress {
            C2hProgress::More => "",
            C2hProgress::Last => " last",
            C2hProgress::LastAndSuccess => " last success",
        },
    )
}

fn r2t(f: &mut fmt::Formatter<'_>, pdu: &R2t) -> fmt::Result {
    write!(
        f,
        " cid={:#06x} ttag={:#06x} offset={} length={}",
        pdu.command_id, pdu.transfer_tag, pdu.offset, pdu.length
    )
}

fn term_req(f: &mut fmt::Formatter<'_>, pdu: &TermReq) -> fmt::Result {
    write!(f, " {} information={:#x}", pdu.status, pdu.information)
}

fn completion(f: &mut fmt::Formatter<'_>, pdu: &CapsuleResp) -> fmt::Result {
    let completion = &pdu.completion;
    write!(
        f,
        " cid={:#06x} sqhd={} result={:#x} {}",
        completion.cid, completion.sq_head, completion.result, completion.status
    )
}

fn command(f: &mut fmt::Formatter<'_>, command: &Command, queue: Queue) -> fmt::Result {
    write!(f, " cid={:#06x} ", command.cid())?;
    match (command.is_fabrics(), queue) {
        (true, _) => fabrics_command(f, command)?,
        (false, Queue::Admin) => admin_command(f, command)?,
        (false, Queue::Io) => io_command(f, command)?,
    }
    match command.data_pointer() {
        Ok(DataPointer::Transport { length: 0 }) => Ok(()),
        Ok(DataPointer::Transport { length }) => write!(f, " sgl=transport/{length}"),
        Ok(DataPointer::InCapsule { offset, length }) => {
            write!(f, " sgl=capsule+{offset}/{length}")
        }
        Err(_) => write!(
            f,
            " psdt={} sgl={:#04x}",
            command.psdt(),
            command.sgl().identifier
        ),
    }
}

fn fabrics_command(f: &mut fmt::Formatter<'_>, command: &Command) -> fmt::Result {
    write!(f, "{}", command.fabrics_type())?;
    match FabricsCommand::parse(command) {
        Ok(FabricsCommand::Connect(connect)) => write!(
            f,
            " qid={} sqsize={} cattr={:#04x} kato={}",
            connect.queue_id, connect.sq_size, connect.attributes.0, connect.keep_alive_timeout_ms
        ),
        Ok(
            FabricsCommand::AuthenticationSend(transfer)
            | FabricsCommand::AuthenticationReceive(transfer),
        ) => write!(
            f,
            " secp={:#x} length={}",
            transfer.protocol, transfer.length
        ),
        Ok(FabricsCommand::PropertyGet(get)) => write!(f, " {}", get.property),
        Ok(FabricsCommand::PropertySet(set)) => write!(f, " {}={:#x}", set.property, set.value),
        Ok(FabricsCommand::Disconnect(_)) | Err(_) => Ok(()),
    }
}

fn admin_command(f: &mut fmt::Formatter<'_>, command: &Command) -> fmt::Result {
    write!(f, "{}", AdminOpcode(command.opcode()))?;
    match AdminCommand::parse(command) {
        Ok(AdminCommand::Identify(identify)) => write!(
            f,
            " nsid={:#x} cns={:#04x} cntid={:#x} csi={}",
            identify.nsid, identify.cns.0, identify.controller_id, identify.command_set
        ),
        Ok(AdminCommand::GetLogPage(get)) => write!(
            f,
            " nsid={:#x} lid={:#04x} offset={} bytes={}{}",
            get.nsid,
            get.log_page.0,
            get.offset,
            get.data_bytes(),
            if get.retain_async_event { " rae" } else { "" },
        ),
        Ok(AdminCommand::GetFeatures(get)) => {
            write!(
                f,
                " fid={:#04x} sel={} cdw11={:#x}",
                get.feature.0, get.select.0, get.dword11
            )
        }
        Ok(AdminCommand::SetFeatures(set)) => {
            write!(f, " fid={:#04x} cdw11={:#x}", set.feature.0, set.dword11())
        }
        Ok(AdminCommand::Abort(abort)) => {
            write!(f, " sqid={} abort_cid={:#06x}", abort.sq_id, abort.cid)
        }
        Ok(AdminCommand::EndController(end)) => write!(f, " cntlid={:#x}", end.controller_id),
        Ok(AdminCommand::AsyncEventRequest | AdminCommand::KeepAlive) | Err(_) => Ok(()),
    }
}

fn io_command(f: &mut fmt::Formatter<'_>, command: &Command) -> fmt::Result {
    write!(f, "{} nsid={}", IoOpcode(command.opcode()), command.nsid())?;
    match IoCommand::parse(command) {
        Ok(
            IoCommand::Read(lba)
            | IoCommand::Write(lba)
            | IoCommand::Compare(lba)
            | IoCommand::Verify(lba)
            | IoCommand::WriteZeroes(lba),
        ) => blocks(f, &lba),
        Ok(IoCommand::DatasetManagement(dsm)) => write!(
            f,
            " ranges={}{}",
            dsm.ranges,
            if dsm.deallocate { " deallocate" } else { "" }
        ),
        Ok(IoCommand::ReadExtents(command) | IoCommand::WriteExtents(command)) => write!(
            f,
            " extents={} blocks={}{}{}",
            command.extents,
            command.blocks,
            if command.fua { " fua" } else { "" },
            if command.outcomes { " outcomes" } else { "" },
        ),
        Ok(IoCommand::Flush { .. }) | Err(_) => Ok(()),
    }
}

fn blocks(f: &mut fmt::Formatter<'_>, lba: &LbaCommand) -> fmt::Result {
    write!(
        f,
        " slba={:#x} blocks={}{}{}",
        lba.slba,
        lba.blocks,
        if lba.control.fua() { " fua" } else { "" },
        if lba.control.limited_retry() {
            " lr"
        } else {
            ""
        },
    )
}
