//! The limits that the specifications set, and the few that we add, with their reasons.
//!
//! Limits of the TCP transport alone are in [`crate::tcp::limits`].

/// Bytes in a command (submission queue entry). `[NVMe Base 2.0 §3.3.3.1]`
pub const COMMAND_BYTES: usize = 64;

/// Bytes in a completion (completion queue entry). `[NVMe Base 2.0 §3.3.3.2]`
pub const COMPLETION_BYTES: usize = 16;

/// Bytes in an identify data structure, for every CNS value. `[NVMe Base 2.0 §5.17]`
pub const IDENTIFY_BYTES: usize = 4096;

/// Bytes of text in the longest NVMe Qualified Name. `[NVMe Base 2.0 §4.5]`
pub const NQN_BYTES_MAX: usize = 223;

/// Bytes of the field that holds a name, padded with zeroes. `[NVMe Base 2.0 §6.3]`
pub const NQN_FIELD_BYTES: usize = 256;

/// Namespace identifiers in one list. `[NVMe Base 2.0 §4.4.2]`
pub const NAMESPACE_LIST_ENTRIES: usize = 1024;

/// Controller identifiers in one list. `[NVMe Base 2.0 §4.4.1]`
pub const CONTROLLER_LIST_ENTRIES: usize = 2047;

/// Ranges in one Dataset Management command. `[NVMe NVM 1.0 §3.2.3]`
pub const DATASET_RANGES_MAX: usize = 256;

/// Extents of one Read Extents or Write Extents, a command of our own: their table fills the 16 KiB
/// of data that a capsule carries.
pub const EXTENTS_PER_COMMAND_MAX: usize = 1024;

/// Logical blocks in one Read, Write, Compare, Verify or Write Zeroes: a zero-based 16-bit count.
pub const BLOCKS_PER_COMMAND_MAX: u32 = 65_536;

/// Highest namespace identifier that names one namespace; above lie the reserved and the broadcast
/// values. `[NVMe Base 2.0 §3.2.1.2]`
pub const NSID_MAX: u32 = 0xffff_fffd;

/// The namespace identifier that means "all". `[NVMe Base 2.0 §3.2.1.2]`
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
