//! Every limit of the switchboard, with its unit in the name and its reason beside it.

use base::Nanos;

/// Controllers that a switchboard has lanes to: what the numbers of a core are laid out for.
pub const TARGETS_MAX: usize = 64;

/// Namespaces that a switchboard knows, over all controllers.
pub const NAMESPACES_MAX: usize = 1024;

/// Requests that one ingress holds, for each class. A submitter that finds it full keeps its
/// request and is told that it is busy.
pub const INGRESS_ENTRIES: usize = 4096;

/// Commands that one lane has outstanding: what keeps a device busy that answers in a millisecond.
pub const LANE_DEPTH: u16 = 512;

/// Submitters that are open at a time.
pub const SUBMITTERS_MAX: usize = 4096;

/// Requests that a submitter has outstanding unless it asks for another number.
pub const SUBMITTER_DEPTH: u32 = 64;

/// Bytes of the longest request of a submitter unless it asks for another number.
pub const SUBMITTER_BYTES: u32 = 256 * 1024;

/// Requests of each class that are taken from an ingress in one turn: enough to fill every caravan,
/// and little enough to look at the sockets and at earlier classes in between.
pub const ENTRIES_PER_TURN: usize = 128;

/// Interval at which a dataplane thread publishes its counters: long, because no reader needs them
/// sooner.
pub const COUNTERS_PERIOD: Nanos = Nanos::from_millis(10);

/// Requests that a submitter may have outstanding.
pub const DEPTH_MAX: u32 = 4096;

/// Memory of one submitter in bytes: half for the data of requests that come with memory of their
/// own. Address space; pages are taken when they are used.
pub const MEMORY_BYTES_MAX: u64 = 2 << 30;

/// Bytes of a submitter's memory for buffers that it keeps: with the rest less than 4 GiB, since
/// offsets have 32 bits. Address space, too.
pub const ROOM_BYTES_MAX: u64 = 1 << 30;
