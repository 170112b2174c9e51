//! The receiving half of a connection: what the controller sends, checked before it is believed.

use super::connection::{ConnectionState, Qpair, header_bytes};
use crate::command::exchange::Direction;
use crate::command::table::Transfer;
use crate::error::ProtocolError;
use crate::limits::{DIRECT_RECEIVE_BYTES_MIN, PREFETCH_PDUS};
use base::Time;
use base::mutation::{self, Mutation};
use reactor::{Context, IoSlice, Received};
use wire::nvme::{Completion, Status};
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::{C2hData, CapsuleResp, Event, PduHeader, PduType, R2t, TermReq};

/// Where fields stand in the headers of PDUs, in bytes: FLAGS of all, CCCID of C2HData and R2T, the
/// command identifier and the status of CapsuleResp. `[NVMe-TCP 1.0 §3.6.2]`
const FLAGS: u32 = 1;
const CCCID: u32 = 8;
const CID: u32 = 20;
const STATUS: u32 = 22;

/// A C2HData PDU whose payload is still arriving.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    /// Slot of the command; `None` for payload that nobody wants.
    index: Option<u16>,
    progress: C2hProgress,
}

/// What the receiving half remembers between two receives.
#[derive(Debug, Default)]
pub(super) struct Reception {
    arriving: Option<Arriving>,
    /// A slot whose data is in the driver's hands, with the slice's place in its memory.
    away: Option<Away>,
}

/// Where the slice that a receive fills belongs.
#[derive(Clone, Copy, Debug)]
struct Away {
    index: u16,
    offset: usize,
    len: usize,
}

