//! Input of a session: the PDUs in received data, and their payload.

use crate::session::Session;
use crate::session::event::{Event, Payload, Violation};
use crate::session::state::Stalled;
use crate::session::transfer::Incoming;
use base::Time;
use reactor::{IoSlice, Received};
use wire::nvme::Command;
use wire::tcp::framer::Event as Pdu;
use wire::tcp::{FramingError, PduHeader};

impl Session {
    /// Handles the end of a receive; records payload that went directly into a command's buffer.
    pub(crate) fn received(&mut self, received: &mut Received, now: Time) {
        let direct = self.receiver.disarm();
        if let (Some(direct), Some(into)) = (direct, received.into.take()) {
            self.put_back(direct, into, received.filled);
        }
        if received.result.is_ok() {
            self.last_input = now;
        }
    }

    /// Begins to process input.
    #[inline]
    pub(crate) fn begin_input(&mut self) {
        self.pdu_ended = self.pdu_since == Time::NEVER;
    }

    /// Returns the next event in `input`; `None` when it is used up.
    ///
    /// # Errors
    /// A violation of the protocol: the session accepts no further input.
    #[inline]
    pub(crate) fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<Event<'a>>, Box<Violation>> {
        loop {
            let pdu = match self.receiver.next(input) {
                Ok(Some(pdu)) => pdu,
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.framing_violation(&error)),
            };
            self.pdu_ended |= matches!(pdu, Pdu::Pdu { .. } | Pdu::DataEnd { .. });
            if self.held.is_some() && self.hold(&pdu) {
                continue;
            }
            match pdu {
                Pdu::Pdu {
                    header: PduHeader::CapsuleCmd(capsule),
                    data,
                    digest_ok,
                } => {
                    let whole = |data| Payload::Whole(data, digest_ok);
                    let payload = data.map_or(Payload::None, whole);
                    return Ok(Some(Event::Command(capsule.command, payload)));
                }
                Pdu::DataBegin {
                    header: PduHeader::CapsuleCmd(capsule),
                    data_length,
                } => {
                    self.incoming = Incoming::DISCARD;
                    let payload = Payload::Arriving(data_length);
                    return Ok(Some(Event::Command(capsule.command, payload)));
                }
                Pdu::Pdu {
                    header: PduHeader::H2cData(pdu),
                    data,
                    digest_ok,
                } => {
                    self.begin_data(&pdu)?;
                    self.deposit(data.unwrap_or_default());
                    return Ok(Some(Event::Data(self.end_data(digest_ok))));
                }
                Pdu::DataBegin {
                    header: PduHeader::H2cData(pdu),
                    ..
                } => self.begin_data(&pdu)?,
                Pdu::DataChunk(chunk) => self.deposit(chunk),
                Pdu::DataEnd { digest_ok } => {
                    return Ok(Some(Event::Data(self.end_data(digest_ok))));
                }
                Pdu::Pdu { header, .. } | Pdu::DataBegin { header, .. } => {
                    return Ok(Some(match header {
                        PduHeader::IcReq(request) => Event::Initialize(request),
                        PduHeader::H2cTermReq(request) => Event::Terminated(request.status),
                        _ => Event::Unexpected,
                    }));
                }
            }
        }
    }

    /// Holds a command capsule, or data of one that is held. Returns false for everything else, and
    /// for a capsule that exceeds the queue, which is then refused as always.
    #[cold]
    fn hold(&mut self, pdu: &Pdu<'_>) -> bool {
        let Some(held) = &mut self.held else {
            return false;
        };
        if self.first_half.is_some() && held.is_empty() {
            // The process that takes the connection over has no first half.
            return false;
        }
        let format = self.output.format();
        match *pdu {
            Pdu::Pdu {
                header: PduHeader::CapsuleCmd(capsule),
                data,
                digest_ok,
            } if held.has_room(&self.commands) => {
                let data = data.unwrap_or_default();
                let length = u32::try_from(data.len()).expect("a PDU is shorter than 4 GiB");
                held.begin(capsule.command, length, format);
                held.push(data);
                held.end(digest_ok, format);
                true
            }
            Pdu::DataBegin {
                header: PduHeader::CapsuleCmd(capsule),
                data_length,
            } if held.has_room(&self.commands) => {
                self.incoming = Incoming::DISCARD;
                held.begin(capsule.command, data_length, format);
                true
            }
            Pdu::DataChunk(chunk) => held.push(chunk),
            Pdu::DataEnd { digest_ok } => held.end(digest_ok, format),
            Pdu::Pdu { .. } | Pdu::DataBegin { .. } => false,
        }
    }

    #[cold]
    fn framing_violation(&self, error: &FramingError) -> Box<Violation> {
        let header = self.receiver.framer().offending_header();
        Violation::new(error.term_req(), header, error.to_string())
    }

    /// Ends the processing of input and records since when a PDU is incomplete. Returns true if
    /// that is since now.
    #[inline]
    pub(crate) fn end_input(&mut self, now: Time) -> bool {
        // While its input is held back, the host is not late.
        if self.receiver.framer().is_between_pdus() || self.stalled.is_some() {
            self.pdu_since = Time::NEVER;
        } else if self.pdu_ended {
            self.pdu_since = now;
            return true;
        }
        false
    }

    /// Keeps a command that was received at this time and waits for a buffer, with its place in
    /// the wait lists.
    pub(crate) fn stall(
        &mut self,
        command: &Command,
        payload: Payload<'_>,
        waits: u32,
        received: Time,
    ) {
        let arriving = match payload {
            Payload::Arriving(length) => length,
            Payload::None | Payload::Whole(..) => 0,
        };
        let data = match payload {
            Payload::Whole(data, digest_ok) => Some((data.to_vec(), digest_ok)),
            Payload::None | Payload::Arriving(_) => None,
        };
        self.stalled = Some(Box::new(Stalled {
            received,
            waits,
            command: *command,
            data,
            arriving,
            input: Vec::new(),
            taken: 0,
        }));
    }

    /// Begins a receive: returns the command memory to receive into directly; `None` for a receive
    /// buffer of the driver.
    pub(crate) fn begin_receive(&mut self, ends: bool) -> Option<IoSlice> {
        let into = if ends { None } else { self.take_destination() };
        if into.is_none() {
            self.receiver.arm();
        }
        into
    }
}
