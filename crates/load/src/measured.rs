//! Measurements of a thread of the load.

use base::{Latencies, Nanos};
use reactor::priority::Privilege;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Requests that a thread has completed; on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Progress(pub(super) AtomicU64);

/// Measurements of a thread.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Requests that were done within the measured time.
    pub(super) requests: u64,
    /// Latency of each of them, and of each that was under way when that time ended.
    pub(super) latency: Latencies,
    /// The measured time; shorter if the load was stopped.
    pub(super) elapsed: Nanos,
    pub(super) cpu: Duration,
    /// Requests that failed, brought wrong data or had no answer, during the whole run.
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    /// Those of the errors that had no answer at the end ([`ANSWER_WAIT`](super::limits::ANSWER_WAIT)).
    pub(super) unanswered: u64,
    /// Requests with data that was compared with what had been written.
    pub(super) verified: u64,
    /// By what the thread went before others, if it had work that may not wait.
    pub(super) privilege: Option<Privilege>,
}

impl Measured {
    /// Counts a failure; the first one is described.
    pub(super) fn note_error(&mut self, describe: impl FnOnce() -> String) {
        self.errors += 1;
        if self.first_error.is_none() {
            self.first_error = Some(describe());
        }
    }
}

/// Readings of counters at the two ends of the measured time.
#[derive(Debug, Default)]
pub(super) struct Marks<T> {
    pub(super) began: Option<T>,
    pub(super) ended: Option<T>,
}

impl<T> Marks<T> {
    /// Reads where the measured time begins, or ends; only the first call of each counts.
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
