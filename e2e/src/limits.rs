//! Timeouts of the tests, which guard against hangs and assert no speed, and durations of guest
//! scenarios with disks, which the environment can extend.

use std::time::Duration;

/// Number of kills in each part of a scenario: `SWITCHYARD_GUEST_KILLS`, or 3.
///
/// # Panics
/// If the variable is not a whole number.
pub fn kills() -> u32 {
    number("KILLS", 3)
}

/// Duration of the stop in each part of a scenario: `SWITCHYARD_GUEST_STOP_SECONDS`, or 3 s.
///
/// # Panics
/// Like [`kills`].
pub fn stop_time() -> Duration {
    Duration::from_secs(number("STOP_SECONDS", 3).into())
}

/// Number of operations of `fsx` on a new file: `SWITCHYARD_GUEST_FSX_OPERATIONS`, or 30.
///
/// # Panics
/// Like [`kills`].
pub fn fsx_operations() -> u32 {
    number("FSX_OPERATIONS", 30)
}

fn number(name: &str, usual: u32) -> u32 {
    let given = std::env::var(format!("SWITCHYARD_GUEST_{name}")).ok();
    given.map_or(usual, |text| text.parse().expect("a whole number"))
}

/// Maximum run time of a guest: software emulation on a busy machine needs minutes, and a longer
/// scenario more.
pub fn guest_deadline() -> Duration {
    Duration::from_secs(900) + 5 * stop_time() + kills() * Duration::from_secs(120)
}

/// Maximum time until `switchyard serve` reports its address.
pub const READY_DEADLINE: Duration = Duration::from_secs(30);

/// Maximum time until a process ends after the request to end.
pub const END_DEADLINE: Duration = Duration::from_secs(30);

/// Maximum run time of one command of the program under test.
pub const COMMAND_DEADLINE: Duration = Duration::from_secs(120);

/// Maximum run time of the foreign host, which computes checksums slowly and waits for a keep-alive
/// timer.
pub const FOREIGN_HOST_DEADLINE: Duration = Duration::from_secs(300);

/// Maximum time until the packet capture runs.
pub const CAPTURE_READY_DEADLINE: Duration = Duration::from_secs(30);

/// Time for which the packet capture continues after the workload has ended: the kernel passes
/// packets on in blocks, and packets not passed on at the end are lost to the capture.
pub const CAPTURE_LINGER: Duration = Duration::from_millis(1500);

/// Interval between two checks of a condition.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);
