//! The framer: parses a byte stream, in pieces of any size, into PDUs.
//!
//! It holds the position in the stream, the running data digest, and a carry buffer for a header
//! that straddles two pieces. It copies no payload, allocates nothing, and no input makes it panic;
//! after its first error it returns only that error.
//!
//! A PDU that is complete in the input is one [`Event::Pdu`]. The payload of every other PDU is
//! returned as it arrives: [`Event::DataBegin`], any number of [`Event::DataChunk`],
//! [`Event::DataEnd`]. Between the first and the last a caller may also receive directly into the
//! payload's destination, see [`Framer::advance_external`].

mod body;

use self::body::{Body, no_body, term_body};
pub use crate::tcp::header::Role;
use crate::tcp::header::{CommonHeader, DataAlignment, HDGSTF, PduType};
use crate::tcp::limits::{
    CAPSULE_CMD_BYTES, COMMON_HEADER_BYTES, DIGEST_BYTES, HEADER_BYTES_MAX, IC_BYTES,
    SHORT_HEADER_BYTES, TERM_REQ_BYTES_MAX,
};
use crate::tcp::{C2hData, CapsuleCmd, CapsuleResp, FramingError, H2cData, IcReq, IcResp};
use crate::tcp::{PduHeader, R2t, TermReq, digest};

/// Maximum data of one PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FramerLimits {
    /// Maximum bytes of in-capsule data in a CapsuleCmd.
    pub capsule_data_bytes: u32,
    /// Maximum bytes of data in an H2CData (MAXH2CDATA) or C2HData PDU (maximum transfer).
    pub data_pdu_bytes: u32,
}

/// An event of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A complete PDU.
    Pdu {
        /// The header.
        header: PduHeader,
        /// The payload, if the PDU has one; never empty.
        data: Option<&'a [u8]>,
        /// False if there is a data digest and it does not match; the header is valid anyway.
        digest_ok: bool,
    },
    /// A header whose payload is not complete.
    DataBegin {
        /// The header.
        header: PduHeader,
        /// Bytes of payload that follow.
        data_length: u32,
    },
    /// The next bytes of payload; never empty.
    DataChunk(&'a [u8]),
    /// The payload is complete.
    DataEnd {
        /// False if there is a data digest and it does not match.
        digest_ok: bool,
    },
}

/// The next part of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A header; the carry buffer has its first bytes.
    Header,
    /// Padding of this length, then the payload.
    Padding { left: u32 },
    /// Payload of this length.
    Data { left: u32 },
    /// The data digest; the carry buffer has its first bytes.
    DataDigest,
    /// The stream violated the protocol, and the carry buffer has the offending header; the final
    /// state.
    Failed(FramingError),
}

/// Parses a byte stream into PDUs.
#[derive(Debug, Clone)]
pub struct Framer {
    state: State,
    role: Role,
    initialized: bool,
    header_digest: bool,
    data_digest: bool,
    /// Alignment in bytes of the data of received PDUs.
    alignment: u32,
    limits: FramerLimits,
    /// Payload that follows the padding.
    body: Body,
    /// Digest of the payload so far.
    crc: u32,
    carry: [u8; HEADER_BYTES_MAX],
    carry_length: usize,
}

impl Framer {
    /// A framer at the start of a stream, before the connection is initialized.
    pub const fn new(role: Role, limits: FramerLimits) -> Self {
        Self {
            state: State::Header,
            role,
            initialized: false,
            header_digest: false,
            data_digest: false,
            alignment: 4,
            limits,
            body: Body::NONE,
            crc: 0,
            carry: [0; HEADER_BYTES_MAX],
            carry_length: 0,
        }
    }

    /// A framer that continues an initialized stream at the start of a PDU.
    pub const fn resumed(role: Role, limits: FramerLimits) -> Self {
        let mut framer = Self::new(role, limits);
        framer.initialized = true;
        framer
    }

    /// Returns true once ICReq or ICResp was received.
    pub const fn is_initialized(&self) -> bool {
        self.initialized
    }

    /// Returns the received bytes of the next header, between two PDUs or within a header; `None`
    /// within a payload.
    pub fn carried(&self) -> Option<&[u8]> {
        let within_header = matches!(self.state, State::Header);
        within_header.then(|| &self.carry[..self.carry_length])
    }

    /// Returns the role of this end.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Sets the negotiated digests, from the next PDU on.
    pub const fn set_digests(&mut self, header: bool, data: bool) {
        self.header_digest = header;
        self.data_digest = data;
    }

