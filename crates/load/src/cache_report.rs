//! Work of the cache of a load.

use block::{Cache, CacheSnapshot};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Counters of a cache over the measured time, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheReport {
    /// Pages of reads that were in the cache.
    pub hits: u64,
    /// Pages of reads that were read for them.
    pub misses: u64,
    /// Pages that were read ahead.
    pub read_ahead: u64,
    /// Pages that were written back.
    pub written_back: u64,
    /// Pages of write-backs that failed.
    pub failed: u64,
    /// Writes that bypassed the cache because of a limit.
    pub bypassed: u64,
    /// Pages that differed from the device at the end of the measured time.
    pub dirty: u32,
    /// Most pages that differed from the device at any time of the run.
    pub dirty_peak: u32,
    /// Pages that could not be written when the last app had ended: they are lost.
    pub lost: u32,
}

/// Watches a cache from the beginning of the measured time to its end.
#[derive(Debug)]
pub(super) struct CacheWatch {
    cache: Cache,
    began: Option<CacheSnapshot>,
    ended: Option<CacheSnapshot>,
}

impl CacheWatch {
    pub(super) fn new(cache: Cache) -> Self {
        Self {
            cache,
            began: None,
            ended: None,
        }
    }

    /// The measured time begins, or ends; only the first call of each counts.
    pub(super) fn mark(&mut self, ends: bool) {
        let mark = if ends {
            &mut self.ended
        } else {
            &mut self.began
        };
        mark.get_or_insert_with(|| self.cache.snapshot());
    }

    /// Returns the counters, when all apps have closed their channels.
    pub(super) fn report(&self) -> CacheReport {
        let last = self.cache.snapshot();
        let ended = self.ended.unwrap_or(last);
        let counted = ended.since(&self.began.unwrap_or_default());
        CacheReport {
            hits: counted.hits,
            misses: counted.misses,
            read_ahead: counted.read_ahead,
            written_back: counted.written_back,
            failed: counted.failed,
            bypassed: counted.bypassed,
            dirty: ended.dirty,
            dirty_peak: last.dirty_peak,
            lost: last.dirty,
        }
    }
}

impl fmt::Display for CacheReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "cache: {} pages hit, {} missed, {} read ahead; {} written back, {} failed; {} writes \
             bypassed it; {} dirty at the end, {} at most",
            self.hits,
            self.misses,
            self.read_ahead,
            self.written_back,
            self.failed,
            self.bypassed,
            self.dirty,
            self.dirty_peak
        )
    }
}
