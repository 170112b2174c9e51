//! The keep-alive timer: a host that falls silent loses its controller. `[NVMe Base 2.0 §3.9]`

use crate::limits::KEEP_ALIVE_GRANULARITY_100_MS;
use base::{Nanos, Time};

/// One controller's keep-alive timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepAlive {
    /// KATO in milliseconds; 0 for no timer.
    pub(crate) timeout_ms: u32,
    last: Time,
}

impl KeepAlive {
    /// A timer that starts now. KATO is rounded up to our granularity.
    pub(crate) fn new(timeout_ms: u32, now: Time) -> Self {
        let granularity = u32::from(KEEP_ALIVE_GRANULARITY_100_MS) * 100;
        let rounded = timeout_ms.div_ceil(granularity).saturating_mul(granularity);
        Self {
            timeout_ms: rounded,
            last: now,
        }
    }

    /// The host showed that it is there.
    pub(crate) fn restart(&mut self, now: Time) {
        self.last = now;
    }

    /// When the controller ends unless the host shows up.
    pub(crate) fn deadline(&self) -> Time {
        if self.timeout_ms == 0 {
            Time::NEVER
        } else {
            self.last + Nanos::from_millis(u64::from(self.timeout_ms))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_means_never_and_other_values_are_rounded_up() {
        assert_eq!(KeepAlive::new(0, Time(5)).deadline(), Time::NEVER);
        let mut timer = KeepAlive::new(101, Time::ZERO);
        assert_eq!(timer.deadline(), Time::ZERO + Nanos::from_millis(200));
        timer.restart(Time::ZERO + Nanos::from_millis(150));
        assert_eq!(timer.deadline(), Time::ZERO + Nanos::from_millis(350));
    }
}
