//! The lists that Identify returns: namespaces, controllers, identifiers, command sets.
//!
//! Each has 4096 bytes. Encoders take any number of entries and return the number that fitted.

use crate::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::limits::{CONTROLLER_LIST_ENTRIES, IDENTIFY_BYTES, NAMESPACE_LIST_ENTRIES};

/// Encodes a Namespace List: ascending identifiers, zero after the last. Returns the number that
/// fitted. `[NVMe Base 2.0 §4.4.2]`
pub fn encode_namespace_list(
    nsids: impl IntoIterator<Item = u32>,
    out: &mut [u8; IDENTIFY_BYTES],
) -> usize {
    out.fill(0);
    let mut count = 0;
    for nsid in nsids.into_iter().take(NAMESPACE_LIST_ENTRIES) {
        put_u32(out, count * 4, nsid);
        count += 1;
    }
    count
}

/// Parses a Namespace List: its identifiers up to the first zero.
pub fn parse_namespace_list(bytes: &[u8; IDENTIFY_BYTES]) -> impl Iterator<Item = u32> + '_ {
    (0..NAMESPACE_LIST_ENTRIES)
        .map(|index| u32_at(bytes, index * 4))
        .take_while(|nsid| *nsid != 0)
}

/// Encodes a Controller List: a count, then ascending identifiers. Returns the number that fitted.
/// `[NVMe Base 2.0 §4.4.1]`
pub fn encode_controller_list(
    cntlids: impl IntoIterator<Item = u16>,
    out: &mut [u8; IDENTIFY_BYTES],
) -> u16 {
    out.fill(0);
    let mut count = 0_u16;
    for cntlid in cntlids.into_iter().take(CONTROLLER_LIST_ENTRIES) {
        count += 1;
        put_u16(out, usize::from(count) * 2, cntlid);
    }
    put_u16(out, 0, count);
    count
}

/// Parses a Controller List; a count beyond its capacity is reduced to that.
pub fn parse_controller_list(bytes: &[u8; IDENTIFY_BYTES]) -> impl Iterator<Item = u16> + '_ {
    let count = usize::from(u16_at(bytes, 0)).min(CONTROLLER_LIST_ENTRIES);
    (1..=count).map(|index| u16_at(bytes, index * 2))
}

/// One identifier of a namespace. `[NVMe Base 2.0 §5.17.2.3]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NamespaceId {
    /// EUI64, big-endian.
    Eui64([u8; 8]),
    /// NGUID, big-endian.
    Nguid([u8; 16]),
    /// UUID, in its standard byte order.
    Uuid([u8; 16]),
    /// The I/O command set.
    CommandSet(u8),
}

impl NamespaceId {
    fn kind_and_bytes(&self) -> (u8, &[u8]) {
        match self {
            Self::Eui64(id) => (1, id),
            Self::Nguid(id) => (2, id),
            Self::Uuid(id) => (3, id),
            Self::CommandSet(id) => (4, core::slice::from_ref(id)),
        }
    }

    fn from_kind_and_bytes(kind: u8, bytes: &[u8]) -> Option<Self> {
        Some(match kind {
            1 => Self::Eui64(bytes.try_into().ok()?),
            2 => Self::Nguid(bytes.try_into().ok()?),
            3 => Self::Uuid(bytes.try_into().ok()?),
            4 => Self::CommandSet(<[u8; 1]>::try_from(bytes).ok()?[0]),
            _ => return None,
        })
    }
}

/// Bytes before an identifier: NIDT, NIDL, two reserved.
const DESCRIPTOR_HEADER_BYTES: usize = 4;

/// Encodes a Namespace Identification Descriptor List. Returns its bytes.
///
/// # Panics
///
/// If the descriptors do not fit, which takes more than 200 of them; a namespace has four kinds.
pub fn encode_namespace_descriptors(
    ids: impl IntoIterator<Item = NamespaceId>,
    out: &mut [u8; IDENTIFY_BYTES],
) -> usize {
    out.fill(0);
    let mut position = 0;
    for id in ids {
        let (kind, bytes) = id.kind_and_bytes();
        out[position] = kind;
        out[position + 1] = u8::try_from(bytes.len()).expect("at most 16");
        position += DESCRIPTOR_HEADER_BYTES;
        out[position..position + bytes.len()].copy_from_slice(bytes);
        position += bytes.len();
    }
    position
}

/// Parses a Namespace Identification Descriptor List. Unknown kinds are skipped; a descriptor
/// beyond the end terminates the list.
pub fn parse_namespace_descriptors(
    bytes: &[u8; IDENTIFY_BYTES],
) -> impl Iterator<Item = NamespaceId> + '_ {
    let mut rest: &[u8] = bytes;
    core::iter::from_fn(move || {
        loop {
            let (header, after) = rest.split_first_chunk::<DESCRIPTOR_HEADER_BYTES>()?;
            let length = usize::from(header[1]);
            if length == 0 {
                return None;
            }
            let (id, after) = after.split_at_checked(length)?;
            rest = after;
            if let Some(id) = NamespaceId::from_kind_and_bytes(header[0], id) {
                return Some(id);
            }
        }
    })
}

/// Number of entries of the Identify I/O Command Set structure.
const COMMAND_SET_VECTORS: usize = IDENTIFY_BYTES / 8;

/// Bit of the NVM command set in a command set vector.
pub const COMMAND_SET_NVM: u64 = 1 << 0;

/// Encodes the Identify I/O Command Set structure (CNS 1Ch): combinations of command sets that can
/// be enabled together. Returns the number that fitted. `[NVMe Base 2.0 §5.17.2.19]`
pub fn encode_command_sets(
    combinations: impl IntoIterator<Item = u64>,
    out: &mut [u8; IDENTIFY_BYTES],
) -> usize {
    out.fill(0);
    let mut count = 0;
    for vector in combinations.into_iter().take(COMMAND_SET_VECTORS) {
        put_u64(out, count * 8, vector);
        count += 1;
    }
    count
}

/// Parses the Identify I/O Command Set structure: its combinations up to the first empty one.
pub fn parse_command_sets(bytes: &[u8; IDENTIFY_BYTES]) -> impl Iterator<Item = u64> + '_ {
    (0..COMMAND_SET_VECTORS)
        .map(|index| u64_at(bytes, index * 8))
        .take_while(|vector| *vector != 0)
}
