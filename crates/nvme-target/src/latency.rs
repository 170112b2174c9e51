//! Service times of commands, counted in buckets on the core that answers them.
//!
//! The service time as seen by the target: from the dispatch of a command until its answer is
//! queued for sending, including waits for buffers, host data and a paused namespace. No clock is
//! read: both ends are start times of the core's turn, so the resolution is one turn, some
//! microseconds under load. A command answered in the turn of its dispatch, such as any command of
//! a memory device, counts as 0, in the first bucket. Counting needs one or two additions, no locks
//! and no allocation; the numbers are published with the core's other counters.

use base::Nanos;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// Inclusive upper bound of each bucket in nanoseconds; longer times are counted in a further
/// bucket.
pub const LATENCY_BOUNDS_NS: [u64; 20] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    300_000,
    500_000,
    700_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    5_000_000_000,
    30_000_000_000,
];

/// Number of buckets, including the one above all bounds.
const CELLS: usize = LATENCY_BOUNDS_NS.len() + 1;

/// Service times of one kind of command.
///
/// Serialised as a histogram with its bounds; deserialised from a histogram with the same bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Histogram", try_from = "Histogram")]
pub struct Latency {
    /// Number of commands in each bucket of [`LATENCY_BOUNDS_NS`]; the last one is above all
    /// bounds.
    pub buckets: [u64; CELLS],
    /// Sum of all service times in nanoseconds.
    pub sum_ns: u64,
}

impl Latency {
    /// Counts a command that was answered in the turn of its dispatch.
    #[inline]
    pub(crate) fn count_at_once(&mut self) {
        self.buckets[0] += 1;
    }

    /// Counts an answered command.
    pub(crate) fn count(&mut self, took: Nanos) {
        let index = LATENCY_BOUNDS_NS.partition_point(|&bound| bound < took.0);
        self.buckets[index] += 1;
        self.sum_ns = self.sum_ns.wrapping_add(took.0);
    }

    /// Adds the numbers of another core.
    pub fn add(&mut self, other: &Self) {
        for (ours, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *ours += theirs;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// Returns the number of commands.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.buckets
            .iter()
            .fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Returns the bound of the bucket that contains this quantile (`permille` thousandths) of the
    /// commands, in nanoseconds. `None` without commands, or above the last bound.
    #[must_use]
    pub fn permille_ns(&self, permille: u64) -> Option<u64> {
        let wanted = (u128::from(self.commands()) * u128::from(permille)).div_ceil(1000);
        let mut count = 0u128;
        let within = self.buckets.iter().position(|&bucket| {
            count += u128::from(bucket);
            count >= wanted
        });
        let bound = within.filter(|_| wanted > 0);
        bound.and_then(|bucket| LATENCY_BOUNDS_NS.get(bucket).copied())
    }

    /// Returns the commands counted after `earlier`; `None` if a count fell, as after a restart.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let mut rise = *self;
        for (count, before) in rise.buckets.iter_mut().zip(&earlier.buckets) {
            *count = count.checked_sub(*before)?;
        }
        rise.sum_ns = self.sum_ns.saturating_sub(earlier.sum_ns);
        Some(rise)
    }
}

/// The serialised form of a histogram; the counts are not cumulative.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Histogram {
    /// Buckets in rising order of their bounds.
    buckets: Vec<Bucket>,
    /// Commands above the last bound.
    above: u64,
    /// Sum of all service times in nanoseconds.
    sum_ns: u64,
}

/// Number of commands with at most this service time, above the previous bound.
#[derive(Serialize, Deserialize)]
struct Bucket {
    /// The inclusive bound in nanoseconds.
    up_to_ns: u64,
    /// The number of commands.
    count: u64,
}

impl From<Latency> for Histogram {
    fn from(latency: Latency) -> Self {
        let bounds = LATENCY_BOUNDS_NS.iter().zip(&latency.buckets);
        Self {
            buckets: bounds
                .map(|(&up_to_ns, &count)| Bucket { up_to_ns, count })
                .collect(),
            above: latency.buckets[LATENCY_BOUNDS_NS.len()],
            sum_ns: latency.sum_ns,
        }
    }
}

impl TryFrom<Histogram> for Latency {
    type Error = String;

    fn try_from(histogram: Histogram) -> Result<Self, String> {
        let mut latency = Self {
            sum_ns: histogram.sum_ns,
            ..Self::default()
        };
        latency.buckets[LATENCY_BOUNDS_NS.len()] = histogram.above;
        for Bucket { up_to_ns, count } in histogram.buckets {
            let bucket = LATENCY_BOUNDS_NS
                .iter()
                .position(|&bound| bound == up_to_ns);
            let unknown = || {
                format!(
                    "no bucket with the upper bound {up_to_ns} ns; the peer has another \
                    version"
                )
            };
            latency.buckets[bucket.ok_or_else(unknown)?] = count;
        }
        Ok(latency)
    }
}

/// Service times of a namespace's commands, for any status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceLatency {
    /// Read.
    pub reads: Latency,
    /// Write.
    pub writes: Latency,
    /// Flush of this namespace alone.
    pub flushes: Latency,
    /// Write Zeroes, Dataset Management, Compare and Verify.
    pub others: Latency,
}

impl NamespaceLatency {
    /// Adds the numbers of another core.
    pub fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.flushes.add(&other.flushes);
        self.others.add(&other.others);
    }
}

