//! The receiving half of a connection: validates and applies the PDUs of the controller.

use super::connection::Arriving;
use super::connection::ConnectionState;
use super::connection::Qpair;
use crate::command::exchange::{Direction, Work};
use crate::command::table::Transfer;
use crate::error::ProtocolError;
use crate::limits::PREFETCH_PDUS;
use base::Time;
use base::mutation::{self, Mutation};
use reactor::{Context, IoSlice, Received};
use transport::DirectReceive;
use wire::nvme::{Completion, Status};
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::{C2hData, CapsuleResp, Event, IcResp, PduFormat, PduHeader, PduType, R2t, TermReq};

/// Offsets of fields in the headers of PDUs, in bytes: FLAGS of all, CCCID of C2HData and R2T, the
/// command identifier and the status of CapsuleResp. `[NVMe-TCP 1.0 §3.6.2]`
const FLAGS: u32 = 1;
const CCCID: u32 = 8;
const CID: u32 = 20;
const STATUS: u32 = 22;

/// Why parsing stops.
enum Stop {
    /// The controller violated the protocol, with this header if it is known.
    Violation(ProtocolError, Option<PduHeader>),
    /// The controller terminates the connection.
    Terminated(TermReq),
    /// Connect was refused.
    Refused(crate::error::ConnectionError),
}

impl From<ProtocolError> for Stop {
    fn from(error: ProtocolError) -> Self {
        Self::Violation(error, None)
    }
}

impl Qpair {
    /// Applies the data of a completed receive, and submits the next receive.
    pub(super) fn received(&mut self, mut received: Received, cx: &mut Context<'_>) {
        let direct = self.receiver.disarm();
        let direct = received.into.take().map(|into| {
            let direct = direct.expect("a receive that fills a slice was armed with it");
            self.give_back(into, direct, received.filled)
        });
        match self.state() {
            ConnectionState::Closing => return,
            ConnectionState::Terminating => return self.termination_heard(&received, cx),
            _ => {}
        }
        if let Err(error) = received.result {
            return self.receive_failed(&error, cx);
        }
        self.received = true;
        let mut outcome = match direct {
            Some(true) => self.parse(&[], cx.now),
            _ => Ok(()),
        };
        if let (Ok(()), Some((buffer, length))) = (&outcome, received.rest) {
            outcome = self.parse(&buffer[..length], cx.now);
        }
        match outcome {
            Ok(()) => {
                if self.is_live() {
                    self.encode_backlog();
                }
                self.follow_up(cx);
                let into = self.next_direct();
                self.receive_more(into, cx);
            }
            Err(stop) => self.stop(stop, cx),
        }
    }

    /// After a termination request was sent: drops data that the controller sent before it read the
    /// request.
    fn termination_heard(&mut self, received: &Received, cx: &mut Context<'_>) {
        match received.result {
            Ok(()) => self.receive_more(None, cx),
            Err(_) => self.close_now(cx),
        }
    }

    fn stop(&mut self, stop: Stop, cx: &mut Context<'_>) {
        match stop {
            Stop::Violation(error, Some(header)) => {
                let (bytes, length) = header_bytes(&header, self.tx.send.format());
                self.violated(error, &bytes[..length], cx);
            }
            Stop::Violation(error, None) => {
                let header = self.receiver.framer().offending_header();
                let mut bytes = [0; 128];
                let length = header.len().min(bytes.len());
                bytes[..length].copy_from_slice(&header[..length]);
                self.violated(error, &bytes[..length], cx);
            }
            Stop::Terminated(request) => self.terminated(request, cx),
            Stop::Refused(error) => self.fail(error, cx),
        }
    }

