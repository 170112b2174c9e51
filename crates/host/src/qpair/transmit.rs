//! The sending half of a connection: what is ready leaves in one send, and while that is under way
//! the next one fills.

use super::connection::Qpair;
use crate::command::exchange::{Direction, Work};
use crate::command::table::{CommandTable, SlotState};
use crate::limits::{SEND_HEADER_BYTES, SEND_SEGMENTS};
use base::mutation::{self, Mutation};
use reactor::{IoSlice, SendList};
use std::collections::VecDeque;
use wire::nvme::SglDescriptor;
use wire::nvme::vendor::Barrier;
use wire::tcp::digest::crc32c_append;
use wire::tcp::limits::{DIGEST_BYTES, PREFIX_BYTES_MAX, TERM_REQ_BYTES_MAX};
use wire::tcp::{CapsuleCmd, H2cData, Role, TermReq};

/// Ranges that one PDU takes in a send list: header, payload, digest.
const RANGES_PER_PDU: usize = 3;

/// The send lists and what waits for room in them.
#[derive(Debug)]
pub(super) struct Transmission {
    /// Fills up; away only for a moment between two sends.
    filling: Box<SendList>,
    /// The other list, while no send has it.
    spare: Option<Box<SendList>>,
    /// Commands that found no room, in order.
    pub(super) queue: VecDeque<u16>,
    /// Commands whose R2Ts are not fulfilled.
    pub(super) transfers: VecDeque<u16>,
    /// Commands that were answered while a send still held their data.
    answered: Vec<u16>,
    /// A termination request leaves after the send under way, and nothing after it.
    last: bool,
}

impl Transmission {
    pub(super) fn new(depth: u16) -> Self {
        let list = || Box::new(SendList::with_capacity(SEND_HEADER_BYTES, SEND_SEGMENTS));
        let depth = usize::from(depth);
        Self {
            filling: list(),
            spare: Some(list()),
            queue: VecDeque::with_capacity(depth),
            transfers: VecDeque::with_capacity(depth),
            answered: Vec::with_capacity(depth),
            last: false,
        }
    }

    /// Bytes of a PDU that is all header.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.filling.push_header(bytes);
    }

    /// Drops what was gathered and puts a termination request in its place.
    pub(super) fn terminate(&mut self, request: &TermReq, header: &[u8]) {
        self.filling.clear();
        let mut out = [0; TERM_REQ_BYTES_MAX];
        let length = request.encode(Role::Host, header, &mut out);
        self.filling.push_header(&out[..length]);
        self.last = true;
    }

    /// Whether the list that fills is empty.
    pub(super) fn has_nothing_to_send(&self) -> bool {
        self.filling.is_empty()
    }

    /// Whether there is something to send, and no send is under way.
    pub(super) fn may_send(&self) -> bool {
        !self.filling.is_empty() && self.spare.is_some()
    }

    /// The list to send now, if there is something in it and no send is under way.
    pub(super) fn next_send(&mut self) -> Option<Box<SendList>> {
        if self.filling.is_empty() {
            return None;
        }
        let empty = self.spare.take()?;
        Some(std::mem::replace(&mut self.filling, empty))
    }

    /// A send is over: its list is empty and spare again.
    pub(super) fn sent(&mut self, mut list: Box<SendList>) {
        list.clear();
        debug_assert!(self.spare.is_none(), "one send at a time");
        self.spare = Some(list);
    }

    /// Whether nothing is being sent or waits to be.
    pub(super) fn is_idle(&self) -> bool {
        self.spare.is_some() && self.filling.is_empty()
    }

    /// A command was answered, but its data is still in a send list.
    pub(super) fn defer_answer(&mut self, index: u16) {
        self.answered.push(index);
    }

    /// After a send: ends the answered commands whose data is free now.
    pub(super) fn finish_answered(&mut self, table: &mut CommandTable) {
        self.answered.retain(|&index| {
            let Some(completion) = table.early_answer(index) else {
                return false;
            };
            !table.answer(index, completion)
        });
    }

    /// The connection is closed; both lists are home.
    pub(super) fn reset(&mut self) {
        debug_assert!(self.spare.is_some(), "a closed connection sends nothing");
        self.filling.clear();
        self.queue.clear();
        self.transfers.clear();
        self.answered.clear();
        self.last = false;
    }

    fn fits(&self) -> bool {
        !self.last
            && self
                .filling
                .fits(PREFIX_BYTES_MAX + DIGEST_BYTES, RANGES_PER_PDU)
    }
}

