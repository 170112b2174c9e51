//! Counters of the cache of a load.

use crate::measured::Marks;
use block::{Cache, CacheSnapshot};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Counters of a cache over the measured time, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheReport {
    /// The counters. `dirty` is the value at the end of the measured time; `dirty_peak` covers the
    /// whole run.
    #[serde(flatten)]
    pub counters: CacheSnapshot,
    /// Dirty pages that could not be written after the last app ended: lost data.
    pub lost: u32,
}

/// Reads the counters of a cache at both ends of the measured time.
#[derive(Debug)]
pub(super) struct CacheWatch {
    cache: Cache,
    marks: Marks<CacheSnapshot>,
}

impl CacheWatch {
    pub(super) fn new(cache: Cache) -> Self {
        Self {
            cache,
            marks: Marks::default(),
        }
    }

    /// Marks the begin or the end of the measured time; only the first call of each counts.
    pub(super) fn mark(&mut self, ends: bool) {
        self.marks.set(ends, || self.cache.snapshot());
    }

    /// Returns the counters, after all apps have closed their channels.
    pub(super) fn report(&self) -> CacheReport {
        let last = self.cache.snapshot();
        let ended = self.marks.ended.unwrap_or(last);
        let counters = CacheSnapshot {
            dirty_peak: last.dirty_peak,
            ..ended.since(&self.marks.began.unwrap_or_default())
        };
        CacheReport {
            counters,
            lost: last.dirty,
        }
    }
}

impl fmt::Display for CacheReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = &self.counters;
        writeln!(
            f,
            "cache pages: {} hits, {} misses, {} read ahead, {} written back, {} write-back \
             failures, {} writes bypassed, {} dirty at the end (peak {})",
            counters.hits,
            counters.misses,
            counters.read_ahead,
            counters.written_back,
            counters.failed,
            counters.bypassed,
            counters.dirty,
            counters.dirty_peak
        )
    }
}
