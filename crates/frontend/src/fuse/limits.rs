//! Every limit of the FUSE front end, with its unit in the name and its reason beside it.

use base::Nanos;
use std::time::Duration;

/// Bytes of the largest request of the kernel's: the most that FUSE carries without a change of
/// `/proc/sys/fs/fuse/max_pages_limit`.
pub const REQUEST_MAX_BYTES: u32 = 1024 * 1024;

/// Requests of one file in its device at a time: as many as one NVMe queue pair of a usual size
/// holds.
pub const REQUESTS_MAX: usize = 256;

/// Requests of a mount under way, those that wait for a place in a device included. More wait in the
/// kernel: then it is not heard either that one of them is interrupted.
pub const WAITING_MAX: usize = 4096;

/// Bytes of writes that are held because they cannot begin: 64 of the largest. More wait in the
/// kernel.
pub const WRITE_BYTES_MAX: usize = 64 * REQUEST_MAX_BYTES as usize;

/// Requests that are read from the kernel in one turn of the core, and bytes of writes in them, so
/// that answers do not wait for many.
pub const TURN_REQUESTS: usize = 32;
/// See [`TURN_REQUESTS`].
pub const TURN_WRITE_BYTES: usize = 256 * 1024;

/// Bytes of reads of class `Throughput` that are answered in one turn: those of class `Latency` that
/// arrive meanwhile wait for no more.
pub const TURN_ANSWER_BYTES: usize = 64 * 1024;

/// Answers of class `Throughput` that leave together at most; those of one turn do.
pub const GATHERED_MAX: usize = 64;

/// Bytes of them. They are copied, which pays as long as an answer is a small part of it: others
/// leave at once.
pub const GATHERED_BYTES_MAX: usize = 128 * 1024;
/// See [`GATHERED_BYTES_MAX`].
pub const GATHERED_ANSWER_MAX_BYTES: usize = 16 * 1024;

/// Time after which it is asked again if a signal ends the thread of an interrupted request. Longer
/// by as much for every [`INTERRUPTS_MAX`] of them.
pub const INTERRUPT_PERIOD: Nanos = Nanos::from_millis(100);

/// Interrupted requests that are asked about in one turn: the kernel's answer takes some 10 µs each.
pub const INTERRUPTS_MAX: usize = 16;

/// Requests of the kernel's read-ahead, write-back and asynchronous direct I/O at a time; the
/// kernel holds the others back. All of [`REQUESTS_MAX`] but a few for threads that wait.
pub const BACKGROUND_MAX: u16 = 224;

/// Number of background requests at which the kernel takes the file for congested, and leaves
/// read-ahead out: three quarters, as the kernel itself chooses.
pub const CONGESTION_THRESHOLD: u16 = BACKGROUND_MAX / 4 * 3;

/// Namespaces of one mount: each has a channel per class on the same core.
pub const NAMESPACES_MAX: usize = 256;

/// Threads of which the class is remembered.
pub const THREADS_MAX: usize = 1024;

/// Time for which the class of a thread is remembered: a change of its I/O priority counts within
/// this time, and the kernel is not asked for every request.
pub const CLASS_AGE: Nanos = Nanos::from_millis(10);

/// Time for which the kernel remembers names and attributes. The size is an attribute: a namespace
/// that grows is seen within this time.
pub const ATTRIBUTES_AGE: Duration = Duration::from_secs(1);

/// Bytes of a message of `fusermount3` that an error repeats.
pub const MESSAGE_MAX_BYTES: usize = 512;
