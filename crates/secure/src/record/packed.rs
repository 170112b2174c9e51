//! The state of both directions as bytes, with which another process continues the connection.
//!
//! They contain the traffic secrets, so their owner overwrites them.

use super::{Keys, Messages, Opener, Sealer, Suite};
use base::mutation::{self, Mutation};
use zeroize::Zeroizing;

/// Most bytes of both directions: suite, sequence number and secret of each, and the counters.
const BYTES_MAX: usize = 2 * (2 + 8 + 48) + 4 * 8 + 6;

/// Sequence numbers of a working connection are smaller.
const SEQUENCE_MAX: u64 = 1 << 62;

/// Returns the state of both directions, with room for `more` bytes: an allocation that grows would
/// leave a copy behind.
#[must_use]
pub fn pack(sealer: &Sealer, opener: &Opener, more: usize) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(BYTES_MAX + more));
    for keys in [&sealer.keys, &opener.keys] {
        out.extend_from_slice(&keys.suite.number());
        let sequence = match mutation::active(Mutation::TakeOverForgetsRecords) {
            true => 0,
            false => keys.sequence,
        };
        out.extend_from_slice(&sequence.to_le_bytes());
        out.extend_from_slice(&keys.secret);
    }
    let Messages { begun, len, skip } = opener.messages;
    for number in [opener.updates, opener.opened, len as u64, skip as u64] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&begun);
    out.push(u8::from(opener.update_asked));
    out
}

/// Reads the state of both directions from the front of `fields`; `None` if it is malformed.
#[must_use]
pub fn unpack(fields: &mut Fields<'_>) -> Option<(Sealer, Opener)> {
    let (sent, received) = (keys(fields)?, keys(fields)?);
    let (updates, opened) = (fields.number()?, fields.number()?);
    let (len, skip) = (fields.number()?, fields.number()?);
    let begun = fields.take()?;
    let [asked] = fields.take()?;
    let fits = sent.suite == received.suite && len < 5 && skip < 1 << 24;
    if !fits || updates.max(opened) > SEQUENCE_MAX {
        return None;
    }
    let messages = Messages {
        begun,
        len: usize::try_from(len).ok()?,
        skip: usize::try_from(skip).ok()?,
    };
    let opener = Opener {
        keys: received,
        messages,
        update_asked: asked != 0,
        updates,
        opened,
    };
    Some((Sealer { keys: sent }, opener))
}

fn keys(fields: &mut Fields<'_>) -> Option<Keys> {
    let suite = Suite::from_number(fields.take()?)?;
    let sequence = fields.number().filter(|&number| number <= SEQUENCE_MAX)?;
    let secret = fields.bytes(suite.secret_bytes())?;
    Some(Keys::new(suite, secret, sequence))
}

/// Reads fields from the front of bytes.
#[derive(Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the next `len` bytes; `None` at the end.
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Returns the next `N` bytes; `None` at the end.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// Returns the next number of 8 bytes, little-endian; `None` at the end.
    pub fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}
