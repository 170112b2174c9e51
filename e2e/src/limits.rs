//! The limits of the tests. Each guards against a hang; none asserts a speed.

use std::time::Duration;

/// Time that a guest may run. Software emulation on a busy machine needs some minutes.
pub const GUEST_DEADLINE: Duration = Duration::from_secs(600);

/// Time until `switchyard serve` reports its address.
pub const READY_DEADLINE: Duration = Duration::from_secs(30);

/// Time in which a process ends after it was asked to.
pub const END_DEADLINE: Duration = Duration::from_secs(30);

/// Time that one command of the program under test may run.
pub const COMMAND_DEADLINE: Duration = Duration::from_secs(120);

/// Time of the foreign host, which computes its check sums slowly and waits for a keep-alive timer.
pub const FOREIGN_HOST_DEADLINE: Duration = Duration::from_secs(300);

/// Time until the packet capture listens.
pub const CAPTURE_READY_DEADLINE: Duration = Duration::from_secs(30);

/// Time for which the packet capture goes on after the workload has ended: the kernel hands packets
/// over in blocks, and what has not been handed over at the end is lost to the capture.
pub const CAPTURE_LINGER: Duration = Duration::from_millis(1500);

/// Interval between two looks at something that is waited for.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);
