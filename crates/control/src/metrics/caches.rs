//! The caches of devices, and what of devices is being erased.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{FamilyKind, Labels, Value, family};
use crate::snapshot::{CacheSnapshot, Snapshot};
use block::CacheSnapshot as Counters;

/// A counter's kind, name and help, and its value in a snapshot.
type Column = (FamilyKind, &'static str, &'static str, fn(&Counters) -> u64);

const COLUMNS: [Column; 7] = [
    (
        FamilyKind::Counter,
        "cache_hits",
        "Pages of reads that were in the cache",
        |cache| cache.hits,
    ),
    (
        FamilyKind::Counter,
        "cache_misses",
        "Pages of reads that were read from the device for them",
        |cache| cache.misses,
    ),
    (
        FamilyKind::Counter,
        "cache_read_ahead",
        "Pages that were read before they were asked for",
        |cache| cache.read_ahead,
    ),
    (
        FamilyKind::Counter,
        "cache_written_back",
        "Pages that were written back to the device",
        |cache| cache.written_back,
    ),
    (
        FamilyKind::Counter,
        "cache_failed",
        "Pages whose write-back failed",
        |cache| cache.failed,
    ),
    (
        FamilyKind::Counter,
        "cache_bypassed",
        "Writes that bypassed the cache because of a limit",
        |cache| cache.bypassed,
    ),
    (
        FamilyKind::Gauge,
        "cache_dirty",
        "Pages that differ from the device",
        |cache| cache.dirty.into(),
    ),
];

pub(super) fn encode(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (kind, name, help, value) in COLUMNS {
        let of = |cache: &CacheSnapshot| {
            let labels: Labels = vec![("device", cache.device.clone())];
            (labels, Value::Count(value(&cache.counters)))
        };
        let values = snapshot.caches.iter().map(of);
        family(encoder, kind, name, help, None, values)?;
    }
    let left = snapshot.erasing.iter().map(|erasing| {
        let labels: Labels = vec![("device", erasing.device.clone())];
        (labels, Value::Count(erasing.bytes_left))
    });
    let help = "Bytes that a namespace gave up and that are still to be erased";
    family(
        encoder,
        FamilyKind::Gauge,
        "device_erasing_bytes",
        help,
        None,
        left,
    )
}
