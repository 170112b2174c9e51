//! Every limit of this crate, with its unit in the name and the reason for its value.

use base::Nanos;

/// The largest data of one request to a local device: the largest transfer of an NVMe/TCP command
/// that a target reports (MDTS), so that no command must be split.
pub const TRANSFER_MAX_BYTES: u32 = 1024 * 1024;

/// Extents of one command: the entries of the thesis' block control table. `[Yu §5.2]`
pub const EXTENTS_MAX: u32 = 1024;

/// Zeroing at least this much memory returns the pages to the system instead: from about this size
/// on a system call is cheaper than writing, and untouched memory stays unallocated.
pub const DISCARD_MIN_BYTES: usize = 256 * 1024;

/// Requests in one channel of a file: a queue pair of depth 1024 may use a single device.
pub const FILE_QUEUE_DEPTH: usize = 1024;

/// Scratch ranges of a file's channel, for requests that need separate memory (Compare, Verify,
/// data that is not aligned for `O_DIRECT`). One would be enough; four keep a device busy.
pub const SCRATCH_COUNT: usize = 4;

/// Size of a scratch range in bytes: the usual largest command of a device, so that a piece is one
/// command.
pub const SCRATCH_BYTES: usize = 128 * 1024;

/// Size in bytes of the pieces in which zeroes are written if the file system cannot zero a range.
pub const ZERO_PIECE_BYTES: usize = 1024 * 1024;

/// Size in bytes of the steps in which the file system zeroes a range: a huge range must not occupy
/// a kernel thread without end, nor delay the close of the device.
pub const ALLOCATE_PIECE_BYTES: u64 = 1 << 30;

/// Requests in flight through one channel of a layer: the depth of the deepest device below.
pub const LAYER_QUEUE_DEPTH: usize = 1024;

/// Largest number of requests in one batch of a path: the entries of a table of extents.
pub const BATCH_REQUESTS_MAX: usize = EXTENTS_MAX as usize;

/// Sockets of a dispatcher: the lanes of a remote namespace below it, and their replacements after
/// a loss.
pub const DISPATCHER_SOCKETS: usize = 256;

/// Requests in flight through one thread's channel of a path: a batch of each of its two queues,
/// and its own requests.
pub const PATH_QUEUE_DEPTH: usize = 4 * BATCH_REQUESTS_MAX;

/// Default number of outstanding requests of a submitter.
pub const SUBMITTER_DEPTH: u32 = 128;

/// Largest number of outstanding requests of a submitter.
pub const SUBMITTER_DEPTH_MAX: u32 = 1024;

/// Requests in one channel of a cache: twice the depth of a submitter of an I/O path.
pub const CACHE_QUEUE_DEPTH: usize = 256;

/// Largest read and write of a cache in bytes: the largest window of read-ahead.
pub const CACHE_PIECE_BYTES: usize = 128 * 1024;

/// Reads in flight of a cache's channel.
pub const CACHE_READS: u32 = 32;

/// Writes of one batch of a cache's write-back: the unplug threshold of the queued I/O paths, so
/// that a batch fills their queue.
pub const CACHE_WRITES: u32 = 32;

/// Smallest cache in bytes: a smaller one has less than a window of read-ahead for each of a few
/// streams.
pub const CACHE_BYTES_MIN: u64 = 1 << 20;

/// Largest cache in bytes: its table takes 2 % of that from the start.
pub const CACHE_BYTES_MAX: u64 = 1 << 40;

/// Default age at which a cache writes a dirty page back: a crash loses at most a few seconds of
/// writes.
pub const CACHE_DIRTY_EXPIRE: Nanos = Nanos::from_secs(5);

/// The shortest such age: below it a cache would effectively write through, with more work.
pub const CACHE_DIRTY_EXPIRE_MIN: Nanos = Nanos::from_millis(100);

/// The longest such age: later, the page's writer is unlikely to expect it to be unsaved.
pub const CACHE_DIRTY_EXPIRE_MAX: Nanos = Nanos::from_secs(3_600);

/// Checks, one millisecond apart, that a cache has no page in transfer before its device is
/// changed: 5 s in total, in which any working device completes its requests.
pub const CACHE_QUIET_LOOKS: u32 = 5_000;

/// Blocks for which the verify layer keeps checksums: 4.5 bytes of memory each, so 1.1 GiB.
pub const VERIFY_BLOCKS_MAX: u64 = 1 << 28;

/// Bytes of an encrypted device before its first block: a multiple of the alignment of every disk and
/// stripe.
pub const CRYPT_HEADER_BYTES: u64 = 1 << 20;

/// Bytes that a channel of an encrypted device encrypts or decrypts per turn of a larger request:
/// about 7 µs, the time of half a caravan.
pub const CRYPT_PIECE_BYTES: usize = 32 * 1024;

/// Size in bytes and number of the buffers of a channel of an encrypted device, for the writes and
/// Compares in flight: 7 MiB if all are in use.
pub const CRYPT_BUFFERS: [(usize, usize); 3] = [
    (4096, 256),
    (128 * 1024, 16),
    (TRANSFER_MAX_BYTES as usize, 4),
];

/// Rules of the fault layer, each of which is checked for every request.
pub const FAULT_RULES_MAX: usize = 64;

const _: () = assert!(
    SCRATCH_BYTES.is_multiple_of(4096),
    "pieces are whole blocks"
);
const _: () = assert!(
    ZERO_PIECE_BYTES.is_multiple_of(4096),
    "pieces are whole blocks"
);
const _: () = assert!(
    ALLOCATE_PIECE_BYTES.is_multiple_of(4096),
    "pieces are whole blocks"
);
const _: () = assert!(
    TRANSFER_MAX_BYTES.is_multiple_of(4096),
    "a transfer is whole blocks"
);
