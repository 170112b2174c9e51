//! Splits a byte stream into PDUs, with each PDU's data in one piece.

use wire::tcp::{Event, Framer, FramerLimits, FramingError, PduHeader, Role};

/// Limits above any PDU of a session.
const LIMITS: FramerLimits = FramerLimits {
    capsule_data_bytes: 1 << 20,
    data_pdu_bytes: 16 << 20,
};

/// A PDU with its data.
#[derive(Clone, Debug)]
pub struct Pdu {
    /// Its header.
    pub header: PduHeader,
    /// Its data, without the digest.
    pub data: Vec<u8>,
    /// False if the data digest does not match.
    pub digest_ok: bool,
    /// [`Found::Begins`] preceded this PDU.
    pub announced: bool,
}

/// The next event in a stream.
#[derive(Clone, Debug)]
pub enum Found {
    /// The header of a PDU whose data has not fully arrived.
    Begins(PduHeader),
    /// A complete PDU.
    Whole(Pdu),
}

/// Finds PDUs in the byte stream of one direction of a connection.
#[derive(Debug)]
pub struct Pdus {
    /// The framer, which also holds the digest and alignment settings.
    pub framer: Framer,
    input: Vec<u8>,
    /// A PDU whose data has not fully arrived.
    begun: Option<Pdu>,
}

impl Pdus {
    /// The parser of the stream that an end with this role receives.
    pub fn to(role: Role) -> Self {
        Self {
            framer: Framer::new(role, LIMITS),
            input: Vec::new(),
            begun: None,
        }
    }

    /// Appends bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Returns the next PDU, or the header of one; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The sender violated the framing rules.
    pub fn find(&mut self) -> Result<Option<Found>, FramingError> {
        let mut input = self.input.as_slice();
        let mut found = None;
        while found.is_none() {
            match self.framer.next(&mut input)? {
                None => break,
                Some(Event::Pdu {
                    header,
                    data,
                    digest_ok,
                }) => {
                    found = Some(Found::Whole(Pdu {
                        header,
                        data: data.unwrap_or_default().to_vec(),
                        digest_ok,
                        announced: false,
                    }));
                }
                Some(Event::DataBegin { header, .. }) => {
                    self.begun = Some(Pdu {
                        header,
                        data: Vec::new(),
                        digest_ok: true,
                        announced: true,
                    });
                    found = Some(Found::Begins(header));
                }
                Some(Event::DataChunk(chunk)) => {
                    if let Some(pdu) = &mut self.begun {
                        pdu.data.extend_from_slice(chunk);
                    }
                }
                Some(Event::DataEnd { digest_ok }) => {
                    let begun = self.begun.take();
                    found = begun.map(|pdu| Found::Whole(Pdu { digest_ok, ..pdu }));
                }
            }
        }
        let used = self.input.len() - input.len();
        self.input.drain(..used);
        Ok(found)
    }
}
