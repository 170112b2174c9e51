//! The account of a core's submitters that may send for themselves.

use crate::switch::shared_load::SharedLoad;
use base::Time;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An account of one core's submitters with `Latency` work; on cache lines of its own, because they
/// change it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct DirectAccount {
    /// Submitters with `Latency` work on the core.
    submitters: AtomicU32,
    /// Bytes outstanding in lanes of their own.
    bytes: AtomicU64,
    /// Moving average of those bytes.
    average: SharedLoad,
    /// Requests that such lanes took.
    requests: AtomicU64,
}

impl DirectAccount {
    /// A submitter came to the core.
    pub(super) fn enter(&self) {
        self.submitters.fetch_add(1, Ordering::Relaxed);
    }

    /// A submitter left it.
    pub(super) fn leave(&self) {
        self.submitters.fetch_sub(1, Ordering::Relaxed);
    }

    /// Submitters with `Latency` work on the core.
    pub(super) fn submitters(&self) -> u32 {
        self.submitters.load(Ordering::Relaxed)
    }

    /// A request goes by a lane of its submitter's own.
    #[inline]
    pub(super) fn begin(&self, bytes: u64, now: Time) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.average.sample(now, before + bytes);
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// It is over.
    #[inline]
    pub(super) fn end(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes outstanding.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Average load of such lanes in bytes.
    pub(super) fn load_bytes(&self, now: Time) -> u64 {
        self.average.bytes(now)
    }

    /// Requests since the start.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}
