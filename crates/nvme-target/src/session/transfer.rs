//! Command data from the host: in capsules, and in H2CData PDUs requested by R2Ts. `[NVMe-TCP 1.0
//! §3.3.2.2]`
//!
//! [`Incoming`] directs the payload into the buffer of its command. Checked here: the tag's R2T is
//! outstanding, for that command and those bytes.

use crate::command::table::CommandKind;
use crate::limits::Limits;
use crate::request::CommandState;
use crate::session::Session;
use crate::session::event::{Delivery, Violation};
use base::mutation::{self, Mutation};
use reactor::IoSlice;
use transport::DirectReceive;
use wire::tcp::limits::{ADMIN_IN_CAPSULE_BYTES, PREFIX_BYTES_MAX};
use wire::tcp::{FatalErrorStatus, H2cData, R2t};

/// Bits of a TTAG that hold the slot; the remaining bits hold the R2T's number.
const TTAG_SLOT_BITS: u32 = 10;
const TTAG_SLOT_MASK: u16 = (1 << TTAG_SLOT_BITS) - 1;

/// Returns the TTAG of a command's R2T with this number.
#[inline]
fn transfer_tag(slot: u16, number: u16) -> u16 {
    if mutation::active(Mutation::TransferTagReused) {
        return slot;
    }
    slot | (number << TTAG_SLOT_BITS)
}

/// Destination of the payload that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(crate) sink: Sink,
    /// Bytes of the PDU's payload received so far.
    pub(crate) position: u32,
    /// Bytes at the start of the payload that are not data of the command.
    pub(crate) skip: u32,
    /// Offset of the wanted part within the command's data.
    pub(crate) base: u32,
    /// Bytes of the wanted part.
    pub(crate) want: u32,
}

/// Command that the payload belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    /// No command: the payload is dropped.
    Discard,
    /// In-capsule data of the command in this slot.
    Capsule(u16),
    /// Data for the R2T of this number of the command in this slot.
    Transfer(u16, u16),
}

impl Incoming {
    pub(crate) const DISCARD: Self = Self {
        sink: Sink::Discard,
        position: 0,
        skip: 0,
        base: 0,
        want: 0,
    };

    /// Returns the destination of in-capsule data: `want` bytes after `skip`.
    pub(crate) const fn capsule(slot: u16, skip: u32, want: u32) -> Self {
        Self {
            sink: Sink::Capsule(slot),
            position: 0,
            skip,
            base: 0,
            want,
        }
    }
}

/// R2Ts of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct R2tTerms {
    /// Outstanding R2Ts per command (minimum of ICReq's MAXR2T and the target's limit).
    pub(crate) outstanding_max: u16,
    /// Bytes requested by one R2T.
    pub(crate) bytes: u32,
}

impl R2tTerms {
    /// Returns the terms for `outstanding_max` R2Ts of a command at a time.
    pub(crate) fn new(outstanding_max: u16, limits: &Limits) -> Self {
        assert!(outstanding_max > 0, "no data would ever be asked for");
        Self {
            outstanding_max,
            bytes: if outstanding_max > 1 {
                limits.r2t_bytes
            } else {
                limits.transfer_bytes.max(ADMIN_IN_CAPSULE_BYTES)
            },
        }
    }
}

/// Defect of an H2CData PDU.
#[derive(Clone, Copy, Debug)]
enum Defect {
    /// No R2T with this tag is outstanding.
    Unasked,
    /// The command identifier is not that of the R2T's command.
    Command,
    /// The data lies outside of the expected bytes.
    Range,
    /// LAST_PDU is set too early, or missing.
    Last,
}

