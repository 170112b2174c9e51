//! The sum of a device's own service times, for
//! [`Device::device_time`](super::Device::device_time).

use super::DeviceTime;
use base::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// Service time of a device, summed over all of its cores.
#[derive(Debug, Default)]
pub(super) struct ServiceTime {
    requests: AtomicU64,
    took: AtomicU64,
}

impl ServiceTime {
    /// Adds a service time of `took` for each of `requests` requests.
    pub(super) fn note(&self, took: Nanos, requests: usize) {
        let requests = requests as u64;
        self.requests.fetch_add(requests, Ordering::Relaxed);
        self.took
            .fetch_add(took.0.saturating_mul(requests), Ordering::Relaxed);
    }

    /// Returns the sum so far.
    pub(super) fn read(&self) -> DeviceTime {
        DeviceTime {
            requests: self.requests.load(Ordering::Relaxed),
            took: Nanos(self.took.load(Ordering::Relaxed)),
        }
    }
}
