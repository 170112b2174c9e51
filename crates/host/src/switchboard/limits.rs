//! Every limit of the switchboard, with its unit in the name and the reason for its value.

use base::Nanos;

/// Controllers to which a switchboard has lanes: the size of each core's tables.
pub const TARGETS_MAX: usize = 64;

/// Namespaces that a switchboard knows, over all controllers.
pub const NAMESPACES_MAX: usize = 1024;

/// Requests that one ingress holds per class. A submitter that finds it full keeps its request and
/// receives busy.
pub const INGRESS_ENTRIES: usize = 4096;

/// Outstanding commands of one lane: enough to keep a device busy that answers within a
/// millisecond.
pub const LANE_DEPTH: u16 = 512;

/// Submitters open at a time.
pub const SUBMITTERS_MAX: usize = 4096;

/// Default number of outstanding requests of a submitter.
pub const SUBMITTER_DEPTH: u32 = 64;

/// Default size in bytes of the largest request of a submitter.
pub const SUBMITTER_BYTES: u32 = 256 * 1024;

/// Requests of each class taken from an ingress in one turn: enough to fill every caravan, few
/// enough to check the sockets and earlier classes in between.
pub const ENTRIES_PER_TURN: usize = 128;

/// Interval at which a dataplane thread publishes its counters: long, because no reader needs them
/// sooner.
pub const COUNTERS_PERIOD: Nanos = Nanos::from_millis(10);

/// Largest number of outstanding requests of a submitter.
pub const DEPTH_MAX: u32 = 4096;

/// Memory of one submitter in bytes; half is for the data of requests in memory of their own.
/// Address space: pages are allocated on use.
pub const MEMORY_BYTES_MAX: u64 = 2 << 30;

/// Memory of a submitter for reserved buffers in bytes: together with the other memory less than 4
/// GiB, because offsets have 32 bits. Address space, too.
pub const ROOM_BYTES_MAX: u64 = 1 << 30;