impl Session {
    /// Returns the next R2T to send for a command; `None` at the limit of outstanding R2Ts, or once
    /// all its data is requested.
    pub(crate) fn next_r2t(&mut self, slot: u16) -> Option<R2t> {
        let terms = self.r2t;
        let entry = self.commands.slot(slot);
        let kind = entry.kind;
        let transfer = &mut entry.transfer;
        let number = transfer.r2ts_sent;
        let offset = u32::from(number) * terms.bytes;
        let outstanding = number - transfer.r2ts_done;
        if outstanding >= terms.outstanding_max || offset >= transfer.length {
            return None;
        }
        assert!(
            usize::from(outstanding) < transfer.missing.len(),
            "an R2T has a place of its own"
        );
        let mut length = terms.bytes.min(transfer.length - offset);
        if mutation::active(Mutation::R2tBeyondCommand) && kind == CommandKind::Compare {
            length += 512;
        }
        transfer.missing[usize::from(number) % transfer.missing.len()] = length;
        transfer.r2ts_sent += 1;
        Some(R2t {
            command_id: entry.cid,
            transfer_tag: transfer_tag(slot, number),
            offset,
            length,
        })
    }

    /// Returns true if [`next_r2t`](Self::next_r2t) would return an R2T.
    pub(crate) fn has_r2t(&mut self, slot: u16) -> bool {
        let terms = self.r2t;
        let transfer = &self.commands.slot(slot).transfer;
        let offset = u32::from(transfer.r2ts_sent) * terms.bytes;
        let outstanding = transfer.r2ts_sent - transfer.r2ts_done;
        outstanding < terms.outstanding_max && offset < transfer.length
    }

    /// Checks an H2CData header against the R2T that it answers, and directs its payload.
    pub(super) fn begin_data(&mut self, pdu: &H2cData) -> Result<(), Box<Violation>> {
        self.incoming = Incoming::DISCARD;
        match self.destination_of(pdu) {
            Ok(incoming) => {
                self.incoming = incoming;
                Ok(())
            }
            Err(defect) => Err(self.violation(pdu, defect)),
        }
    }

    fn destination_of(&mut self, pdu: &H2cData) -> Result<Incoming, Defect> {
        if !self.connected {
            return Err(Defect::Unasked);
        }
        let stride = self.r2t.bytes;
        let slot = pdu.transfer_tag & TTAG_SLOT_MASK;
        let entry = self.commands.get(slot);
        let entry = entry.filter(|entry| entry.state() == CommandState::Transferring);
        let entry = entry.ok_or(Defect::Unasked)?;
        let transfer = &entry.transfer;
        let places = transfer.missing.len();
        let number = (transfer.r2ts_done..transfer.r2ts_sent)
            .find(|&number| transfer_tag(slot, number) == pdu.transfer_tag)
            .filter(|&number| transfer.missing[usize::from(number) % places] > 0)
            .ok_or(Defect::Unasked)?;
        if entry.cid != pdu.command_id {
            return Err(Defect::Command);
        }
        let missing = transfer.missing[usize::from(number) % places];
        let start = u32::from(number) * stride;
        let end = transfer.length.min(start + stride);
        if pdu.data_offset != end - missing || pdu.data_length > missing {
            return Err(Defect::Range);
        }
        if pdu.last != (pdu.data_length == missing) {
            return Err(Defect::Last);
        }
        Ok(Incoming {
            sink: Sink::Transfer(slot, number),
            position: 0,
            skip: 0,
            base: if mutation::active(Mutation::DataOffsetIgnored) {
                0
            } else {
                pdu.data_offset
            },
            want: pdu.data_length,
        })
    }

    #[cold]
    fn violation(&self, pdu: &H2cData, defect: Defect) -> Box<Violation> {
        let mut header = [0; PREFIX_BYTES_MAX];
        pdu.encode(self.output.format(), &mut header);
        let field = FatalErrorStatus::INVALID_PDU_HEADER_FIELD;
        let (status, information, reason) = match defect {
            Defect::Unasked => (field, 10, "data for an unknown transfer tag"),
            Defect::Command => (
                field,
                8,
                "the command identifier does not match the transfer tag",
            ),
            Defect::Range => (
                FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE,
                0,
                "data outside the range of the R2T",
            ),
            Defect::Last => (field, 1, "LAST_PDU does not match the end of the R2T"),
        };
        Violation::of_pdu(status, information, &header[..H2cData::SIZE], reason)
    }

