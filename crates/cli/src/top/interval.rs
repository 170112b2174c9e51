//! The time between two looks, and what happened in it.

use super::Cell;
use control::snapshot::{LatencyBucket, LatencyHistogram, Snapshot};
use std::collections::BTreeMap;

/// The time between two looks at one run of a target.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// By the target's clock; `None` where there is no earlier look at the same run.
    elapsed_ms: Option<u64>,
}

impl Interval {
    /// A target whose clock went back is another run; its counters have nothing to do with those
    /// before.
    pub fn between(earlier: Option<&Snapshot>, later: &Snapshot) -> Self {
        let elapsed = |earlier: &Snapshot| later.uptime_ms.checked_sub(earlier.uptime_ms);
        Self {
            elapsed_ms: earlier.and_then(elapsed).filter(|&ms| ms > 0),
        }
    }

    /// Whether anything can be said.
    pub fn is_known(self) -> bool {
        self.elapsed_ms.is_some()
    }

    /// A counter's rise a second. Nothing where it fell: what it belongs to is new under an old
    /// name.
    fn rate(self, earlier: u64, later: u64) -> Option<u64> {
        let rise = u128::from(later.checked_sub(earlier)?);
        let rate = rise * 1000 / u128::from(self.elapsed_ms?);
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    pub fn count(self, earlier: u64, later: u64) -> Cell {
        self.rate(earlier, later).map_or(Cell::Unknown, Cell::Count)
    }

    pub fn bytes(self, earlier: u64, later: u64) -> Cell {
        self.rate(earlier, later).map_or(Cell::Unknown, Cell::Bytes)
    }

    /// Of a counter in thousandths.
    pub fn milli(self, earlier: u64, later: u64) -> Cell {
        self.rate(earlier, later)
            .map_or(Cell::Unknown, |rate| Cell::Count(rate / 1000))
    }

    /// Of a counter of nanoseconds: how much of the time that was.
    pub fn busy(self, earlier: u64, later: u64) -> Cell {
        self.rate(earlier, later)
            .map_or(Cell::Unknown, |rate| Cell::Percent(rate / 10_000_000))
    }

    /// p50, p95 and p99 of what was counted between the looks.
    pub fn percentiles(self, earlier: &LatencyHistogram, later: &LatencyHistogram) -> [Cell; 3] {
        let rise = self.is_known().then(|| rise(earlier, later)).flatten();
        [500, 950, 990].map(|permille| match &rise {
            Some(histogram) if histogram.count() > 0 => {
                let bound = histogram.buckets.last().map_or(0, |last| last.up_to_ns);
                histogram
                    .permille_ns(permille)
                    .map_or(Cell::Above(bound), Cell::Nanos)
            }
            _ => Cell::Unknown,
        })
    }
}

/// What `later` counts and `earlier` does not; `None` where anything fell.
fn rise(earlier: &LatencyHistogram, later: &LatencyHistogram) -> Option<LatencyHistogram> {
    let before: BTreeMap<u64, u64> = earlier
        .buckets
        .iter()
        .map(|bucket| (bucket.up_to_ns, bucket.count))
        .collect();
    let bucket = |later: &LatencyBucket| {
        let before = before.get(&later.up_to_ns).copied().unwrap_or_default();
        Some(LatencyBucket {
            up_to_ns: later.up_to_ns,
            count: later.count.checked_sub(before)?,
        })
    };
    Some(LatencyHistogram {
        buckets: later.buckets.iter().map(bucket).collect::<Option<_>>()?,
        above: later.above.checked_sub(earlier.above)?,
        sum_ns: later.sum_ns.saturating_sub(earlier.sum_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(uptime_ms: u64) -> Snapshot {
        Snapshot {
            uptime_ms,
            ..Snapshot::default()
        }
    }

    fn histogram(counts: &[(u64, u64)], above: u64) -> LatencyHistogram {
        let bucket = |&(up_to_ns, count): &(u64, u64)| LatencyBucket { up_to_ns, count };
        LatencyHistogram {
            buckets: counts.iter().map(bucket).collect(),
            above,
            sum_ns: 0,
        }
    }

    #[test]
    fn a_rate_is_of_the_targets_second() {
        let two_seconds = Interval::between(Some(&at(1000)), &at(3000));
        assert_eq!(two_seconds.count(10, 30), Cell::Count(10));
        assert_eq!(two_seconds.bytes(0, 8192), Cell::Bytes(4096));
        assert_eq!(two_seconds.milli(1000, 21_000), Cell::Count(10));
        assert_eq!(two_seconds.busy(0, 500_000_000), Cell::Percent(25));
        assert_eq!(two_seconds.count(30, 10), Cell::Unknown);
        assert_eq!(two_seconds.count(0, u64::MAX), Cell::Count(u64::MAX / 2));
    }

    #[test]
    fn looks_at_different_runs_say_nothing() {
        for interval in [
            Interval::between(None, &at(3000)),
            Interval::between(Some(&at(9000)), &at(3000)),
            Interval::between(Some(&at(3000)), &at(3000)),
        ] {
            assert!(!interval.is_known());
            assert_eq!(interval.count(1, 2), Cell::Unknown);
            let some = histogram(&[(100, 5)], 0);
            let none = LatencyHistogram::default();
            assert_eq!(interval.percentiles(&none, &some)[0], Cell::Unknown);
        }
    }

    #[test]
    fn percentiles_are_of_what_happened_between_the_looks() {
        let interval = Interval::between(Some(&at(1000)), &at(2000));
        let earlier = histogram(&[(100, 1000), (400, 7)], 0);
        let later = histogram(&[(100, 1000), (200, 60), (400, 43)], 4);
        let seen = interval.percentiles(&earlier, &later);
        assert_eq!(seen, [Cell::Nanos(200), Cell::Nanos(400), Cell::Above(400)]);
        assert_eq!(interval.percentiles(&later, &later)[0], Cell::Unknown);
        assert_eq!(interval.percentiles(&later, &earlier)[0], Cell::Unknown);
    }
}
