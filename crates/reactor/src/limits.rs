//! Every limit of this crate, with its unit in the name and its reason beside it.

use base::Nanos;

/// Size of a receive buffer: one receive takes as many PDUs as have arrived. A full window of
/// 4 KiB transfers at depth 64 fits, and so does the second-level cache of the cores we know.
pub const RECEIVE_BUFFER_BYTES: usize = 256 * 1024;

/// Receive buffers of a core. One is in use at a time on most turns of the loop; a few more let
/// several busy sockets be received before any is processed.
pub const RECEIVE_BUFFERS: usize = 8;

/// Entries of a core's submission ring: everything that one turn may start at once. More is
/// submitted in several system calls. Both rings are smaller where locked memory is short.
pub const SUBMISSION_RING_ENTRIES: u32 = 1024;

/// Entries of a core's completion ring: room for every operation in flight that we count on
/// (files and readiness), so that the kernel's overflow list stays a rarity.
pub const COMPLETION_RING_ENTRIES: u32 = 8192;

/// Segments of one send: the kernel's `UIO_MAXIOV`.
pub const SEND_SEGMENTS_MAX: usize = 1024;

/// Header bytes of one send list: 128 responses of at most 128 header bytes each.
pub const SEND_HEADER_BYTES: usize = 16 * 1024;

/// Sockets that a core reads directly on every turn because data came lately; the others wait
/// for readiness in the ring. Each costs a failed system call (about 150 ns) a turn when silent.
pub const HOT_SOCKETS_MAX: usize = 32;

/// Addresses that a core listens on.
pub const LISTENERS_MAX: usize = 256;

/// Pause of a listener after the kernel had no descriptor or no memory for a connection: long
/// enough to cost nothing, short enough to be forgotten.
pub const ACCEPT_PAUSE: Nanos = Nanos::from_millis(100);

/// Messages waiting in a core's mailbox. Only administration goes through it.
pub const MAILBOX_CAPACITY: usize = 1024;

const _: () = assert!(HOT_SOCKETS_MAX >= RECEIVE_BUFFERS);
const _: () = assert!(
    SEND_HEADER_BYTES / 128 >= 64,
    "a caravan of 64 responses fits"
);

/// Bytes that a turn sends on a connection with a receive quantum: half a caravan of 64 KiB, so that
/// what arrives on others meanwhile waits for some 15 µs.
pub const BOUNDED_SEND_BYTES: usize = 32 << 10;

/// Such sends in a row while connections with a quantum wait to be received from: in two of them the
/// answers to one receive leave, which brings a caravan.
pub const BOUNDED_SENDS_MAX: u32 = 2;

/// Sockets of a core that wait to be closed, one in a turn; of more, the turn closes all. They hold
/// descriptors and places.
pub const CLOSES_WAITING_MAX: usize = 1024;
