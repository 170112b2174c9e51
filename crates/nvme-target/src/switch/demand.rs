//! Demand of an I/O queue on its core: bytes outstanding, and their moving average.
//! `[blk-switch §3.3]`
//!
//! Owned by the connection. A sample is taken for each receive that brought commands: what was
//! outstanding, and what came. That counts what memory answers at once, too, which is never
//! outstanding for long. The core's load is the sum over its queues. Must never: keep a load
//! without commands alive (it is none after [`LOAD_RESET`]).

use base::{Nanos, Time};
use switch::limits::LOAD_RESET;
use switch::load::Ewma;

/// Demand of an I/O queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    /// Bytes of data of commands that take their time.
    pub(crate) outstanding: u64,
    /// Bytes of data of commands that were answered at once, since the last sample.
    pub(crate) answered: u64,
    average: Ewma,
    last: Time,
}

impl Demand {
    /// Commands came. Returns the load before and after, in bytes.
    pub(crate) fn sample(&mut self, now: Time) -> (u64, u64) {
        let before = self.average.value();
        if now.since(self.last) >= LOAD_RESET {
            self.average = Ewma::default();
        }
        self.last = now;
        let answered = std::mem::take(&mut self.answered);
        self.average.add(self.outstanding.saturating_add(answered));
        (before, self.average.value())
    }

    /// The load in bytes, as of the last sample.
    pub(crate) const fn load(&self) -> u64 {
        self.average.value()
    }

    /// Returns true if no commands have come for so long that the load counts for nothing.
    pub(crate) fn is_stale(&self, now: Time) -> bool {
        self.average.value() > 0 && now.since(self.last) >= LOAD_RESET
    }

    /// The load in bytes, if commands came in the last `span`.
    pub(crate) fn load_within(&self, span: Nanos, now: Time) -> u64 {
        let asks = now.since(self.last) < span;
        if asks { self.average.value() } else { 0 }
    }

    /// There is no load any more. Returns what it was.
    pub(crate) fn forget(&mut self) -> u64 {
        let before = self.average.value();
        self.average = Ewma::default();
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_learned_from_what_waits_and_what_does_not_and_forgotten() {
        let mut demand = Demand::default();
        let now = Time(5_000_000_000);
        for _ in 0..200 {
            demand.outstanding = 65_536;
            demand.answered = 4096;
            demand.sample(now);
        }
        assert_eq!(demand.average.value(), 69_632);
        assert!(!demand.is_stale(now));
        let silent = now + LOAD_RESET;
        assert!(demand.is_stale(silent));
        assert_eq!(demand.forget(), 69_632);
        assert!(!demand.is_stale(silent));
    }
}
