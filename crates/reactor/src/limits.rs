//! Limits of this crate, each with its unit in the name and its reason.

use base::Nanos;

/// Size of a receive buffer: one receive takes as many PDUs as have arrived. It holds a full window
/// of 4 KiB transfers at depth 64, and fits in the second-level cache of common cores.
pub const RECEIVE_BUFFER_BYTES: usize = 256 * 1024;

/// Receive buffers of a core. Most turns of the loop use one at a time; more allow several busy
/// sockets to be received before any is processed.
pub const RECEIVE_BUFFERS: usize = 8;

/// Submission ring entries of a core: everything that one turn may start at once. More entries take
/// several system calls. Both rings are smaller if locked memory is short.
pub const SUBMISSION_RING_ENTRIES: u32 = 1024;

/// Completion ring entries of a core: room for every expected operation in flight (files and
/// readiness), so that the kernel's overflow list is rarely used.
pub const COMPLETION_RING_ENTRIES: u32 = 8192;

/// Segments of one send: the kernel's `UIO_MAXIOV`.
pub const SEND_SEGMENTS_MAX: usize = 1024;

/// Header bytes of one send list: 128 responses of at most 128 header bytes each.
pub const SEND_HEADER_BYTES: usize = 16 * 1024;

/// Maximum hot sockets of a core, which are read directly on every turn because data arrived
/// recently; other sockets wait for readiness in the ring. A silent hot socket costs a failed
/// system call (about 150 ns) per turn.
pub const HOT_SOCKETS_MAX: usize = 32;

/// Maximum listen addresses of a core.
pub const LISTENERS_MAX: usize = 256;

/// Pause of a listener after the kernel was out of descriptors or memory for a connection: long
/// enough to cost nothing, short enough not to be noticed.
pub const ACCEPT_PAUSE: Nanos = Nanos::from_millis(100);

/// Maximum messages in a core's mailbox, which carries administration only.
pub const MAILBOX_CAPACITY: usize = 1024;

const _: () = assert!(HOT_SOCKETS_MAX >= RECEIVE_BUFFERS);
const _: () = assert!(
    SEND_HEADER_BYTES / 128 >= 64,
    "a caravan of 64 responses fits"
);

/// Bytes sent per turn on a connection with a receive quantum: half a caravan of 64 KiB, so that
/// arrivals on other connections wait for about 15 µs.
pub const BOUNDED_SEND_BYTES: usize = 32 << 10;

/// Maximum consecutive such sends while connections with a quantum wait to be received from: two
/// sends carry the responses to one receive, which is a caravan.
pub const BOUNDED_SENDS_MAX: u32 = 2;

/// Records from which a TLS key is nearly worn, 1.4 times before its limit of 2^24.5: 270 GB in
/// records of 16 KiB. Keys are changed by reconnecting, or by a peer that sends KeyUpdate; not all
/// peers take one.
pub const RECORDS_WORN: u64 = 1 << 24;

/// Maximum TLS handshakes of accepted connections in progress in the process: each has a descriptor,
/// a ClientHello and the state of the library, some 100 KiB.
pub const HANDSHAKES_MAX: usize = 512;

/// Maximum of them from one address (IPv6: one /64): a host connects all its queues at once.
pub const HANDSHAKES_PER_NETWORK: usize = 128;

/// Jobs of DH-HMAC-CHAP that wait, up to 4 KiB each: in 20 s their thread runs them all.
pub const CHAP_JOBS_MAX: usize = 4096;

/// Most of these jobs of hosts at one address (IPv6: in one /64).
pub const CHAP_JOBS_PER_NETWORK: usize = 128;

const _: () = assert!(RECORDS_WORN < secure::record::RECORDS_MAX);

/// Maximum sockets of a core waiting to be closed, one per turn; above it the turn closes all
/// excess ones. They occupy descriptors and slots.
pub const CLOSES_WAITING_MAX: usize = 1024;
