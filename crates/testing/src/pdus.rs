//! The PDUs of a stream of bytes, with their data in one piece.

use wire::tcp::{Event, Framer, FramerLimits, FramingError, PduHeader, Role};

/// More data than any PDU of a session has.
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
    /// False when the data digest does not match.
    pub digest_ok: bool,
    /// [`Found::Begins`] came before.
    pub announced: bool,
}

/// The next part of a stream.
#[derive(Clone, Debug)]
pub enum Found {
    /// The header of a PDU with data that has not all arrived.
    Begins(PduHeader),
    /// A whole PDU.
    Whole(Pdu),
}

/// Finds PDUs in what one end of a connection sends.
#[derive(Debug)]
pub struct Pdus {
    /// The state of framing: digests and alignment are set here.
    pub framer: Framer,
    input: Vec<u8>,
    /// A PDU with data that has not all arrived.
    begun: Option<Pdu>,
}

impl Pdus {
    /// Makes the stream that this end receives.
    pub fn to(role: Role) -> Self {
        Self {
            framer: Framer::new(role, LIMITS),
            input: Vec::new(),
            begun: None,
        }
    }

    /// More bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The next PDU, or the header of one; `None` when more bytes are needed.
    ///
    /// # Errors
    /// The other end broke the rules of framing.
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
