//! Processor time of a thread.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// CPU time of the calling thread, user and system.
#[must_use]
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
