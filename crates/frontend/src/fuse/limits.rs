//! Limits of the FUSE front end, each with its unit in the name and its reason.

use base::Nanos;
use std::time::Duration;

/// Maximum size of a request in bytes: the most that FUSE carries without raising
/// `/proc/sys/fs/fuse/max_pages_limit`.
pub const REQUEST_MAX_BYTES: u32 = 1024 * 1024;

/// Maximum requests of one file in its device: the depth of a common NVMe queue pair.
pub const REQUESTS_MAX: usize = 256;

/// Maximum outstanding requests of a mount, including those that wait for room in a device. Further
/// requests wait in the kernel; interrupts are not read then either.
pub const WAITING_MAX: usize = 4096;

/// Maximum bytes of held writes, which cannot begin yet: 64 of the largest. Further requests wait
/// in the kernel.
pub const WRITE_BYTES_MAX: usize = 64 * REQUEST_MAX_BYTES as usize;

/// Maximum requests read from the kernel in one turn of the core, and bytes of writes in them: a
/// bound on the delay of replies.
pub const TURN_REQUESTS: usize = 32;
/// See [`TURN_REQUESTS`].
pub const TURN_WRITE_BYTES: usize = 256 * 1024;

/// Maximum bytes of `Throughput` reads that are replied to in one turn: a bound on the delay of
/// `Latency` requests that arrive meanwhile.
pub const TURN_ANSWER_BYTES: usize = 64 * 1024;

/// Maximum `Throughput` replies that are written together, all of one turn.
pub const GATHERED_MAX: usize = 64;

/// Maximum bytes of these replies. They are copied, which pays off for small replies only; larger
/// replies are written at once.
pub const GATHERED_BYTES_MAX: usize = 128 * 1024;
/// See [`GATHERED_BYTES_MAX`].
pub const GATHERED_ANSWER_MAX_BYTES: usize = 16 * 1024;

/// Interval between checks whether the thread of an interrupted request is being killed. It grows
/// by one period for every [`INTERRUPTS_MAX`] interrupted requests.
pub const INTERRUPT_PERIOD: Nanos = Nanos::from_millis(100);

/// Maximum interrupted requests checked in one turn: each check takes about 10 µs.
pub const INTERRUPTS_MAX: usize = 16;

/// Maximum concurrent requests of the kernel's read-ahead, write-back and asynchronous direct I/O;
/// the kernel queues further ones. A few of [`REQUESTS_MAX`] remain for synchronous requests.
pub const BACKGROUND_MAX: u16 = 224;

/// Number of background requests at which the kernel considers the file system congested and skips
/// read-ahead: three quarters, the kernel's own ratio.
pub const CONGESTION_THRESHOLD: u16 = BACKGROUND_MAX / 4 * 3;

/// Maximum namespaces of one mount: each has a channel per class on the same core.
pub const NAMESPACES_MAX: usize = 256;

/// Maximum threads whose class is cached.
pub const THREADS_MAX: usize = 1024;

/// Lifetime of a cached thread class: a change of the thread's I/O priority applies within this
/// time, and the kernel is not queried for every request.
pub const CLASS_AGE: Nanos = Nanos::from_millis(10);

/// Lifetime of names and attributes in the kernel's cache. The size is an attribute: growth of a
/// namespace is visible within this time.
pub const ATTRIBUTES_AGE: Duration = Duration::from_secs(1);

/// Maximum bytes of a `fusermount3` message that an error repeats.
pub const MESSAGE_MAX_BYTES: usize = 512;
