//! The activity of `Latency` work on a core, which decides how much one send may carry meanwhile.
//!
//! An arriving `Latency` request may wait for one bulk send, so sends are small while such work is
//! active. Small sends cost bulk something on every send, and benefit only the `Latency` requests:
//! if many sends leave between two of these, larger sends are better. The ratio is counted in bytes
//! where sends are made, independent of link and processor speed. One [`LatencyWatch`] per core and
//! side records arrivals and sends. Invariant: work that is outstanding, or was within the last
//! [`LOAD_RESET`], is never absent; after a pause, requests are treated as sparse for at most some
//! dozens of arrivals.

use crate::limits::{LOAD_RESET, SPARSE_LATENCY_PAUSES};
use crate::load::Ewma;
use base::Time;

#[cfg(test)]
mod tests;

/// The activity of `Latency` work on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LatencyActivity {
    /// No request within the last [`LOAD_RESET`].
    Absent,
    /// Some requests, with much bulk data sent between them.
    Sparse,
    /// Requests in close succession.
    Dense,
}

impl LatencyActivity {
    /// Returns true unless it is absent.
    #[inline]
    #[must_use]
    pub const fn is_active(self) -> bool {
        !matches!(self, Self::Absent)
    }
}

/// The record of `Latency` work on a core.
#[derive(Clone, Copy, Debug)]
pub struct LatencyWatch {
    /// Time until which it counts as active.
    until: Time,
    /// Bulk bytes sent since the last request.
    left: u64,
    /// Average bulk bytes between requests.
    between: Ewma,
    /// Average from which requests are sparse, in bytes.
    sparse_bytes: u64,
    /// Number of arrivals after which requests were sparse.
    sparse: u64,
}

impl LatencyWatch {
    /// Creates the record before any request. Requests are sparse if `sparse_bytes` or more bulk
    /// bytes are sent between them on average.
    #[must_use]
    pub fn new(sparse_bytes: u64) -> Self {
        Self {
            until: Time::ZERO,
            left: 0,
            between: Ewma::default(),
            sparse_bytes,
            sparse: 0,
        }
    }

    /// Sets a new bound, effective at once.
    pub const fn reconfigure(&mut self, sparse_bytes: u64) {
        self.sparse_bytes = sparse_bytes;
    }

    /// Records that `Latency` work is present now, even if nothing has just arrived.
    #[inline]
    pub fn present(&mut self, now: Time) {
        self.until = now + LOAD_RESET;
    }

    /// Records an arrival. Bulk bytes before it count for at most [`SPARSE_LATENCY_PAUSES`] times
    /// the bound, so that a pause is soon forgotten.
    #[inline]
    pub fn arrived(&mut self, now: Time) {
        let most = self.sparse_bytes.saturating_mul(SPARSE_LATENCY_PAUSES);
        self.between.add(std::mem::take(&mut self.left).min(most));
        self.sparse += u64::from(self.is_sparse());
        self.present(now);
    }

    /// Counts sent bulk bytes.
    #[inline]
    pub const fn sent(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes);
    }

    /// Returns true if `Latency` work is present, or was within the last [`LOAD_RESET`].
    #[inline]
    #[must_use]
    pub fn is_active(&self, now: Time) -> bool {
        now < self.until
    }

    /// Returns the activity at `now`.
    #[inline]
    #[must_use]
    pub fn latency_activity(&self, now: Time) -> LatencyActivity {
        if !self.is_active(now) {
            LatencyActivity::Absent
        } else if self.is_sparse() {
            LatencyActivity::Sparse
        } else {
            LatencyActivity::Dense
        }
    }

    #[inline]
    fn is_sparse(&self) -> bool {
        self.between.value() >= self.sparse_bytes
    }

    /// Returns the number of arrivals so far after which requests were sparse.
    #[must_use]
    pub const fn sparse_arrivals(&self) -> u64 {
        self.sparse
    }
}
