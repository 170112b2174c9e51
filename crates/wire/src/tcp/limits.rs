//! Limits of the TCP transport, with their reasons.

/// Bytes of the common header of all PDUs. `[NVMe-TCP 1.0 §3.6.1]`
pub const COMMON_HEADER_BYTES: usize = 8;

/// Bytes of a header or data digest (CRC32C). `[NVMe-TCP 1.0 §3.6.3]`
pub const DIGEST_BYTES: usize = 4;

/// HLEN of ICReq and ICResp, which consist of a header only. `[NVMe-TCP 1.0 §3.6.2.2]`
pub const IC_BYTES: usize = 128;

/// HLEN of every PDU except ICReq, ICResp and CapsuleCmd.
pub const SHORT_HEADER_BYTES: usize = 24;

/// HLEN of CapsuleCmd: common header and command.
pub const CAPSULE_CMD_BYTES: usize = 72;

/// Bytes of the longest header with its digest; IC PDUs have none.
pub const HEADER_BYTES_MAX: usize = IC_BYTES;

/// Highest HPDA or CPDA: 32 dwords, zero-based. `[NVMe-TCP 1.0 §3.6.2.2]`
pub const ALIGNMENT_CODE_MAX: u8 = 31;

/// Bytes of the largest alignment of data in a PDU.
pub const ALIGNMENT_BYTES_MAX: usize = 128;

/// Maximum bytes of an encoded PDU before its data: header, digest and padding. It is 144: a
/// CapsuleCmd with header digest (76 bytes) and with data aligned to 72 bytes, which the coding of
/// alignments allows.
pub const PREFIX_BYTES_MAX: usize = longest_prefix();

const fn longest_prefix() -> usize {
    let mut longest = IC_BYTES;
    let mut alignment = 4;
    while alignment <= ALIGNMENT_BYTES_MAX {
        let prefix = (CAPSULE_CMD_BYTES + DIGEST_BYTES).next_multiple_of(alignment);
        if prefix > longest {
            longest = prefix;
        }
        alignment += 4;
    }
    longest
}

/// Maximum bytes of padding between header and data in a valid PDU.
pub const PADDING_BYTES_MAX: usize = ALIGNMENT_BYTES_MAX - 1;

/// Maximum bytes of the offending header in a termination request. `[NVMe-TCP 1.0 §3.6.2.4]`
pub const TERM_DATA_BYTES_MAX: usize = 128;

/// PLEN of the longest termination request.
pub const TERM_REQ_BYTES_MAX: usize = SHORT_HEADER_BYTES + TERM_DATA_BYTES_MAX;

/// Lowest MAXH2CDATA that a controller may announce. `[NVMe-TCP 1.0 §3.6.2.3]`
pub const MAX_H2C_DATA_BYTES_MIN: u32 = 4096;

/// Bytes of in-capsule data that every host may send on the admin queue (and with Connect on any
/// queue), independent of the controller's announcement. `[NVMe-TCP 1.0 §3.3.1.1]`
pub const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;

/// The well-known port of an NVMe/TCP I/O controller. `[NVMe-TCP 1.0 §3.1.1]`
pub const IO_PORT: u16 = 4420;

/// The well-known port of an NVMe/TCP discovery controller. `[NVMe-TCP 1.0 §3.1.1]`
pub const DISCOVERY_PORT: u16 = 8009;

const _: () = assert!(
    TERM_REQ_BYTES_MAX == 152,
    "[NVMe-TCP 1.0 §3.6.2.4] names this number"
);
const _: () = assert!((ALIGNMENT_CODE_MAX as usize + 1) * 4 == ALIGNMENT_BYTES_MAX);
const _: () = assert!(
    PREFIX_BYTES_MAX == 144,
    "PDO is a byte, and documentation names this number"
);
