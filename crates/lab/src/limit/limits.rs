//! Limits of the raw socket exchange, each with its reason.

use std::time::Duration;

/// Most messages in one `sendmsg`: beyond 64 messages of 4 KiB a send gets no cheaper per message,
/// and two I/O vectors per message stay far below the kernel's 1,024.
pub const MESSAGES_PER_SEND_MAX: usize = 64;

/// Most messages in flight: the largest queue depth of the target.
pub const DEPTH_MAX: usize = 1024;

/// Most connections of an exchange over many connections: their descriptors, at both ends in one
/// process, fit into the kernel's usual hard limit of 2^19.
pub const CONNECTIONS_MAX: usize = 100_000;

/// Largest message in bytes: a transfer of 1 MiB and its header, rounded up.
pub const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// Most memory from which payloads are sent, in bytes.
pub const REGION_BYTES_MAX: usize = 16 << 30;

/// Bytes of both ends' receive buffers: large enough for dozens of 4 KiB messages per call, small
/// enough to stay in a core's second-level cache.
pub const RECEIVE_BYTES: usize = 256 << 10;

/// Socket buffers in bytes; `net.core.{r,w}mem_max` may limit them.
pub const SOCKET_BUFFER_BYTES: usize = 8 << 20;

/// Time without a response after which a client fails.
pub const STALL: Duration = Duration::from_secs(10);

/// Number of empty polls after which a polling client reads the clock, to detect a [`STALL`].
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
