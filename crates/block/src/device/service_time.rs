//! The sum of the times that a device itself took, for [`Device::device_time`](super::Device::device_time).

use super::DeviceTime;
use base::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// Time that a device took, counted by all of its cores.
#[derive(Debug, Default)]
pub(super) struct ServiceTime {
    requests: AtomicU64,
    took: AtomicU64,
}

impl ServiceTime {
    /// Notes that the device took `took` for each of `requests` requests.
    pub(super) fn note(&self, took: Nanos, requests: usize) {
        let requests = requests as u64;
        self.requests.fetch_add(requests, Ordering::Relaxed);
        self.took
            .fetch_add(took.0.saturating_mul(requests), Ordering::Relaxed);
    }

    /// Returns what was noted so far.
    pub(super) fn read(&self) -> DeviceTime {
        DeviceTime {
            requests: self.requests.load(Ordering::Relaxed),
            took: Nanos(self.took.load(Ordering::Relaxed)),
        }
    }
}
