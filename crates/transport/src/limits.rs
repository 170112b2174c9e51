//! Limits of this crate, each with its unit in the name and its reason.

use wire::tcp::CapsuleResp;
use wire::tcp::limits::{DIGEST_BYTES, PREFIX_BYTES_MAX, TERM_REQ_BYTES_MAX};

/// Minimum missing bytes of a payload for a receive directly into its destination. Below it, a
/// copy from the receive buffer costs less than another system call.
pub const DIRECT_RECEIVE_BYTES_MIN: usize = 8 * 1024;

/// Maximum header bytes of a command or response in a send list: header of the data PDU with digest
/// and padding, data digest, and a CapsuleResp.
pub const PDU_HEADER_BYTES_MAX: usize =
    PREFIX_BYTES_MAX + DIGEST_BYTES + CapsuleResp::SIZE + DIGEST_BYTES;

/// Maximum ranges of a command or response in a send list: header, payload, and digest with
/// response.
pub const PDU_RANGES_MAX: usize = 3;

/// Segments of a command or response with data in a caravan: header, and data. A following digest
/// or response shares the segment of the next header.
pub const DATA_IOVECS: u32 = 2;

const _: () = assert!(
    TERM_REQ_BYTES_MAX <= PDU_HEADER_BYTES_MAX,
    "a termination request fits where an answer does"
);

/// Size of a file with keys in bytes: all keys at their longest, and as much again for comments.
pub const KEY_FILE_BYTES_MAX: usize = 16 * 1024;

/// Keys in one file. A change of keys needs two; each key more costs a target that looks for the
/// one of a host up to four derivations.
pub const KEYS_PER_FILE_MAX: usize = 16;
