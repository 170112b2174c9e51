//! The messages: a header with a magic number, a sequence number and a block number, then payload.

use super::error::RawError;

/// Bytes of a request's header: the size of an NVMe/TCP command capsule without data.
pub const REQUEST_HEADER_BYTES: usize = 72;

/// Bytes of a response's header: the size of a C2HData header, whose SUCCESS flag replaces the
/// response capsule.
pub const RESPONSE_HEADER_BYTES: usize = 24;

const MAGIC: u64 = 0x6567_6e61_6863_7865;

/// Content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Counts up from zero without gaps.
    pub(super) sequence: u64,
    /// Block of the server's region that the response carries.
    pub(super) block: u64,
}

impl Message {
    /// Writes the header into the first 24 bytes of `out`.
    pub(super) fn encode(self, out: &mut [u8]) {
        out[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        out[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..24].copy_from_slice(&self.block.to_le_bytes());
    }

    fn decode(header: &[u8]) -> Result<Self, RawError> {
        let word = |at: usize| {
            let bytes = header[at..at + 8]
                .try_into()
                .expect("a header is at least 24 bytes");
            u64::from_le_bytes(bytes)
        };
        let magic = word(0);
        if magic != MAGIC {
            return Err(RawError::Peer {
                what: format!("a message begins with {magic:#018x}"),
            });
        }
        Ok(Self {
            sequence: word(8),
            block: word(16),
        })
    }
}

/// Finds messages in a stream that arrives in pieces of any size. Payload is skipped in place; only
/// a header that is split across pieces is copied.
#[derive(Debug)]
pub(super) struct Parser {
    header_bytes: usize,
    payload_bytes: usize,
    torn: [u8; REQUEST_HEADER_BYTES],
    torn_bytes: usize,
    current: Message,
    payload_left: usize,
}

impl Parser {
    /// A parser for messages of `header_bytes` (24 to 72) and `payload_bytes`.
    pub(super) fn new(header_bytes: usize, payload_bytes: usize) -> Self {
        assert!(
            header_bytes >= RESPONSE_HEADER_BYTES,
            "a header holds three words"
        );
        assert!(
            header_bytes <= REQUEST_HEADER_BYTES,
            "no header is longer than a request's"
        );
        Self {
            header_bytes,
            payload_bytes,
            torn: [0; REQUEST_HEADER_BYTES],
            torn_bytes: 0,
            current: Message {
                sequence: 0,
                block: 0,
            },
            payload_left: 0,
        }
    }

    /// Returns true if the stream is inside a message.
    pub(super) fn is_inside(&self) -> bool {
        self.torn_bytes > 0 || self.payload_left > 0
    }

    /// Takes the next `piece` of the stream; calls `each` for every message that ends in it.
    #[inline]
    pub(super) fn feed(
        &mut self,
        mut piece: &[u8],
        mut each: impl FnMut(Message) -> Result<(), RawError>,
    ) -> Result<(), RawError> {
        while !piece.is_empty() {
            if self.payload_left > 0 {
                let passed = self.payload_left.min(piece.len());
                self.payload_left -= passed;
                piece = &piece[passed..];
            } else if self.torn_bytes == 0 && piece.len() >= self.header_bytes {
                self.current = Message::decode(piece)?;
                piece = &piece[self.header_bytes..];
                self.payload_left = self.payload_bytes;
            } else {
                let taken = (self.header_bytes - self.torn_bytes).min(piece.len());
                self.torn[self.torn_bytes..self.torn_bytes + taken]
                    .copy_from_slice(&piece[..taken]);
                self.torn_bytes += taken;
                piece = &piece[taken..];
                if self.torn_bytes < self.header_bytes {
                    return Ok(());
                }
                self.torn_bytes = 0;
                self.current = Message::decode(&self.torn)?;
                self.payload_left = self.payload_bytes;
            }
            if self.payload_left == 0 {
                each(self.current)?;
            }
        }
        Ok(())
    }
}
