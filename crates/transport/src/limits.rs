//! Every limit of this crate, with its unit in the name and its reason beside it.

use wire::tcp::limits::{DIGEST_BYTES, PREFIX_BYTES_MAX};

/// Payload of which more bytes than this are missing is received straight to where it belongs.
/// Below it a copy from the receive buffer costs less than another system call.
pub const DIRECT_RECEIVE_BYTES_MIN: usize = 8 * 1024;

/// Header bytes that one PDU takes in a send list at most: its header with digest and padding, and
/// the digest of its data.
pub const PDU_HEADER_BYTES_MAX: usize = PREFIX_BYTES_MAX + DIGEST_BYTES;

/// Ranges that one PDU takes in a send list at most: header, payload, and digest.
pub const PDU_RANGES_MAX: usize = 3;
