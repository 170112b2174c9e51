//! Demand of an I/O queue on its core, as seen by the target: outstanding bytes and their moving
//! average. `[blk-switch §3.3]`
//!
//! Owned by the queue's connection. Each receive with commands is a sample of the outstanding bytes
//! plus those just received, so that commands completed at once from memory count as well. The
//! core's load is the sum over its queues. Invariant: a load without commands expires after
//! [`LOAD_RESET`](crate::limits::LOAD_RESET).

use crate::load::ClassLoad;
use base::{Nanos, Time};

/// Load of an I/O queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// Data bytes of commands that do not complete at once.
    pub outstanding: u64,
    /// Data bytes of commands completed at once since the last sample.
    pub answered: u64,
    load: ClassLoad,
}

impl Demand {
    /// Samples on received commands. Returns the load before and after, in bytes.
    #[inline]
    pub fn sample(&mut self, now: Time) -> (u64, u64) {
        let before = self.load.last_bytes();
        let answered = std::mem::take(&mut self.answered);
        let bytes = self.outstanding.saturating_add(answered);
        self.load.sample(now, bytes);
        (before, self.load.last_bytes())
    }

    /// The load in bytes at the last sample.
    #[must_use]
    pub const fn load(&self) -> u64 {
        self.load.last_bytes()
    }

    /// Returns true if no commands have arrived for so long that the load has expired.
    #[must_use]
    pub fn is_stale(&self, now: Time) -> bool {
        self.load.last_bytes() > 0 && self.load.bytes(now) == 0
    }

    /// The load in bytes if commands arrived within the last `span`; otherwise 0.
    #[must_use]
    pub fn load_within(&self, span: Nanos, now: Time) -> u64 {
        self.load.bytes_within(span, now)
    }

    /// Resets the load. Returns its last value.
    pub fn forget(&mut self) -> u64 {
        std::mem::take(&mut self.load).last_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LOAD_RESET;

    #[test]
    fn a_load_is_learned_from_what_waits_and_what_does_not_and_forgotten() {
        let mut demand = Demand::default();
        let now = Time(5_000_000_000);
        for _ in 0..200 {
            demand.outstanding = 65_536;
            demand.answered = 4096;
            demand.sample(now);
        }
        assert_eq!(demand.load(), 69_632);
        assert!(!demand.is_stale(now));
        let silent = now + LOAD_RESET;
        assert!(demand.is_stale(silent));
        assert_eq!(demand.forget(), 69_632);
        assert!(!demand.is_stale(silent));
    }
}
