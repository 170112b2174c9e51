//! Decides what a thread of the load asks for next.

use super::app::Access;
use super::job::Job;
use super::written::Written;
use base::{Prng, Time};

/// A request that was decided on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Planned {
    pub(super) unit: u64,
    pub(super) read: bool,
    /// Time from which its latency counts.
    pub(super) begins: Time,
}

/// Addresses of a load, by its seed.
#[derive(Debug)]
pub(super) struct Planner {
    random: Prng,
    /// Next unit of a sequential application.
    cursor: u64,
}

impl Planner {
    /// A planner of a sequential load that begins at unit `first`.
    pub(super) fn new(random: Prng, first: u64) -> Self {
        Self {
            random,
            cursor: first,
        }
    }

    /// The next request. One that is verified never meets another in flight on the same unit.
    pub(super) fn plan(&mut self, begins: Time, job: &Job, written: Option<&Written>) -> Planned {
        let span = &job.span;
        let after = |unit: u64| {
            if unit + 1 < span.end {
                unit + 1
            } else {
                span.start
            }
        };
        let mut unit = match job.access {
            Access::Random => span.start + self.random.below(span.end - span.start),
            Access::Sequential => {
                let unit = self.cursor;
                self.cursor = after(unit);
                unit
            }
        };
        if let Some(written) = written {
            // There are more units than requests, so this ends.
            while written.is_busy(unit - span.start) {
                unit = after(unit);
            }
        }
        let read = self.random.chance(u64::from(job.read_percent), 100);
        Planned { unit, read, begins }
    }
}
