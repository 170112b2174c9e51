//! Limits from the specifications, and a few of our own, with their reasons.
//!
//! Limits of the TCP transport are in [`crate::tcp::limits`].

/// Bytes of a command (submission queue entry). `[NVMe Base 2.0 §3.3.3.1]`
pub const COMMAND_BYTES: usize = 64;

/// Bytes of a completion (completion queue entry). `[NVMe Base 2.0 §3.3.3.2]`
pub const COMPLETION_BYTES: usize = 16;

/// Bytes of an identify data structure, for every CNS value. `[NVMe Base 2.0 §5.17]`
pub const IDENTIFY_BYTES: usize = 4096;

/// Maximum bytes of an NVMe Qualified Name. `[NVMe Base 2.0 §4.5]`
pub const NQN_BYTES_MAX: usize = 223;

/// Bytes of the field of a name, which is padded with zeroes. `[NVMe Base 2.0 §6.3]`
pub const NQN_FIELD_BYTES: usize = 256;

/// Namespace identifiers in one list. `[NVMe Base 2.0 §4.4.2]`
pub const NAMESPACE_LIST_ENTRIES: usize = 1024;

/// Controller identifiers in one list. `[NVMe Base 2.0 §4.4.1]`
pub const CONTROLLER_LIST_ENTRIES: usize = 2047;

/// Ranges in one Dataset Management command. `[NVMe NVM 1.0 §3.2.3]`
pub const DATASET_RANGES_MAX: usize = 256;

/// Maximum extents of a Read Extents or Write Extents, a vendor-specific command: their table fills
/// the 16 KiB of in-capsule data.
pub const EXTENTS_PER_COMMAND_MAX: usize = 1024;

/// Maximum logical blocks of a Read, Write, Compare, Verify or Write Zeroes: a zero-based 16-bit
/// count.
pub const BLOCKS_PER_COMMAND_MAX: u32 = 65_536;

/// Highest valid namespace identifier; reserved and broadcast values are above. `[NVMe Base 2.0
/// §3.2.1.2]`
pub const NSID_MAX: u32 = 0xffff_fffd;

/// The broadcast namespace identifier. `[NVMe Base 2.0 §3.2.1.2]`
pub const NSID_BROADCAST: u32 = 0xffff_ffff;

const _: () = assert!(
    NQN_BYTES_MAX < NQN_FIELD_BYTES,
    "a name needs its final zero"
);
const _: () = assert!(
    NAMESPACE_LIST_ENTRIES * 4 == IDENTIFY_BYTES,
    "a list fills its page"
);
const _: () = assert!(
    (CONTROLLER_LIST_ENTRIES + 1) * 2 == IDENTIFY_BYTES,
    "a list fills its page"
);
