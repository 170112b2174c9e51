//! Measurements of a thread of the load.

use base::{Latencies, Nanos};
use reactor::priority::Privilege;
use std::time::Duration;

/// Measurements of a thread.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Requests completed within the measured time.
    pub(super) requests: u64,
    /// Latency of each of them, and of each that was in flight at the end of that time.
    pub(super) latency: Latencies,
    /// The measured time; shorter if the load was stopped.
    pub(super) elapsed: Nanos,
    pub(super) cpu: Duration,
    /// Requests that failed, returned wrong data or had no completion, during the whole run.
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    /// The part of the errors without a completion at the end
    /// ([`ANSWER_WAIT`](super::limits::ANSWER_WAIT)).
    pub(super) unanswered: u64,
    /// Requests whose data was verified.
    pub(super) verified: u64,
    /// Priority that the thread obtained, if its work is `Latency`.
    pub(super) privilege: Option<Privilege>,
}

impl Measured {
    /// Counts a failure; keeps the description of the first one.
    pub(super) fn note_error(&mut self, describe: impl FnOnce() -> String) {
        self.errors += 1;
        if self.first_error.is_none() {
            self.first_error = Some(describe());
        }
    }
}

/// Counter readings at both ends of the measured time.
#[derive(Debug, Default)]
pub(super) struct Marks<T> {
    pub(super) began: Option<T>,
    pub(super) ended: Option<T>,
}

impl<T> Marks<T> {
    /// Reads the counters at the begin or end of the measured time; only the first call of each
    /// counts.
    pub(super) fn set(&mut self, ends: bool, read: impl FnOnce() -> T) {
        let mark = match ends {
            true => &mut self.ended,
            false => &mut self.began,
        };
        mark.get_or_insert_with(read);
    }

    /// Returns the readings, if both were made.
    pub(super) fn both(&self) -> Option<(&T, &T)> {
        self.began.as_ref().zip(self.ended.as_ref())
    }
}