/// Why parsing stops.
enum Stop {
    /// The controller broke the rules, by this header where it is known.
    Violation(ProtocolError, Option<PduHeader>),
    /// The controller ends the connection.
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
    /// A receive ended: takes what it brought, and asks for more.
    pub(super) fn received(&mut self, mut received: Received, cx: &mut Context<'_>) {
        let direct = received.into.take().map(|into| {
            let away = self.rx.away.take().expect("a slice was away");
            self.bring_home(into, away, received.filled)
        });
        match self.state {
            ConnectionState::Closing => return,
            ConnectionState::Terminating => return self.termination_heard(&received, cx),
            _ => {}
        }
        if let Err(error) = received.result {
            return self.receive_failed(&error, cx);
        }
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

    /// After a termination request: what the controller sent before it read that is nobody's any
    /// more.
    fn termination_heard(&mut self, received: &Received, cx: &mut Context<'_>) {
        match received.result {
            Ok(()) => self.receive_more(None, cx),
            Err(_) => self.close_now(cx),
        }
    }

    fn stop(&mut self, stop: Stop, cx: &mut Context<'_>) {
        match stop {
            Stop::Violation(error, Some(header)) => {
                let (bytes, length) = header_bytes(&header, &self.format);
                self.violated(error, &bytes[..length], cx);
            }
            Stop::Violation(error, None) => {
                let header = self.framer.offending_header();
                let mut bytes = [0; 128];
                let length = header.len().min(bytes.len());
                bytes[..length].copy_from_slice(&header[..length]);
                self.violated(error, &bytes[..length], cx);
            }
            Stop::Terminated(request) => self.terminated(request, cx),
            Stop::Refused(error) => self.fail(error, cx),
        }
    }

    /// The slice to receive the rest of a large payload into, taken out of its command.
    fn next_direct(&mut self) -> Option<IoSlice> {
        let left = self.framer.data_remaining()? as usize;
        if left < DIRECT_RECEIVE_BYTES_MIN {
            return None;
        }
        let index = self.rx.arriving?.index?;
        let slot = self.table.slot(index);
        let received = slot.received as usize;
        let exchange = slot.exchange.as_mut()?;
        // The digest needs the bytes in one owner's hands, which a device's memory is not.
        let data = exchange.data.as_mut()?;
        if data.bytes_mut().is_none() && (self.framer.digests_data() || data.bytes().is_some()) {
            return None;
        }
        let data = exchange.data.take()?;
        let (offset, len) = (data.offset(), data.len());
        self.rx.away = Some(Away { index, offset, len });
        Some(IoSlice::new(data.into_memory(), offset + received, left))
    }

    /// Gives a slice that a receive filled back to its command. Returns whether anything arrived.
    fn bring_home(&mut self, into: IoSlice, away: Away, filled: usize) -> bool {
        if filled > 0 {
            match into.bytes() {
                Some(bytes) => self.framer.advance_external(&bytes[..filled]),
                None => self
                    .framer
                    .advance_unseen(u32::try_from(filled).expect("at most a transfer")),
            }
        }
        let slot = self.table.slot(away.index);
        slot.received += u32::try_from(filled).expect("at most a transfer");
        let home = IoSlice::new(into.into_memory(), away.offset, away.len);
        let exchange = slot.exchange.as_mut();
        exchange
            .expect("a command keeps its slot while its data is away")
            .data = Some(home);
        filled > 0
    }

    fn parse(&mut self, bytes: &[u8], now: Time) -> Result<(), Stop> {
        let mut input = bytes;
        loop {
            if let Some(cid) = upcoming_response(input) {
                self.table.prefetch(cid);
            }
            let event = self.framer.next(&mut input);
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
                self.rx.arriving = Some(Arriving {
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
                if self.state != ConnectionState::Initializing {
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
            state: self.state.name(),
        }
    }

    fn data_begins(&mut self, header: &PduHeader) -> Result<(), Stop> {
        match header {
            PduHeader::C2hData(pdu) => {
                let checked = self.check_data(pdu);
                let index = checked.map_err(|error| Stop::Violation(error, Some(*header)))?;
                self.rx.arriving = Some(Arriving {
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
        let index = self
            .table
            .find(cid)
            .ok_or(ProtocolError::UnknownCommand { cid, offset: CCCID })?;
        let slot = self.table.slot(index);
        let reads = slot
            .exchange
            .as_ref()
            .is_some_and(|exchange| exchange.direction == Direction::In);
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

    #[inline]
    fn data_arrives(&mut self, bytes: &[u8]) {
        let Some(Arriving {
            index: Some(index), ..
        }) = self.rx.arriving
        else {
            return;
        };
        let slot = self.table.slot(index);
        let at = slot.received as usize;
        let exchange = slot.exchange.as_mut().expect("checked when the data began");
        let data = exchange
            .data
            .as_mut()
            .expect("a command that reads has data");
        data.copy_in(at, bytes);
        slot.received += u32::try_from(bytes.len()).expect("at most a transfer");
    }

    fn data_ends(&mut self, digest_ok: bool) -> Result<(), Stop> {
        let Some(arriving) = self.rx.arriving.take() else {
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
        let joining = self.state == ConnectionState::Joining;
        self.answered(index, *completion, STATUS).map_err(at)?;
        if joining && let Some(error) = self.joined(completion, now) {
            return Err(Stop::Refused(error));
        }
        Ok(())
    }

    /// A command is over, as far as the controller is concerned; it says so in the field at
    /// `offset` of the header.
    fn answered(
        &mut self,
        index: u16,
        mut completion: Completion,
        offset: u32,
    ) -> Result<(), ProtocolError> {
        let slot = self.table.slot(index);
        let exchange = slot.exchange.as_ref().expect("found in the table");
        // For a write that is what was asked for: its success without its data would be a lie.
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
            // [NVMe-TCP 1.0 §3.6.3]: damaged data costs the command, not the connection.
            completion.status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        if slot.has_transfers() {
            self.tx.transfers.retain(|&waiting| waiting != index);
        }
        if !self.table.answer(index, completion) {
            self.tx.defer_answer(index);
        }
        Ok(())
    }

    /// The controller is ready for data. `[NVMe-TCP 1.0 §3.3.2.2]`
    fn ready_to_transfer(&mut self, pdu: &R2t) -> Result<(), ProtocolError> {
        let cid = pdu.command_id;
        let index = self
            .table
            .find(cid)
            .ok_or(ProtocolError::UnknownCommand { cid, offset: CCCID })?;
        let slot = self.table.slot(index);
        let writes = slot
            .exchange
            .as_ref()
            .is_some_and(|exchange| exchange.direction == Direction::Out);
        let end = pdu.offset.checked_add(pdu.length);
        let fits = pdu.length > 0 && end.is_some_and(|end| end <= slot.data_bytes);
        if !writes || !fits {
            return Err(ProtocolError::TransferOutOfRange {
                cid,
                offset: pdu.offset,
                length: pdu.length,
            });
        }
        // Data that went in the capsule is never asked for again; `received` counts for writes
        // what was asked for, so that a controller cannot ask for the same bytes without end.
        if pdu.offset != slot.received {
            return Err(ProtocolError::TransferOutOfRange {
                cid,
                offset: pdu.offset,
                length: pdu.length,
            });
        }
        slot.received += pdu.length;
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

/// The identifier in the response that comes a few PDUs later, where all until there are responses
/// without digests; anything, where they are not.
#[inline]
fn upcoming_response(input: &[u8]) -> Option<u16> {
    let pdu = input.get(PREFETCH_PDUS * CapsuleResp::SIZE..)?;
    let pdu = pdu.first_chunk::<{ CapsuleResp::SIZE }>()?;
    // [NVMe-TCP 1.0 §3.6.2.7]: the completion follows the common header; its identifier is in
    // bytes 12 and 13.
    (pdu[0] == PduType::CapsuleResp as u8).then(|| u16::from_le_bytes([pdu[20], pdu[21]]))
}
