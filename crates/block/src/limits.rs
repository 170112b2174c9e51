//! Every limit of this crate, with its unit in the name and its reason beside it.

use base::Nanos;

/// The largest data of one request to a local device: the largest transfer of an NVMe/TCP command
/// that a target announces (MDTS), so that no command has to be split.
pub const TRANSFER_MAX_BYTES: u32 = 1024 * 1024;

/// Extents of one command: the entries of the thesis' block control table. `[Yu §5.2]`
pub const EXTENTS_MAX: u32 = 1024;

/// Zeroing at least this much memory gives the pages back instead: from about here on, a system
/// call costs less than writing, and untouched memory stays unallocated.
pub const DISCARD_MIN_BYTES: usize = 256 * 1024;

/// Requests in one channel of a file: a queue pair's depth (1024) may go to a single device.
pub const FILE_QUEUE_DEPTH: usize = 1024;

/// Scratch ranges of a file's channel, for requests that need memory of their own (Compare,
/// Verify, data that is not aligned for `O_DIRECT`). One would do; four keep a device busy.
pub const SCRATCH_COUNT: usize = 4;

/// Size of each: a device's usual largest command, so that a piece is a command.
pub const SCRATCH_BYTES: usize = 128 * 1024;

/// Zeroes are written in pieces of this size where the file system cannot zero a range itself.
pub const ZERO_PIECE_BYTES: usize = 1024 * 1024;

/// A range is zeroed by the file system in steps of this size: a huge one must not keep a
/// kernel thread busy without an end, nor hold up the close of the device.
pub const ALLOCATE_PIECE_BYTES: u64 = 1 << 30;

/// Requests in flight through one channel of a layer: as many as the deepest device below takes.
pub const LAYER_QUEUE_DEPTH: usize = 1024;

/// Requests of one batch of a path, at most: the entries of a table.
pub const BATCH_REQUESTS_MAX: usize = EXTENTS_MAX as usize;

/// Sockets of a dispatcher: the lanes of a remote namespace below it, and those that take their place
/// after a loss.
pub const DISPATCHER_SOCKETS: usize = 256;

/// Requests under way through one thread's channel of a path: a batch of each of its two queues,
/// and its own.
pub const PATH_QUEUE_DEPTH: usize = 4 * BATCH_REQUESTS_MAX;

/// Requests that a submitter may have outstanding, unless it asks for another number.
pub const SUBMITTER_DEPTH: u32 = 128;

/// The most that it can ask for.
pub const SUBMITTER_DEPTH_MAX: u32 = 1024;

/// Requests in one channel of a cache: twice the depth of a submitter of an I/O path.
pub const CACHE_QUEUE_DEPTH: usize = 256;

/// Largest read and write of a cache's own: the largest window of read-ahead.
pub const CACHE_PIECE_BYTES: usize = 128 * 1024;

/// Reads of a cache's channel that are under way at once.
pub const CACHE_READS: u32 = 32;

/// Writes of one batch of a cache's write-back: the unplug threshold of the queued I/O paths, so
/// that a batch fills their queue.
pub const CACHE_WRITES: u32 = 32;

/// Smallest cache of a stated size: below it there is less than a window of read-ahead for each of a
/// few streams.
pub const CACHE_BYTES_MIN: u64 = 1 << 20;

/// Largest cache: its table takes 2 % of it, from the start.
pub const CACHE_BYTES_MAX: u64 = 1 << 40;

/// Age at which a cache writes a dirty page back, unless it is asked for another: what a crash loses
/// is a few seconds old at most.
pub const CACHE_DIRTY_EXPIRE: Nanos = Nanos::from_secs(5);

/// The shortest such age: below it a cache would write through, with more work.
pub const CACHE_DIRTY_EXPIRE_MIN: Nanos = Nanos::from_millis(100);

/// The longest: a page that is older was forgotten by its writer.
pub const CACHE_DIRTY_EXPIRE_MAX: Nanos = Nanos::from_secs(3_600);

/// Looks, a millisecond apart, whether a cache has no page on its way before its device is changed:
/// five seconds, in which any working device has done all that was sent.
pub const CACHE_QUIET_LOOKS: u32 = 5_000;

/// Blocks that the verify layer keeps checksums of: 4.5 bytes of memory each, so 1.1 GiB.
pub const VERIFY_BLOCKS_MAX: u64 = 1 << 28;

/// Rules of the fault layer, which looks at each of them for every request.
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