    /// Sets the data alignment requested by this end (CPDA or HPDA), from the next PDU on.
    pub const fn set_alignment(&mut self, alignment: DataAlignment) {
        self.alignment = (alignment.code() as u32 + 1) * 4;
    }

    /// Sets the maximum data of one PDU, from the next PDU on.
    pub const fn set_limits(&mut self, limits: FramerLimits) {
        self.limits = limits;
    }

    /// Returns the next event, and removes its bytes from the front of `input`; `None` if `input`
    /// is used up and more data is needed.
    ///
    /// An event may occur without input: the end of a payload received with
    /// [`Self::advance_external`].
    ///
    /// # Errors
    ///
    /// The peer violated the protocol. The connection must end; the framer stays in that error.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, FramingError> {
        if matches!(self.state, State::Header) {
            self.next_header(input)
        } else {
            self.next_body(input)
        }
    }

    /// Returns the payload bytes due next; `None` outside a payload.
    #[inline]
    pub const fn data_remaining(&self) -> Option<u32> {
        match self.state {
            State::Data { left } if left > 0 => Some(left),
            _ => None,
        }
    }

    /// Returns true if payload has a digest, so that the framer must see its bytes.
    #[inline]
    pub const fn digests_data(&self) -> bool {
        self.data_digest
    }

    /// Like [`Self::advance_external`] for payload that the caller cannot read because it is in
    /// device memory: `length` bytes of it.
    ///
    /// # Panics
    ///
    /// If `length` exceeds [`Self::data_remaining`], or data digests were negotiated, which require
    /// the bytes.
    pub fn advance_unseen(&mut self, length: u32) {
        assert!(!self.data_digest, "a digest needs the bytes");
        let State::Data { left } = self.state else {
            panic!("no payload is due");
        };
        let left = left.checked_sub(length).expect("at most what is due");
        self.state = State::Data { left };
    }

    /// Notes payload that the caller received directly, without [`Self::next`]: `bytes` are the
    /// next payload bytes in their destination.
    ///
    /// # Panics
    ///
    /// If `bytes` exceed [`Self::data_remaining`].
    pub fn advance_external(&mut self, bytes: &[u8]) {
        let State::Data { left } = self.state else {
            panic!("payload outside a payload");
        };
        let taken = u32::try_from(bytes.len()).expect("a payload is far shorter than 4 GiB");
        assert!(taken <= left, "more payload than the PDU has");
        if self.body.has_digest {
            self.crc = digest::crc32c_append(self.crc, bytes);
        }
        self.state = State::Data { left: left - taken };
    }

    /// Returns true if the stream is between two PDUs: the only position for an orderly end.
    pub const fn is_between_pdus(&self) -> bool {
        matches!(self.state, State::Header) && self.carry_length == 0
    }

    /// Returns the received part of the header that caused an error: at most 128 bytes, the limit
    /// of a termination request.
    pub fn offending_header(&self) -> &[u8] {
        match self.state {
            State::Failed(_) => &self.carry[..self.carry_length],
            _ => &[],
        }
    }

    /// Writes the termination request for an error; returns its length.
    pub fn encode_term_req(
        &self,
        error: &FramingError,
        out: &mut [u8; TERM_REQ_BYTES_MAX],
    ) -> usize {
        error
            .term_req()
            .encode(self.role, self.offending_header(), out)
    }

    #[inline]
    fn next_header<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, FramingError> {
        if self.carry_length == 0
            && let Some(common) = input.first_chunk()
        {
            let common = CommonHeader::parse(common);
            let extent = match self.header_extent(&common) {
                Ok(extent) => extent,
                Err(error) => return Err(self.fail(input, error)),
            };
            if let Some((header, rest)) = input.split_at_checked(extent) {
                let opened = self.open(&common, header);
                return match opened {
                    Ok((pdu, body)) => {
                        *input = rest;
                        Ok(Some(self.deliver(pdu, body, input)))
                    }
                    Err(error) => Err(self.fail(header, error)),
                };
            }
        }
        self.next_carried_header(input)
    }

    /// The slow path: a header that was not complete in one input.
    #[cold]
    fn next_carried_header<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<Event<'a>>, FramingError> {
        if !self.fill_carry(input, COMMON_HEADER_BYTES) {
            return Ok(None);
        }
        let carry = self.carry;
        let common = carry
            .first_chunk()
            .expect("the carry buffer is longer than 8 bytes");
        let common = CommonHeader::parse(common);
        let extent = match self.header_extent(&common) {
            Ok(extent) => extent,
            Err(error) => return Err(self.fail(&carry[..self.carry_length], error)),
        };
        if !self.fill_carry(input, extent) {
            return Ok(None);
        }
        let carry = self.carry;
        match self.open(&common, &carry[..extent]) {
            Ok((pdu, body)) => {
                self.carry_length = 0;
                Ok(Some(self.deliver(pdu, body, input)))
            }
            Err(error) => Err(self.fail(&carry[..extent], error)),
        }
    }

    /// Moves input to the carry buffer until it has `wanted` bytes; returns false if the input ends
    /// first.
    fn fill_carry(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        debug_assert!(
            wanted <= self.carry.len(),
            "the longest header fits into the buffer"
        );
        let missing = wanted.saturating_sub(self.carry_length);
        let taken = missing.min(input.len());
        let (head, rest) = input.split_at(taken);
        self.carry[self.carry_length..self.carry_length + taken].copy_from_slice(head);
        self.carry_length += taken;
        *input = rest;
        taken == missing
    }

    /// Checks the fields that determine the end of the header; returns its bytes with digest.
    #[inline]
    fn header_extent(&self, common: &CommonHeader) -> Result<usize, FramingError> {
        let code = common.pdu_type;
        let pdu_type = PduType::from_code(code)
            .filter(|pdu_type| self.role.receives(*pdu_type))
            .ok_or(FramingError::UnexpectedType { code })?;
        let in_sequence = match pdu_type {
            PduType::IcReq | PduType::IcResp => !self.initialized,
            PduType::H2cTermReq | PduType::C2hTermReq => true,
            _ => self.initialized,
        };
        if !in_sequence {
            return Err(FramingError::OutOfSequence { code });
        }
        let expected = pdu_type.header_length();
        if usize::from(common.hlen) != expected {
            let expected = u8::try_from(expected).expect("no header is longer than 128 bytes");
            return Err(FramingError::HeaderLength {
                received: common.hlen,
                expected,
            });
        }
        let has_digest = pdu_type.has_digests() && self.header_digest;
        if (common.flags & HDGSTF != 0) != has_digest {
            return Err(FramingError::DigestFlags {
                flags: common.flags,
            });
        }
        Ok(if has_digest {
            expected + DIGEST_BYTES
        } else {
            expected
        })
    }

    /// Checks and parses a complete header with its digest.
    #[inline]
    fn open(
        &mut self,
        common: &CommonHeader,
        header: &[u8],
    ) -> Result<(PduHeader, Body), FramingError> {
        if common.flags & HDGSTF != 0 {
            check_header_digest(header)?;
        }
        let extent = header.len();
        let plain = |common: &CommonHeader| no_body(common, extent);
        Ok(match common.pdu_type {
            0x04 => {
                let body = self.capsule_body(common, extent)?;
                (
                    PduHeader::CapsuleCmd(CapsuleCmd::parse(exactly::<CAPSULE_CMD_BYTES>(header))),
                    body,
                )
            }
            0x05 => {
                plain(common)?;
                (
                    PduHeader::CapsuleResp(CapsuleResp::parse(exactly(header))),
                    Body::NONE,
                )
            }
            0x06 => {
                let pdu = H2cData::parse(exactly(header));
                let body = self.data_body(common, extent, pdu.data_length)?;
                (PduHeader::H2cData(pdu), body)
            }
            0x07 => {
                let pdu = C2hData::parse(exactly(header))?;
                let body = self.data_body(common, extent, pdu.data_length)?;
                (PduHeader::C2hData(pdu), body)
            }
            0x09 => {
                plain(common)?;
                (PduHeader::R2t(R2t::parse(exactly(header))), Body::NONE)
            }
            0x00 => {
                plain(common)?;
                let pdu = IcReq::parse(exactly::<IC_BYTES>(header))?;
                self.initialized = true;
                (PduHeader::IcReq(pdu), Body::NONE)
            }
            0x01 => {
                plain(common)?;
                let pdu = IcResp::parse(exactly::<IC_BYTES>(header))?;
                self.initialized = true;
                (PduHeader::IcResp(pdu), Body::NONE)
            }
            code => {
                let body = term_body(common)?;
                let pdu = TermReq::parse(exactly::<SHORT_HEADER_BYTES>(header));
                let from_host = code == PduType::H2cTermReq.code();
                let pdu = if from_host {
                    PduHeader::H2cTermReq(pdu)
                } else {
                    PduHeader::C2hTermReq(pdu)
                };
                (pdu, body)
            }
        })
    }

    /// Returns a header with its payload if that is complete, or starts to wait for it.
    #[inline]
    fn deliver<'a>(&mut self, header: PduHeader, body: Body, input: &mut &'a [u8]) -> Event<'a> {
        if body.data == 0 {
            return Event::Pdu {
                header,
                data: None,
                digest_ok: true,
            };
        }
        let start = body.padding as usize;
        let end = start.saturating_add(body.data as usize);
        let whole = end.saturating_add(body.digest_bytes());
        let Some((pdu, rest)) = input.split_at_checked(whole) else {
            self.body = body;
            self.crc = 0;
            self.state = if body.padding == 0 {
                State::Data { left: body.data }
            } else {
                State::Padding { left: body.padding }
            };
            return Event::DataBegin {
                header,
                data_length: body.data,
            };
        };
        *input = rest;
        let data = &pdu[start..end];
        let digest_ok = !body.has_digest || pdu[end..] == digest::digest_bytes(data);
        Event::Pdu {
            header,
            data: Some(data),
            digest_ok,
        }
    }

    fn next_body<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, FramingError> {
        if let State::Padding { left } = self.state {
            let left = left - take(input, left).1;
            if left > 0 {
                self.state = State::Padding { left };
                return Ok(None);
            }
            self.state = State::Data {
                left: self.body.data,
            };
        }
        match self.state {
            State::Failed(error) => Err(error),
            State::Data { left } if left > 0 => {
                let (chunk, taken) = take(input, left);
                if taken == 0 {
                    return Ok(None);
                }
                if self.body.has_digest {
                    self.crc = digest::crc32c_append(self.crc, chunk);
                }
                self.state = State::Data { left: left - taken };
                Ok(Some(Event::DataChunk(chunk)))
            }
            _ => Ok(self.next_data_end(input)),
        }
    }

    /// Completes a payload; waits for its digest, if it has one.
    fn next_data_end<'a>(&mut self, input: &mut &'a [u8]) -> Option<Event<'a>> {
        let mut digest_ok = true;
        if self.body.has_digest {
            self.state = State::DataDigest;
            if !self.fill_carry(input, DIGEST_BYTES) {
                return None;
            }
            assert_eq!(
                self.carry_length, DIGEST_BYTES,
                "nothing is carried within a payload"
            );
            digest_ok = self.carry[..DIGEST_BYTES] == self.crc.to_le_bytes();
            self.carry_length = 0;
        }
        self.state = State::Header;
        Some(Event::DataEnd { digest_ok })
    }

    /// Ends the stream: keeps the offending header, and the error for every later call.
    #[cold]
    fn fail(&mut self, header: &[u8], error: FramingError) -> FramingError {
        let expected = header
            .first()
            .and_then(|code| PduType::from_code(*code))
            .map_or(COMMON_HEADER_BYTES, PduType::header_length);
        let kept = header.len().min(expected);
        self.carry[..kept].copy_from_slice(&header[..kept]);
        self.carry_length = kept;
        self.state = State::Failed(error);
        error
    }
}

/// Takes up to `wanted` bytes off the front of `input`; returns them and their number.
#[inline]
fn take<'a>(input: &mut &'a [u8], wanted: u32) -> (&'a [u8], u32) {
    let available = u32::try_from(input.len()).unwrap_or(u32::MAX);
    let taken = available.min(wanted);
    let (head, rest) = input.split_at(taken as usize);
    *input = rest;
    (head, taken)
}

/// Returns the first bytes of a header, whose length [`Framer::header_extent`] has checked.
#[inline]
fn exactly<const N: usize>(header: &[u8]) -> &[u8; N] {
    header
        .first_chunk()
        .expect("HLEN was checked to be that of the type")
}

#[inline]
fn check_header_digest(header: &[u8]) -> Result<(), FramingError> {
    let (covered, received) = header
        .split_last_chunk::<DIGEST_BYTES>()
        .expect("a header with digest has one");
    let received = u32::from_le_bytes(*received);
    let computed = digest::crc32c(covered);
    if received == computed {
        Ok(())
    } else {
        Err(FramingError::HeaderDigest { received, computed })
    }
}

#[cfg(test)]
mod tests;
