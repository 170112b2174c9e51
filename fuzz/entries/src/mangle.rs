//! A fuzzer's numbers, and PDUs that it changes.

use arbitrary::Unstructured;
use wire::tcp::{PduFormat, PduType, digest};

/// A number of the fuzzer's; 0 once its bytes are used up.
pub(crate) fn byte(u: &mut Unstructured<'_>) -> u8 {
    u.arbitrary().unwrap_or_default()
}

/// Takes a number of the fuzzer's; 0 once its bytes are used up.
pub(crate) fn word(u: &mut Unstructured<'_>) -> u16 {
    u.arbitrary().unwrap_or_default()
}

/// Takes a number of the fuzzer's; 0 once its bytes are used up.
pub(crate) fn dword(u: &mut Unstructured<'_>) -> u32 {
    u.arbitrary().unwrap_or_default()
}

/// One of `list`.
pub(crate) fn pick<T: Copy>(u: &mut Unstructured<'_>, list: &[T]) -> T {
    list[usize::from(byte(u)) % list.len()]
}

/// One time in so many.
pub(crate) fn seldom(u: &mut Unstructured<'_>, one_in: u8) -> bool {
    byte(u) % one_in == one_in - 1
}

/// The number of times that a PDU is sent, and the places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Once,
    Twice,
    /// After the next one.
    Later,
}

/// Changes a PDU as `how` says, and the fuzzer's numbers; with bit 5, so that its header digest
/// does not give it away.
pub(crate) fn mangle(
    pdu: &mut Vec<u8>,
    format: &PduFormat,
    how: u8,
    u: &mut Unstructured<'_>,
) -> Fate {
    let mut fate = Fate::Once;
    match how % 12 {
        0 | 1 => put(pdu, &[1 << (byte(u) % 8)], u, |old, bit| old ^ bit),
        2 | 3 => put(pdu, &[byte(u)], u, |_, new| new),
        4 => put(pdu, &word(u).to_le_bytes(), u, |_, new| new),
        5 | 6 => put(pdu, &dword(u).to_le_bytes(), u, |_, new| new),
        7 => put(pdu, &[0xff; 4], u, |_, new| new),
        8 => pdu.truncate(usize::from(word(u)) % (pdu.len() + 1)),
        9 => pdu.extend(vec![0x5a; usize::from(byte(u))]),
        10 => fate = Fate::Twice,
        _ => fate = Fate::Later,
    }
    if how & 0x20 != 0 && format.header_digest {
        reseal(pdu);
    }
    fate
}

/// Changes some bytes at a place that the fuzzer chooses, headers before data.
fn put(pdu: &mut [u8], new: &[u8], u: &mut Unstructured<'_>, how: impl Fn(u8, u8) -> u8) {
    let at = usize::from(byte(u));
    for (old, &new) in pdu.iter_mut().skip(at).zip(new) {
        *old = how(*old, new);
    }
}

/// Computes the header digest again.
fn reseal(pdu: &mut [u8]) {
    let Some(kind) = pdu.first().copied().and_then(PduType::from_code) else {
        return;
    };
    if let Some((header, rest)) = pdu.split_at_mut_checked(kind.header_length())
        && let Some(place) = rest.get_mut(..4)
    {
        place.copy_from_slice(&digest::digest_bytes(header));
    }
}