/// Service times of a tenant's commands on a device, for any status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantLatency {
    /// Read: from dispatch to answer.
    pub reads: Latency,
    /// All other commands: from dispatch to answer.
    pub others: Latency,
    /// Read: the time in the device.
    pub device_reads: Latency,
    /// All other commands: the time in the device.
    pub device_others: Latency,
}

impl TenantLatency {
    /// Adds the numbers of another core.
    pub fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.others.add(&other.others);
        self.device_reads.add(&other.device_reads);
        self.device_others.add(&other.device_others);
    }
}

/// One core's published copy of a [`Latency`].
#[derive(Debug, Default)]
struct SharedLatency {
    buckets: [AtomicU64; CELLS],
    sum_ns: AtomicU64,
}

impl SharedLatency {
    fn publish(&self, latency: &Latency) {
        for (cell, &count) in self.buckets.iter().zip(&latency.buckets) {
            cell.store(count, Ordering::Relaxed);
        }
        self.sum_ns.store(latency.sum_ns, Ordering::Relaxed);
    }

    fn load(&self) -> Latency {
        let mut latency = Latency::default();
        for (count, cell) in latency.buckets.iter_mut().zip(&self.buckets) {
            *count = cell.load(Ordering::Relaxed);
        }
        latency.sum_ns = self.sum_ns.load(Ordering::Relaxed);
        latency
    }
}

/// One core's published copy, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SharedNamespaceLatency {
    reads: SharedLatency,
    writes: SharedLatency,
    flushes: SharedLatency,
    others: SharedLatency,
}

impl SharedNamespaceLatency {
    pub(crate) fn publish(&self, latency: &NamespaceLatency) {
        self.reads.publish(&latency.reads);
        self.writes.publish(&latency.writes);
        self.flushes.publish(&latency.flushes);
        self.others.publish(&latency.others);
    }

    pub(crate) fn load(&self) -> NamespaceLatency {
        NamespaceLatency {
            reads: self.reads.load(),
            writes: self.writes.load(),
            flushes: self.flushes.load(),
            others: self.others.load(),
        }
    }
}

/// One core's published copy, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SharedTenantLatency {
    reads: SharedLatency,
    others: SharedLatency,
    device_reads: SharedLatency,
    device_others: SharedLatency,
}

impl SharedTenantLatency {
    pub(crate) fn publish(&self, latency: &TenantLatency) {
        self.reads.publish(&latency.reads);
        self.others.publish(&latency.others);
        self.device_reads.publish(&latency.device_reads);
        self.device_others.publish(&latency.device_others);
    }

    pub(crate) fn load(&self) -> TenantLatency {
        TenantLatency {
            reads: self.reads.load(),
            others: self.others.load(),
            device_reads: self.device_reads.load(),
            device_others: self.device_others.load(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_has_its_bucket_and_bounds_belong_to_theirs() {
        assert!(LATENCY_BOUNDS_NS.is_sorted());
        let mut latency = Latency::default();
        latency.count_at_once();
        for ns in [0, 10_000, 10_001, 30_000_000_000, 30_000_000_001] {
            latency.count(Nanos(ns));
        }
        assert_eq!(latency.buckets[..2], [3, 1]);
        assert_eq!(latency.buckets[CELLS - 2..], [1, 1]);
        assert_eq!(latency.sum_ns, 60_000_020_002);
        assert_eq!(latency.commands(), 6);
    }

    #[test]
    fn a_percentile_is_the_bound_of_its_bucket() {
        let mut latency = Latency::default();
        assert_eq!(latency.permille_ns(500), None);
        latency.buckets[0] = 90;
        latency.buckets[2] = 9;
        latency.buckets[CELLS - 1] = 1;
        let at = |permille| latency.permille_ns(permille);
        assert_eq!(
            (at(900), at(901), at(990)),
            (Some(10_000), Some(50_000), Some(50_000))
        );
        assert_eq!(at(1000), None, "above the last bound");
        let rise = latency.since(&latency).expect("nothing fell");
        assert_eq!(rise.commands(), 0);
        assert_eq!(Latency::default().since(&latency), None);
    }

    #[test]
    fn what_is_written_names_its_bounds_and_is_read_back() {
        let mut latency = Latency::default();
        latency.count(Nanos(20_000));
        latency.count(Nanos(u64::MAX));
        let written = Histogram::from(latency);
        assert_eq!(
            (written.buckets[1].up_to_ns, written.buckets[1].count),
            (20_000, 1)
        );
        assert_eq!(written.above, 1);
        assert_eq!(Latency::try_from(written), Ok(latency));
        let other = Histogram {
            buckets: vec![Bucket {
                up_to_ns: 7,
                count: 1,
            }],
            ..Histogram::default()
        };
        Latency::try_from(other).expect_err("no such bucket");
    }

    #[test]
    fn what_is_published_is_read() {
        let mut latency = NamespaceLatency::default();
        latency.reads.count(Nanos(5));
        latency.flushes.count(Nanos(2_000_000));
        let shared = SharedNamespaceLatency::default();
        shared.publish(&latency);
        assert_eq!(shared.load(), latency);
        let mut total = shared.load();
        total.add(&latency);
        assert_eq!((total.reads.sum_ns, total.flushes.commands()), (10, 2));
    }
}
