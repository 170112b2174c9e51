//! The limits of the tests, each of which guards against a hang and asserts no speed, and the lengths
//! of the scenarios of guests with disks, which the environment can make longer.

use std::time::Duration;

/// The times that each part of a scenario is killed: `SWITCHYARD_GUEST_KILLS`, or 3.
///
/// # Panics
/// When the environment has no whole number there.
pub fn kills() -> u32 {
    number("KILLS", 3)
}

/// The time for which each part of a scenario stands still: `SWITCHYARD_GUEST_STOP_SECONDS`, or 3 s.
///
/// # Panics
/// As [`kills`].
pub fn stop_time() -> Duration {
    Duration::from_secs(number("STOP_SECONDS", 3).into())
}

/// The operations of `fsx` on a new file: `SWITCHYARD_GUEST_FSX_OPERATIONS`, or 30.
///
/// # Panics
/// As [`kills`].
pub fn fsx_operations() -> u32 {
    number("FSX_OPERATIONS", 30)
}

fn number(name: &str, usual: u32) -> u32 {
    let given = std::env::var(format!("SWITCHYARD_GUEST_{name}")).ok();
    given.map_or(usual, |text| text.parse().expect("a whole number"))
}

/// Time that a guest may run: software emulation on a busy machine needs some minutes, and a longer
/// scenario more.
pub fn guest_deadline() -> Duration {
    Duration::from_secs(900) + 5 * stop_time() + kills() * Duration::from_secs(120)
}

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
