//! Invalid field values of PDUs, and the receiver's required reaction. `[NVMe-TCP 1.0 §3.6]`

use wire::nvme::Status;
use wire::tcp::FatalErrorStatus as Fes;
use wire::tcp::{PduType, digest};

/// "Invalid PDU Header Field".
pub const FIELD: Fes = Fes::INVALID_PDU_HEADER_FIELD;
/// "PDU Sequence Error".
pub const SEQUENCE: Fes = Fes::PDU_SEQUENCE_ERROR;
/// "Header Digest Error".
pub const DIGEST: Fes = Fes::HEADER_DIGEST_ERROR;
/// "Data Transfer Out of Range".
pub const RANGE: Fes = Fes::DATA_TRANSFER_OUT_OF_RANGE;
/// "Data Transfer Limit Exceeded".
pub const LIMIT: Fes = Fes::DATA_TRANSFER_LIMIT_EXCEEDED;
/// "Unsupported Parameter".
pub const PARAMETER: Fes = Fes::UNSUPPORTED_PARAMETER;

/// Reaction of the receiver to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Terminates the connection, with this Fatal Error Status and Information.
    Tells(Fes, u32),
    /// Closes the connection.
    Closes,
    /// Completes the command with this status.
    Answers(Status),
    /// Ignores the value.
    Ignores,
}

use Reaction::{Ignores, Tells};

/// An offset in a PDU, and the replacement bytes.
pub type Edit = (usize, Vec<u8>);

/// A PDU with an invalid value.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, for messages.
    pub what: String,
    /// Type of the changed PDU.
    pub pdu: PduType,
    /// The changes.
    pub edits: Vec<Edit>,
    /// The connection has digests.
    pub digests: bool,
    /// The header digest is recomputed after the change.
    pub reseal: bool,
    /// Bytes sent before the PDU.
    pub before: Vec<u8>,
    /// Reaction of the receiver.
    pub reaction: Reaction,
}

impl Case {
    /// A case without digests.
    #[must_use]
    pub fn new(pdu: PduType, what: &str, edits: Vec<Edit>, reaction: Reaction) -> Self {
        Self {
            what: format!("{}: {what} {edits:x?}", pdu.name()),
            pdu,
            edits,
            digests: false,
            reseal: true,
            before: Vec::new(),
            reaction,
        }
    }

    /// Changes a PDU with this number of bytes in its header.
    pub fn apply(&self, pdu: &mut [u8], header: usize) {
        apply(pdu, &self.edits);
        if self.digests && self.reseal {
            reseal(pdu, header);
        }
    }
}

/// Applies the edits to `bytes`.
pub fn apply(bytes: &mut [u8], edits: &[Edit]) {
    for (at, edit) in edits {
        bytes[*at..at + edit.len()].copy_from_slice(edit);
    }
}

/// Recomputes the digest after a header.
pub fn reseal(pdu: &mut [u8], header: usize) {
    let digest = digest::digest_bytes(&pdu[..header]);
    pdu[header..header + 4].copy_from_slice(&digest);
}

/// An edit of a byte.
#[must_use]
pub fn byte(at: usize, value: u8) -> Edit {
    (at, vec![value])
}

/// An edit of 16 bits.
#[must_use]
pub fn half(at: usize, value: u16) -> Edit {
    (at, value.to_le_bytes().to_vec())
}

/// An edit of 32 bits.
#[must_use]
pub fn word(at: usize, value: u32) -> Edit {
    (at, value.to_le_bytes().to_vec())
}

/// Cases of the common header of a PDU with these flags, header length and total length; PLEN takes
/// the given wrong values. `by_type` is the reaction to a different type; `None` omits that case.
/// `[NVMe-TCP 1.0 §3.6.1]`
pub fn common_header(
    pdu: PduType,
    flags: u8,
    hlen: u8,
    lengths: &[u32],
    by_type: impl Fn(PduType) -> Option<Reaction>,
) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |what, edit, reaction| cases.push(Case::new(pdu, what, vec![edit], reaction));
    for code in 0..=255 {
        let reaction = PduType::from_code(code).map_or(Some(Tells(FIELD, 0)), &by_type);
        if let Some(reaction) = reaction {
            case("PDU-Type", byte(0, code), reaction);
        }
    }
    case("HDGSTF", byte(1, flags | 0x01), Tells(FIELD, 1));
    for bit in [0x10, 0x20, 0x40, 0x80] {
        case("reserved flag", byte(1, flags | bit), Ignores);
    }
    let other = if hlen == 72 { 64 } else { 72 };
    for wrong in [0, 8, hlen - 1, hlen + 1, other, 255] {
        case("HLEN", byte(2, wrong), Tells(FIELD, 2));
    }
    for &wrong in [0, 7, u32::from(hlen) - 1, u32::MAX].iter().chain(lengths) {
        case("PLEN", word(4, wrong), Tells(FIELD, 4));
    }
    cases
}

/// Cases of the digests of a PDU with a header digest, and with a data digest if its flags include
/// one. `[NVMe-TCP 1.0 §3.3.1.1]`
#[must_use]
pub fn digests(pdu: PduType, flags: u8, hlen: usize) -> Vec<Case> {
    let case = |what, edit, reseal, reaction| Case {
        digests: true,
        reseal,
        ..Case::new(pdu, what, vec![edit], reaction)
    };
    let mut cases = vec![case(
        "HDGST",
        word(hlen, 0x1234_5678),
        false,
        Tells(DIGEST, 0x1234_5678),
    )];
    for (what, flag) in [("HDGSTF missing", 0x01), ("DDGSTF missing", 0x02)] {
        if flags & flag != 0 {
            let edit = byte(1, flags & !flag);
            cases.push(case(what, edit, true, Tells(FIELD, 1)));
        }
    }
    cases
}

/// Cases of the fields that data PDUs of both directions have. `length` is the number of data
/// bytes, all that remain of the command or R2T. `[NVMe-TCP 1.0 §3.6.2.8, §3.6.2.9]`
#[must_use]
pub fn data_pdu(pdu: PduType, flags: u8, length: u32) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |what, edits, reaction| cases.push(Case::new(pdu, what, edits, reaction));
    case("DDGSTF", vec![byte(1, flags | 0x02)], Tells(FIELD, 1));
    // Less than the header, not a multiple of the alignment, more padding than any alignment
    // causes.
    for offset in [0, 8, 23, 25, 26, 152, 255] {
        case("PDO", vec![byte(3, offset)], Tells(FIELD, 3));
    }
    case("PDO that leaves less", vec![byte(3, 28)], Tells(FIELD, 4));
    for identifier in [0x7fff, 0xffff] {
        case("CCCID", vec![half(8, identifier)], Tells(FIELD, 8));
    }
    for offset in [1, 4, length, u32::MAX - length + 1, u32::MAX] {
        case("DATAO", vec![word(12, offset)], Tells(RANGE, 0));
    }
    case("DATAL", vec![word(16, 0)], Tells(FIELD, 16));
    for length in [1, length - 1, length + 1] {
        let edits = vec![word(16, length)];
        case("DATAL and PLEN differ", edits, Tells(FIELD, 4));
    }
    case("reserved", vec![word(20, u32::MAX)], Ignores);
    cases
}
