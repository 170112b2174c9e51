//! The sending half of a connection: PDUs that are ready leave in one send, and the next one fills
//! while that is in flight.

use super::connection::Qpair;
use crate::command::exchange::{Direction, Exchange, Work};
use crate::command::table::Transfer;
use base::mutation::{self, Mutation};
use wire::nvme::SglDescriptor;
use wire::tcp::H2cData;

impl Qpair {
    /// Puts the command of a slot into the filling list; false if it does not fit.
    pub(super) fn encode_command(&mut self, index: u16) -> bool {
        if !self.tx.has_room() {
            return false;
        }
        let cid = self.table.cid(index);
        let slot = self.table.slot(index);
        let length = slot.data_bytes;
        let exchange = slot
            .exchange
            .as_mut()
            .expect("queued commands are occupied");
        if !self.tx.load(exchange) {
            return false;
        }
        let mut command = match &exchange.work {
            Work::Admin(command) => **command,
            Work::Block(request) => request.command(),
            Work::Extents(_) => {
                self.encode_extents(index);
                return true;
            }
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
        // None of the data may be requested again.
        slot.received = if exchange.direction == Direction::Out {
            sent
        } else {
            0
        };
        debug_assert!(sent <= length, "no more is sent than there is");
        self.table.sent(index);
        self.tx.send.push_command(command, sent);
        if let Some(data) = in_capsule {
            self.tx.send.push_payload(data);
            self.table.carried_by(index, self.tx.send.filling_mark());
        }
        true
    }

    /// Puts a command over extents into the filling list, with its table and in-capsule data.
    fn encode_extents(&mut self, index: u16) {
        let cid = self.table.cid(index);
        let slot = self.table.slot(index);
        let data_bytes = slot.data_bytes;
        let exchange = slot
            .exchange
            .as_mut()
            .expect("queued commands are occupied");
        let Work::Extents(request) = &mut exchange.work else {
            unreachable!("the caller looked");
        };
        let capsule = exchange.data.take().expect("every table has a buffer");
        let capsule = capsule.into_shared();
        let length = u32::try_from(capsule.len()).expect("at most what a capsule carries");
        let payload = capsule.duplicate(0, capsule.len());
        let payload = payload.expect("it is shared from here on");
        exchange.data = Some(capsule);
        let asked = exchange.direction == Direction::Out && !request.inside;
        if asked {
            request.share();
        }
        let mut command = request.command();
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::in_capsule(0, length));
        // As for any command: none of the data may be requested again.
        slot.received = if request.inside { data_bytes } else { 0 };
        self.table.sent(index);
        self.tx.send.push_command(command, length);
        self.tx.send.push_payload(payload);
    }

    /// Puts the command of a slot into the filling list as it is, with this small in-capsule data.
    pub(super) fn encode_capsule_with(&mut self, index: u16, data: &[u8]) {
        let cid = self.table.cid(index);
        let slot = self.table.slot(index);
        let exchange = slot
            .exchange
            .as_mut()
            .expect("queued commands are occupied");
        let Work::Admin(command) = &mut exchange.work else {
            unreachable!("only a connection that is set up sends bytes of its own");
        };
        command.set_cid(cid);
        let length = u32::try_from(data.len()).expect("a few bytes");
        let command = **command;
        self.table.sent(index);
        let room = self.tx.has_room();
        assert!(room, "a connection that is set up sends nothing else");
        self.tx.send.push_command(command, length);
        if !data.is_empty() {
            self.tx.send.push_copied_payload(data);
        }
    }

    /// Fills the list with waiting PDUs: first the data that the controller requested, because it
    /// holds buffers for it, then commands.
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

    /// Puts the data requested by R2Ts of a slot into the filling list, at most MAXH2CDATA in a PDU
    /// and no more than a caravan in the list; false if not all of it fits. `[NVMe-TCP 1.0
    /// §3.3.2.2]`
    pub(super) fn encode_transfers(&mut self, index: u16) -> bool {
        let cid = self.table.cid(index);
        loop {
            let fits = self.tx.has_room();
            let room = self.tx.room_for_data();
            let mut max = self.max_h2c_data.min(room);
            if mutation::active(Mutation::MaxH2cDataIgnored) {
                max = room;
            }
            let Some(&mut Transfer { offset, .. }) = self.table.transfer(index) else {
                return true;
            };
            let exchange = self.table.slot(index).exchange.as_ref();
            if let Some(request) = exchange.and_then(Exchange::extents) {
                max = max.min(request.contiguous(offset));
            }
            let Some(transfer) = self.table.transfer(index) else {
                return true;
            };
            if !fits || room == 0 {
                return false;
            }
            let length = transfer.left.min(max);
            assert!(length > 0, "an R2T that brings no data would never end");
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
                    let from = if mutation::active(Mutation::TransferFromStart) {
                        0
                    } else {
                        pdu.data_offset
                    };
                    exchange.duplicate(from, length)
                });
            let data = data.expect("the data of a command that sends is shared");
            self.tx.send.push_h2c_data(&pdu);
            self.tx.send.push_payload(data);
            self.table.carried_by(index, self.tx.send.filling_mark());
            self.tx.load_data(length);
        }
    }
}
