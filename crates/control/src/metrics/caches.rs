//! The caches of devices.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{counters, metrics};
use crate::snapshot::Snapshot;
use block::CacheSnapshot as Counters;
use target::Metric;

const CACHE: [Metric<Counters>; 7] = metrics![Counters:
    Counter "cache_hits" "Pages of reads that were in the cache" |cache| cache.hits;
    Counter "cache_misses" "Pages of reads that were read from the device for them"
        |cache| cache.misses;
    Counter "cache_read_ahead" "Pages that were read before they were asked for"
        |cache| cache.read_ahead;
    Counter "cache_written_back" "Pages that were written back to the device"
        |cache| cache.written_back;
    Counter "cache_failed" "Pages whose write-back failed" |cache| cache.failed;
    Counter "cache_bypassed" "Writes that bypassed the cache because of a limit"
        |cache| cache.bypassed;
    Gauge "cache_dirty" "Pages that differ from the device" |cache| cache.dirty.into();
];

pub(super) fn encode(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    counters(encoder, CACHE, || {
        let caches = snapshot.caches.iter();
        caches.map(|cache| (vec![("device", cache.device.clone())], &cache.counters))
    })
}