    /// Copies the next bytes of the payload into the command's buffer.
    #[inline]
    pub(super) fn deposit(&mut self, chunk: &[u8]) {
        let Incoming {
            sink,
            position,
            skip,
            base,
            want,
        } = self.incoming;
        let length = u32::try_from(chunk.len()).expect("a payload is far shorter than 4 GiB");
        self.incoming.position += length;
        let (Sink::Capsule(slot) | Sink::Transfer(slot, _)) = sink else {
            return;
        };
        let from = skip.saturating_sub(position).min(length);
        let to = (skip + want).saturating_sub(position).min(length);
        if from >= to {
            return;
        }
        let wanted = &chunk[from as usize..to as usize];
        let offset = (base + position + from - skip) as usize;
        if let Some(data) = &mut self.commands.slot(slot).transfer.data {
            data.copy_in(offset, wanted);
        }
    }

    /// Ends the payload; returns the resulting progress.
    pub(super) fn end_data(&mut self, digest_ok: bool) -> Delivery {
        let incoming = std::mem::replace(&mut self.incoming, Incoming::DISCARD);
        self.digest_errors += u64::from(!digest_ok);
        match incoming.sink {
            Sink::Discard => Delivery::Nothing,
            Sink::Capsule(slot) => {
                let transfer = &mut self.commands.slot(slot).transfer;
                transfer.received = transfer.length;
                transfer.damaged |= !digest_ok;
                Delivery::Whole(slot)
            }
            Sink::Transfer(slot, number) => {
                let transfer = &mut self.commands.slot(slot).transfer;
                transfer.damaged |= !digest_ok;
                transfer.received += incoming.want;
                let places = transfer.missing.len();
                transfer.missing[usize::from(number) % places] -= incoming.want;
                while transfer.r2ts_done < transfer.r2ts_sent
                    && transfer.missing[usize::from(transfer.r2ts_done) % places] == 0
                {
                    transfer.r2ts_done += 1;
                }
                if transfer.received < transfer.length {
                    return Delivery::Partial(slot);
                }
                assert!(
                    transfer.r2ts_done == transfer.r2ts_sent,
                    "a command with all its data has an outstanding R2T"
                );
                self.transferring -= 1;
                Delivery::Whole(slot)
            }
        }
    }

    /// Begins a direct receive of the remaining payload into its command's buffer, and returns the
    /// slice to fill; `None` if too little remains to be worthwhile, or if no command takes it.
    pub(super) fn take_destination(&mut self) -> Option<IoSlice> {
        let (Sink::Capsule(slot) | Sink::Transfer(slot, _)) = self.incoming.sink else {
            return None;
        };
        let Incoming {
            position,
            skip,
            base,
            want,
            ..
        } = self.incoming;
        let wanted = (skip + want)
            .checked_sub(position)
            .filter(|_| position >= skip)?;
        let length = self.receiver.direct_bytes(wanted)?;
        let offset = base + position - skip;
        let data = &mut self.commands.get(slot)?.transfer.data;
        let data = data.take_if(|data| data.bytes_mut().is_some())?;
        Some(self.receiver.arm_direct(slot, data, offset, length))
    }

    /// Returns a buffer to its command after `filled` bytes were received directly into it.
    pub(super) fn put_back(&mut self, direct: DirectReceive, into: IoSlice, filled: usize) {
        let data = self.receiver.filled(direct, into, filled);
        self.incoming.position += u32::try_from(filled).expect("a PDU is shorter than 4 GiB");
        if let Some(entry) = self.commands.get(direct.slot) {
            entry.transfer.data = Some(data);
        }
    }
}
