//! Every limit of the FUSE front end, with its unit in the name and its reason beside it.

use base::Nanos;
use std::time::Duration;

/// Bytes of the largest request of the kernel's: the most that FUSE carries without a change of
/// `/proc/sys/fs/fuse/max_pages_limit`.
pub const REQUEST_MAX_BYTES: u32 = 1024 * 1024;

/// Requests under way at a time: as many as one NVMe queue pair of a usual size holds. More wait in
/// the kernel.
pub const REQUESTS_MAX: usize = 256;

/// Bytes of writes under way at a time, copied from the kernel: 64 of the largest.
pub const WRITE_BYTES_MAX: usize = 64 * REQUEST_MAX_BYTES as usize;

/// Requests of the kernel's read-ahead, write-back and asynchronous direct I/O at a time; the
/// kernel holds the others back. All of [`REQUESTS_MAX`] but a few for threads that wait.
pub const BACKGROUND_MAX: u16 = 224;

/// Number of background requests at which the kernel takes the file for congested, and leaves
/// read-ahead out: three quarters, as the kernel itself chooses.
pub const CONGESTION_THRESHOLD: u16 = BACKGROUND_MAX / 4 * 3;

/// Bytes of memory kept for the data of later writes: the largest of a queue of depth 16.
pub const SPARE_BYTES_MAX: usize = 16 * REQUEST_MAX_BYTES as usize;

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

/// Time that the session thread gets to end after the mount is gone. It takes microseconds, unless
/// another mount namespace has a copy of the mount.
pub const SESSION_END_MAX: Duration = Duration::from_secs(1);

/// Bytes of a message of `fusermount3` that an error repeats.
pub const MESSAGE_MAX_BYTES: usize = 512;