    /// Returns the slice into which the rest of a large payload is received, taken out of its
    /// command.
    fn next_direct(&mut self) -> Option<IoSlice> {
        let index = self.arriving?.index?;
        let slot = self.table.slot(index);
        let received = slot.received;
        let left = self
            .receiver
            .direct_bytes(slot.data_bytes - slot.received)?;
        // Data of several extents is copied to each of them.
        let exchange = slot.exchange.as_mut().filter(|e| e.extents().is_none())?;
        // Shared memory cannot be received into, and no digest can be computed over device memory.
        let data = exchange.data.as_mut()?;
        let digests = self.receiver.framer().digests_data();
        if data.bytes_mut().is_none() && (digests || data.bytes().is_some()) {
            return None;
        }
        let data = exchange.data.take()?;
        Some(self.receiver.arm_direct(index, data, received, left))
    }

    /// Puts a slice that a receive filled back into its command. Returns true if any byte arrived.
    fn give_back(&mut self, into: IoSlice, direct: DirectReceive, filled: usize) -> bool {
        let slot = self.table.slot(direct.slot);
        slot.received += u32::try_from(filled).expect("at most a transfer");
        let exchange = slot.exchange.as_mut();
        exchange
            .expect("a command keeps its slot while its data is received")
            .data = Some(self.receiver.filled(direct, into, filled));
        filled > 0
    }

    fn parse(&mut self, bytes: &[u8], now: Time) -> Result<(), Stop> {
        let mut input = bytes;
        loop {
            if let Some(cid) = upcoming_response(input) {
                self.table.prefetch(cid);
            }
            let event = self.receiver.next(&mut input);
            match event.map_err(ProtocolError::Framing)? {
                None => return Ok(()),
                Some(Event::Pdu {
                    header,
                    data,
                    digest_ok,
                }) => self.whole_pdu(&header, data, digest_ok, now)?,
                Some(Event::DataBegin { header, .. }) => self.data_begins(&header)?,
                Some(Event::DataChunk(chunk)) => self.data_arrives(chunk),
                Some(Event::DataEnd { digest_ok }) => self.data_ends(digest_ok)?,
            }
        }
    }

    #[inline]
    fn whole_pdu(
        &mut self,
        header: &PduHeader,
        data: Option<&[u8]>,
        digest_ok: bool,
        now: Time,
    ) -> Result<(), Stop> {
        let at = |error| Stop::Violation(error, Some(*header));
        match header {
            PduHeader::C2hData(pdu) => {
                let index = self.check_data(pdu).map_err(at)?;
                self.arriving = Some(Arriving {
                    index: Some(index),
                    progress: pdu.progress,
                });
                self.data_arrives(data.unwrap_or_default());
                self.data_ends(digest_ok).map_err(|stop| match stop {
                    Stop::Violation(error, None) => at(error),
                    other => other,
                })
            }
            PduHeader::CapsuleResp(pdu) => self.response(&pdu.completion, now, header),
            PduHeader::R2t(pdu) => self.ready_to_transfer(pdu).map_err(at),
            PduHeader::IcResp(pdu) => {
                if self.state() != ConnectionState::Initializing {
                    return Err(at(self.out_of_sequence(header)));
                }
                self.initialized(pdu, now).map_err(at)
            }
            PduHeader::C2hTermReq(request) => Err(Stop::Terminated(*request)),
            _ => Err(at(self.out_of_sequence(header))),
        }
    }

    fn out_of_sequence(&self, header: &PduHeader) -> ProtocolError {
        ProtocolError::Sequence {
            pdu: header.pdu_type().name(),
            state: self.state().name(),
        }
    }

    fn data_begins(&mut self, header: &PduHeader) -> Result<(), Stop> {
        match header {
            PduHeader::C2hData(pdu) => {
                let checked = self.check_data(pdu);
                let index = checked.map_err(|error| Stop::Violation(error, Some(*header)))?;
                self.arriving = Some(Arriving {
                    index: Some(index),
                    progress: pdu.progress,
                });
                Ok(())
            }
            PduHeader::C2hTermReq(request) => Err(Stop::Terminated(*request)),
            _ => Err(Stop::Violation(self.out_of_sequence(header), Some(*header))),
        }
    }

