//! Clocks of the kernel.

use base::Time;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

/// Returns the time of the monotonic clock, which is the same for all drivers and processes of the
/// machine.
#[must_use]
#[inline]
pub fn monotonic() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    // Both parts are never negative.
    Time(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
}

/// Returns the CPU time of the calling thread, user and system.
#[must_use]
pub fn thread_cpu() -> Duration {
    since_start(clock_gettime(ClockId::ThreadCPUTime))
}

/// Time since the start of a clock, never negative.
fn since_start(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_do_not_go_back() {
        let (now, used) = (monotonic(), thread_cpu());
        assert!(now > Time::ZERO);
        assert!(monotonic() >= now && thread_cpu() >= used);
    }
}
