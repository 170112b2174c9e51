//! The time between two looks, and what happened in it.

use super::cell::Cell;
use control::snapshot::{Latency, Snapshot};
use target::LATENCY_BOUNDS_NS;

/// The time between two looks at one run of a target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    /// By the target's clock; `None` where there is no earlier look at the same run.
    elapsed_ms: Option<u64>,
}

impl Interval {
    /// A target with a clock that went back is another run; its counters have nothing to do with
    /// those before.
    pub(super) fn between(earlier: Option<&Snapshot>, later: &Snapshot) -> Self {
        let elapsed = |earlier: &Snapshot| later.uptime_ms.checked_sub(earlier.uptime_ms);
        Self {
            elapsed_ms: earlier.and_then(elapsed).filter(|&ms| ms > 0),
        }
    }

    /// Returns true where rates are known.
    pub(super) fn is_known(self) -> bool {
        self.elapsed_ms.is_some()
    }

    /// A counter's rise a second. Nothing where it fell: what it belongs to is new under an old
    /// name.
    fn rate(self, earlier: u64, later: u64) -> Option<u64> {
        let rise = u128::from(later.checked_sub(earlier)?);
        let rate = rise * 1000 / u128::from(self.elapsed_ms?);
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    pub(super) fn count(self, earlier: u64, later: u64) -> Cell {
        self.rate(earlier, later).map_or(Cell::Unknown, Cell::Count)
    }

    pub(super) fn bytes(self, earlier: u64, later: u64) -> Cell {
        self.rate(earlier, later).map_or(Cell::Unknown, Cell::Bytes)
    }

    /// Of a counter in thousandths.
    pub(super) fn milli(self, earlier: u64, later: u64) -> Cell {
        self.rate(earlier, later)
            .map_or(Cell::Unknown, |rate| Cell::Count(rate / 1000))
    }

    /// Of a counter of nanoseconds: how much of the time that was.
    pub(super) fn busy(self, earlier: u64, later: u64) -> Cell {
        self.rate(earlier, later)
            .map_or(Cell::Unknown, |rate| Cell::Percent(rate / 10_000_000))
    }

    pub(super) fn rise<'a, T>(self, was: &'a T, is: &'a T) -> Rise<'a, T> {
        let interval = self;
        Rise { interval, was, is }
    }

    /// Returns p50, p95 and p99 of the commands between the looks.
    pub(super) fn percentiles(self, earlier: &Latency, later: &Latency) -> [Cell; 3] {
        let rise = self.is_known().then(|| later.since(earlier)).flatten();
        [500, 950, 990].map(|permille| match &rise {
            Some(rise) if rise.commands() > 0 => rise
                .permille_ns(permille)
                .map_or(Cell::Above(BOUND_MAX_NS), Cell::Nanos),
            _ => Cell::Unknown,
        })
    }
}

/// Counters now and at the earlier look, as rates.
#[derive(Debug)]
pub(super) struct Rise<'a, T> {
    interval: Interval,
    was: &'a T,
    pub(super) is: &'a T,
}

impl<T> Rise<'_, T> {
    /// The rise of a counter a second.
    pub(super) fn count(&self, counter: fn(&T) -> u64) -> Cell {
        self.interval.count(counter(self.was), counter(self.is))
    }

    /// The same of a counter of bytes.
    pub(super) fn bytes(&self, counter: fn(&T) -> u64) -> Cell {
        self.interval.bytes(counter(self.was), counter(self.is))
    }

    /// The same of a counter in thousandths.
    pub(super) fn milli(&self, counter: fn(&T) -> u64) -> Cell {
        self.interval.milli(counter(self.was), counter(self.is))
    }
}

/// The bound of the last bucket of a histogram.
const BOUND_MAX_NS: u64 = LATENCY_BOUNDS_NS[LATENCY_BOUNDS_NS.len() - 1];

#[cfg(test)]
mod tests {
    use super::*;

    fn at(uptime_ms: u64) -> Snapshot {
        Snapshot {
            uptime_ms,
            ..Snapshot::default()
        }
    }

    /// Counts by the index of the bucket.
    fn histogram(counts: &[(usize, u64)]) -> Latency {
        let mut latency = Latency::default();
        for &(bucket, count) in counts {
            latency.buckets[bucket] = count;
        }
        latency
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
            let some = histogram(&[(0, 5)]);
            let none = Latency::default();
            assert_eq!(interval.percentiles(&none, &some)[0], Cell::Unknown);
        }
    }

    #[test]
    fn percentiles_are_of_what_happened_between_the_looks() {
        let interval = Interval::between(Some(&at(1000)), &at(2000));
        let above = LATENCY_BOUNDS_NS.len();
        let earlier = histogram(&[(0, 1000), (3, 7)]);
        let later = histogram(&[(0, 1000), (2, 60), (3, 43), (above, 4)]);
        let seen = interval.percentiles(&earlier, &later);
        let bounds = [2, 3].map(|bucket| Cell::Nanos(LATENCY_BOUNDS_NS[bucket]));
        assert_eq!(seen[..2], bounds);
        assert_eq!(seen[2], Cell::Above(BOUND_MAX_NS));
        assert_eq!(interval.percentiles(&later, &later)[0], Cell::Unknown);
        assert_eq!(interval.percentiles(&later, &earlier)[0], Cell::Unknown);
    }
}