    /// Data must belong to a command that reads, and continue where the data before it ended.
    /// `[NVMe-TCP 1.0 §3.3.2.1]`
    fn check_data(&mut self, pdu: &C2hData) -> Result<u16, ProtocolError> {
        let cid = pdu.command_id;
        let (index, reads) = self.find_data_command(cid, Direction::In)?;
        let slot = self.table.slot(index);
        let fits =
            pdu.data_offset == slot.received && pdu.data_length <= slot.data_bytes - slot.received;
        if reads && fits {
            return Ok(index);
        }
        Err(ProtocolError::DataOutOfRange {
            cid,
            offset: pdu.data_offset,
            length: pdu.data_length,
        })
    }

    /// Returns the slot of the outstanding command of a data PDU or an R2T, and true if the
    /// command's data has this `direction`.
    fn find_data_command(
        &mut self,
        cid: u16,
        direction: Direction,
    ) -> Result<(u16, bool), ProtocolError> {
        let index = self.table.find(cid);
        let index = index.ok_or(ProtocolError::UnknownCommand { cid, offset: CCCID })?;
        let exchange = self.table.slot(index).exchange.as_ref();
        let matches = exchange.is_some_and(|exchange| exchange.direction == direction);
        Ok((index, matches))
    }

    #[inline]
    fn data_arrives(&mut self, bytes: &[u8]) {
        let Some(Arriving {
            index: Some(index), ..
        }) = self.arriving
        else {
            return;
        };
        let slot = self.table.slot(index);
        debug_assert!(
            bytes.len() <= (slot.data_bytes - slot.received) as usize,
            "data was checked when it began"
        );
        let at = slot.received as usize;
        let exchange = slot.exchange.as_mut().expect("checked when the data began");
        if let Work::Extents(request) = &mut exchange.work {
            request.copy_in(slot.received, bytes);
        } else if let Some(data) = &mut exchange.data {
            data.copy_in(at, bytes);
        } else {
            debug_assert!(exchange.detached, "a command that reads has data");
        }
        slot.received += u32::try_from(bytes.len()).expect("at most a transfer");
    }

    fn data_ends(&mut self, digest_ok: bool) -> Result<(), Stop> {
        let Some(arriving) = self.arriving.take() else {
            return Ok(());
        };
        let Some(index) = arriving.index else {
            return Ok(());
        };
        let slot = self.table.slot(index);
        slot.damaged |= !digest_ok && !mutation::active(Mutation::HostDigestIgnored);
        if arriving.progress != C2hProgress::LastAndSuccess {
            return Ok(());
        }
        let completion = Completion::new(self.table.cid(index), 0, Status::SUCCESS);
        self.answered(index, completion, FLAGS).map_err(Stop::from)
    }

    fn response(
        &mut self,
        completion: &Completion,
        now: Time,
        header: &PduHeader,
    ) -> Result<(), Stop> {
        let at = |error| Stop::Violation(error, Some(*header));
        let cid = completion.cid;
        let index = self
            .table
            .find(cid)
            .ok_or_else(|| at(ProtocolError::UnknownCommand { cid, offset: CID }))?;
        let joining = self.state() == ConnectionState::Joining;
        self.answered(index, *completion, STATUS).map_err(at)?;
        if joining && let Some(error) = self.joined(completion, now) {
            return Err(Stop::Refused(error));
        }
        Ok(())
    }

