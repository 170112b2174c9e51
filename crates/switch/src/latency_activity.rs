//! The activity of `Latency` work on a core, which decides how much one send may carry meanwhile.
//!
//! A send of bulk is what an arriving `Latency` request may find before it, so sends are small
//! beside such work. What that costs bulk is paid with every send, what it spares `Latency` work
//! with every request of it. So it is a good bargain where these come one after the other, and a
//! bad one where a core makes many sends for each request that passes: there, sends may be larger.
//! How many that are is counted where they are made, in bytes, whatever the speed of the link and
//! the processor.
//!
//! One [`LatencyWatch`] for each core and side, told of what arrives and of what leaves. Must
//! never: call work far that is outstanding, or was within the last [`LOAD_RESET`]; or take a
//! pause for a pace, so that the requests after it are treated as rare for longer than some dozens
//! of them.

use crate::limits::{LOAD_RESET, SPARSE_LATENCY_PAUSES};
use crate::load::Ewma;
use base::Time;

#[cfg(test)]
mod tests;

/// The activity of `Latency` work on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LatencyActivity {
    /// No request for [`LOAD_RESET`].
    Absent,
    /// Some requests, and much bulk leaves between two of them.
    Sparse,
    /// Requests that come close on each other.
    Dense,
}

impl LatencyActivity {
    /// Returns true if there is any.
    #[inline]
    #[must_use]
    pub const fn is_active(self) -> bool {
        !matches!(self, Self::Absent)
    }
}

/// The record of the `Latency` work that comes to a core.
#[derive(Clone, Copy, Debug)]
pub struct LatencyWatch {
    /// Time until which it counts as active.
    until: Time,
    /// Bulk that left since a request of it came last, in bytes.
    left: u64,
    /// The average of that.
    between: Ewma,
    /// Average from which on its requests are sparse, in bytes.
    sparse_bytes: u64,
    /// Arrivals after which its requests were sparse.
    sparse: u64,
}

impl LatencyWatch {
    /// None has come yet. Requests between which `sparse_bytes` of bulk or more leave on average
    /// count as sparse.
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

    /// Sets another bound from now on.
    pub const fn reconfigure(&mut self, sparse_bytes: u64) {
        self.sparse_bytes = sparse_bytes;
    }

    /// Notes that such work is there at this moment, even if none of it has just come.
    #[inline]
    pub fn present(&mut self, now: Time) {
        self.until = now + LOAD_RESET;
    }

    /// A request of it came. What left before it counts for no more than
    /// [`SPARSE_LATENCY_PAUSES`] times the bound, so that a pause is soon forgotten.
    #[inline]
    pub fn arrived(&mut self, now: Time) {
        let most = self.sparse_bytes.saturating_mul(SPARSE_LATENCY_PAUSES);
        self.between.add(std::mem::take(&mut self.left).min(most));
        self.sparse += u64::from(self.is_sparse());
        self.present(now);
    }

    /// Counts bytes of bulk that leave.
    #[inline]
    pub const fn sent(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes);
    }

    /// Returns true if there is any, or was lately.
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

    /// Returns the number of requests that came while they were sparse, so far.
    #[must_use]
    pub const fn sparse_arrivals(&self) -> u64 {
        self.sparse
    }
}
