//! The keep-alive timer, which ends the controller of a silent host. `[NVMe Base 2.0 §3.9]`

use crate::limits::KEEP_ALIVE_GRANULARITY_100_MS;
use base::mutation::{self, Mutation};
use base::{Nanos, Time};

/// One controller's keep-alive timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepAlive {
    /// KATO in milliseconds; 0: no timer.
    pub(crate) timeout_ms: u32,
    /// Time for which a host without a timer may show no sign of life.
    patience: Nanos,
    last: Time,
}

impl KeepAlive {
    /// Returns a timer that starts now. KATO is rounded up to the target's granularity.
    pub(crate) fn new(timeout_ms: u32, now: Time) -> Self {
        let granularity = u32::from(KEEP_ALIVE_GRANULARITY_100_MS) * 100;
        let rounded = timeout_ms.div_ceil(granularity).saturating_mul(granularity);
        Self {
            timeout_ms: rounded,
            patience: Nanos(0),
            last: now,
        }
    }

    /// Sets the time after which the controller of a host without a timer ends. Commands to the
    /// controller and its I/O queues are signs of life.
    pub(crate) fn with_patience(self, patience: Nanos) -> Self {
        Self { patience, ..self }
    }

    /// Replaces the timer.
    pub(crate) fn set(&mut self, timeout_ms: u32, now: Time) {
        *self = Self::new(timeout_ms, now).with_patience(self.patience);
    }

    /// Records a sign of life of a host without a timer.
    pub(crate) fn note_sign(&mut self, at: Time) {
        if self.timeout_ms == 0 {
            self.last = self.last.max(at);
        }
    }

    /// Restarts the timer after a sign of life of the host.
    pub(crate) fn restart(&mut self, now: Time) {
        if !mutation::active(Mutation::KeepAliveNotRestarted) {
            self.last = now;
        }
    }

    /// Returns the time at which the controller ends, unless the host restarts the timer.
    pub(crate) fn deadline(&self) -> Time {
        match (self.timeout_ms, self.patience) {
            _ if mutation::active(Mutation::KeepAliveNotKept) => Time::NEVER,
            (0, Nanos(0)) => Time::NEVER,
            (0, patience) => self.last + patience,
            (timeout_ms, _) => self.last + Nanos::from_millis(u64::from(timeout_ms)),
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
        // With a timer, commands do not count as signs of life; without one, only they do.
        timer.note_sign(Time(200_000_000));
        assert_eq!(timer.deadline(), Time(350_000_000));
        let mut patient = KeepAlive::new(0, Time::ZERO).with_patience(Nanos(7));
        assert_eq!((patient.timeout_ms, patient.deadline()), (0, Time(7)));
        patient.note_sign(Time(5));
        assert_eq!(patient.deadline(), Time(12));
    }
}