impl Qpair {
    /// Puts the command of a slot into the filling list; false when it does not fit.
    pub(super) fn encode_command(&mut self, index: u16) -> bool {
        if !self.tx.fits() {
            return false;
        }
        let cid = self.table.cid(index);
        let slot = self.table.slot(index);
        let length = slot.data_bytes;
        let exchange = slot
            .exchange
            .as_mut()
            .expect("queued commands are occupied");
        if let Some(doorbell) = &mut self.doorbell {
            if !doorbell.takes(exchange) {
                return false;
            }
            doorbell.loaded(exchange);
        }
        let mut command = match &exchange.work {
            Work::Admin(command) => **command,
            Work::Block(request) => request.command(),
            Work::Barrier(nsid) => Barrier { nsid: *nsid }.encode(0),
        };
        command.set_cid(cid);
        let mut in_capsule = None;
        if exchange.direction == Direction::Out {
            let data = exchange.data.take().expect("a command that sends has data");
            let data = data.into_shared();
            if length <= self.in_capsule_bytes {
                in_capsule = data.duplicate(0, data.len());
            }
            exchange.data = Some(data);
        }
        command.set_sgl(if in_capsule.is_some() {
            SglDescriptor::in_capsule(0, length)
        } else {
            SglDescriptor::transport(length)
        });
        let sent = if in_capsule.is_some() { length } else { 0 };
        let mut out = [0; PREFIX_BYTES_MAX];
        let capsule = CapsuleCmd { command };
        let bytes = capsule.encode(&self.format, sent, &mut out);
        slot.state = SlotState::Outstanding;
        // Nothing of it may be asked for again.
        slot.received = if exchange.direction == Direction::Out {
            sent
        } else {
            0
        };
        self.tx.filling.push_header(&out[..bytes]);
        if let Some(data) = in_capsule {
            self.push_data(data);
        }
        true
    }

    /// Puts the command of a slot into the filling list with these few bytes of in-capsule data.
    pub(super) fn encode_capsule_with(&mut self, index: u16, data: &[u8]) {
        let cid = self.table.cid(index);
        let slot = self.table.slot(index);
        slot.state = SlotState::Outstanding;
        let exchange = slot
            .exchange
            .as_mut()
            .expect("queued commands are occupied");
        let Work::Admin(command) = &mut exchange.work else {
            unreachable!("only Connect is sent with bytes of its own");
        };
        command.set_cid(cid);
        let mut out = [0; PREFIX_BYTES_MAX];
        let capsule = CapsuleCmd { command: **command };
        let length = u32::try_from(data.len()).expect("a few bytes");
        let bytes = capsule.encode(&self.format, length, &mut out);
        self.tx.filling.push_header(&out[..bytes]);
        self.tx.filling.push_header(data);
        if self.format.data_digest {
            let digest = wire::tcp::digest::digest_bytes(data);
            self.tx.filling.push_header(&digest);
        }
    }

    /// Payload and its digest.
    fn push_data(&mut self, data: IoSlice) {
        let digest = self.format.data_digest.then(|| digest_of(&data));
        self.tx.filling.push_payload(data);
        if let Some(digest) = digest {
            self.tx.filling.push_header(&digest);
        }
    }

    /// Fills the list with what waited: first data that the controller asked for, because it holds
    /// buffers for it, then commands.
    pub(super) fn encode_backlog(&mut self) {
        while let Some(&index) = self.tx.transfers.front() {
            if !self.encode_transfers(index) {
                return;
            }
            self.tx.transfers.pop_front();
        }
        while let Some(&index) = self.tx.queue.front() {
            if !self.encode_command(index) {
                return;
            }
            self.tx.queue.pop_front();
        }
    }

    /// Puts the data that R2Ts of a slot asked for into the filling list, at most MAXH2CDATA in a
    /// PDU and no more than a caravan in the list; false when not all of it fits.
    /// `[NVMe-TCP 1.0 §3.3.2.2]`
    pub(super) fn encode_transfers(&mut self, index: u16) -> bool {
        let cid = self.table.cid(index);
        loop {
            let fits = self.tx.fits();
            let doorbell = self.doorbell.as_ref();
            let room = doorbell.map_or(u32::MAX, |doorbell| doorbell.room_for_data());
            let mut max = self.max_h2c_data.min(room);
            if mutation::active(Mutation::MaxH2cDataIgnored) {
                max = room;
            }
            let Some(transfer) = self.table.transfer(index) else {
                return true;
            };
            if !fits || room == 0 {
                return false;
            }
            let length = transfer.left.min(max);
            let pdu = H2cData {
                command_id: cid,
                transfer_tag: transfer.tag,
                data_offset: transfer.offset,
                data_length: length,
                last: length == transfer.left,
            };
            transfer.offset += length;
            transfer.left -= length;
            if transfer.left == 0 {
                self.table.pop_transfer(index);
            }
            let data = self
                .table
                .slot(index)
                .exchange
                .as_ref()
                .and_then(|exchange| {
                    let data = exchange.data.as_ref()?;
                    let from = if mutation::active(Mutation::TransferFromStart) {
                        0
                    } else {
                        pdu.data_offset
                    };
                    data.duplicate(from as usize, length as usize)
                });
            let data = data.expect("the data of a command that sends is shared");
            let mut out = [0; PREFIX_BYTES_MAX];
            let bytes = pdu.encode(&self.format, &mut out);
            self.tx.filling.push_header(&out[..bytes]);
            self.push_data(data);
            if let Some(doorbell) = &mut self.doorbell {
                doorbell.carries(length);
            }
        }
    }
}

/// The digest of payload, where it lies.
fn digest_of(data: &IoSlice) -> [u8; DIGEST_BYTES] {
    if let Some(bytes) = data.bytes() {
        return wire::tcp::digest::digest_bytes(bytes);
    }
    // A device's memory can only be copied out.
    let mut piece = [0; 4096];
    let mut crc = 0;
    let mut at = 0;
    while at < data.len() {
        let length = piece.len().min(data.len() - at);
        data.copy_out(at, &mut piece[..length]);
        crc = crc32c_append(crc, &piece[..length]);
        at += length;
    }
    crc.to_le_bytes()
}