    /// Handles the completion of a command. `offset` is the field of the header that reported it.
    fn answered(
        &mut self,
        index: u16,
        mut completion: Completion,
        offset: u32,
    ) -> Result<(), ProtocolError> {
        let slot = self.table.slot(index);
        let exchange = slot.exchange.as_ref().expect("found in the table");
        // For a write, `received` counts requested bytes: success without all data would be false.
        let all_moved = slot.received == slot.data_bytes && !slot.has_transfers();
        if completion.status.is_success() && exchange.needs_data() && !all_moved {
            return Err(ProtocolError::DataMissing {
                cid: completion.cid,
                moved: slot.received,
                expected: slot.data_bytes,
                offset,
            });
        }
        if exchange.direction == Direction::In && completion.status.is_success() && slot.damaged {
            // [NVMe-TCP 1.0 §3.6.3]: damaged data fails the command, not the connection.
            completion.status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        let is_sound = !slot.damaged && !slot.has_transfers();
        let moved = if is_sound { slot.received } else { 0 };
        if let Some(Work::Extents(request)) = slot.exchange.as_mut().map(|e| &mut e.work) {
            request.note_done(&completion, moved);
        }
        if slot.has_transfers() {
            self.tx.transfers.retain(|&waiting| waiting != index);
        }
        let is_carried = self.is_carried(index);
        if !self.table.answer(index, completion, is_carried) {
            self.tx.defer_answer(index);
        }
        Ok(())
    }

    /// Handles an R2T: the controller is ready for data. `[NVMe-TCP 1.0 §3.3.2.2]`
    fn ready_to_transfer(&mut self, pdu: &R2t) -> Result<(), ProtocolError> {
        let cid = pdu.command_id;
        let (index, writes) = self.find_data_command(cid, Direction::Out)?;
        let slot = self.table.slot(index);
        let end = pdu.offset.checked_add(pdu.length);
        let fits = pdu.length > 0 && end.is_some_and(|end| end <= slot.data_bytes);
        // In-capsule data is never requested again. For writes `received` counts the requested
        // bytes, so a controller cannot request the same bytes without end.
        let continues = pdu.offset == slot.received;
        if !writes || !fits || !continues {
            return Err(ProtocolError::TransferOutOfRange {
                cid,
                offset: pdu.offset,
                length: pdu.length,
            });
        }
        slot.received += pdu.length;
        slot.progress();
        let idle = !slot.has_transfers();
        let transfer = Transfer {
            tag: pdu.transfer_tag,
            offset: pdu.offset,
            left: pdu.length,
        };
        if !self.table.push_transfer(index, transfer) {
            return Err(ProtocolError::TooManyTransfers { cid });
        }
        if idle {
            self.tx.transfers.push_back(index);
        }
        Ok(())
    }
}

/// Returns the identifier in the response [`PREFETCH_PDUS`] PDUs ahead, if all PDUs until there are
/// responses without digests; otherwise an arbitrary value.
#[inline]
fn upcoming_response(input: &[u8]) -> Option<u16> {
    let pdu = input.get(PREFETCH_PDUS * CapsuleResp::SIZE..)?;
    let pdu = pdu.first_chunk::<{ CapsuleResp::SIZE }>()?;
    // [NVMe-TCP 1.0 §3.6.2.7]: the completion follows the common header; its identifier is in
    // bytes 12 and 13.
    (pdu[0] == PduType::CapsuleResp as u8).then(|| u16::from_le_bytes([pdu[20], pdu[21]]))
}

/// Encodes a header again for a termination request. Returns the bytes and their length.
pub(super) fn header_bytes(header: &PduHeader, format: &PduFormat) -> ([u8; 128], usize) {
    let mut out = [0; 128];
    let length = match header {
        PduHeader::C2hData(pdu) => {
            pdu.encode(format, &mut out);
            C2hData::SIZE
        }
        PduHeader::R2t(pdu) => {
            pdu.encode(format, &mut out);
            R2t::SIZE
        }
        PduHeader::CapsuleResp(pdu) => {
            pdu.encode(format, &mut out);
            CapsuleResp::SIZE
        }
        PduHeader::IcResp(pdu) => {
            out = pdu.to_bytes();
            IcResp::SIZE
        }
        _ => 0,
    };
    (out, length)
}
