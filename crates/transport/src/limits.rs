//! Every limit of this crate, with its unit in the name and its reason beside it.

use wire::tcp::CapsuleResp;
use wire::tcp::limits::{DIGEST_BYTES, PREFIX_BYTES_MAX, TERM_REQ_BYTES_MAX};

/// Payload of which more bytes than this are missing is received straight to where it belongs.
/// Below it a copy from the receive buffer costs less than another system call.
pub const DIRECT_RECEIVE_BYTES_MIN: usize = 8 * 1024;

/// Header bytes that a command or an answer takes in a send list at most: the header of its data
/// with digest and padding, the digest of the data, and a CapsuleResp behind it.
pub const PDU_HEADER_BYTES_MAX: usize =
    PREFIX_BYTES_MAX + DIGEST_BYTES + CapsuleResp::SIZE + DIGEST_BYTES;

/// Ranges that a command or an answer takes in a send list at most: header, payload, and digest
/// with response.
pub const PDU_RANGES_MAX: usize = 3;

/// Segments that a command or an answer with data counts in a caravan: header, and data where it
/// lies. (A digest or a response behind them shares the segment of the next header.)
pub const DATA_IOVECS: u32 = 2;

const _: () = assert!(
    TERM_REQ_BYTES_MAX <= PDU_HEADER_BYTES_MAX,
    "a termination request fits where an answer does"
);
