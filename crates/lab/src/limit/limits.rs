//! The limits of the raw socket exchange, each with its reason.

use std::time::Duration;

/// Most messages in one `sendmsg`: beyond 64 of 4 KiB a send no longer gets cheaper per message,
/// and two I/O vectors a message stay far below the kernel's 1,024.
pub const MESSAGES_PER_SEND_MAX: usize = 64;

/// Most messages in flight: the largest queue depth of the target.
pub const DEPTH_MAX: usize = 1024;

/// Most connections of an exchange over many: their descriptors, at both ends in one process, fit
/// into the kernel's usual hard limit of 2^19.
pub const CONNECTIONS_MAX: usize = 100_000;

/// Largest message in bytes: a transfer of 1 MiB and its header, rounded up.
pub const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// Most memory that payloads are sent from, in bytes.
pub const REGION_BYTES_MAX: usize = 16 << 30;

/// Both ends receive into a buffer of this many bytes: large enough for dozens of 4 KiB messages
/// a call, small enough to stay in a core's second-level cache.
pub const RECEIVE_BYTES: usize = 256 << 10;

/// Socket buffers in bytes; the kernel grants less where `net.core.{r,w}mem_max` say so.
pub const SOCKET_BUFFER_BYTES: usize = 8 << 20;

/// A client that has had no response for so long gives up.
pub const STALL: Duration = Duration::from_secs(10);

/// A polling client looks at the clock every so many empty polls, to notice a [`STALL`].
pub const POLLS_PER_CLOCK_READ: u32 = 1 << 16;

/// Most interleaved pairs of one comparison.
pub const RUNS_MAX: usize = 1_000;

const _: () = assert!(
    MESSAGES_PER_SEND_MAX * 2 <= 1024,
    "one sendmsg takes 1,024 vectors"
);

/// Name of the case of idle connections.
pub const IDLE_NAME: &str = "idle_1000_connections";

/// Connections of the idle case.
pub const IDLE_CONNECTIONS: u16 = 1000;
