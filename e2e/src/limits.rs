//! The limits of the tests. Each guards against a hang; none asserts a speed.

use std::time::Duration;

/// How long a guest may run. Software emulation on a busy machine needs some minutes.
pub const GUEST_DEADLINE: Duration = Duration::from_secs(600);

/// How long `switchyard serve` may take until it says where it listens.
pub const READY_DEADLINE: Duration = Duration::from_secs(30);

/// How long a process may take to end after it was asked to.
pub const END_DEADLINE: Duration = Duration::from_secs(30);

/// How long one command of the program under test may run.
pub const COMMAND_DEADLINE: Duration = Duration::from_secs(120);

/// How long the foreign host may take, which computes its check sums slowly and waits for a keep-alive
/// timer.
pub const FOREIGN_HOST_DEADLINE: Duration = Duration::from_secs(300);

/// How long the packet capture may take until it listens.
pub const CAPTURE_READY_DEADLINE: Duration = Duration::from_secs(30);

/// How long the packet capture goes on after the workload has ended: the kernel hands packets
/// over in blocks, and what has not been handed over at the end is lost to the capture.
pub const CAPTURE_LINGER: Duration = Duration::from_millis(1500);

/// How often something is looked at again while waiting for it.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);
