//! The read share of a device's load, over all threads, with hysteresis. `[ReFlex §3.2.1]`
//!
//! Some devices serve a read-only load at twice the rate, and one write in a hundred requests ends
//! that. So a load counts as read-only only after [`READ_ONLY_AFTER`] without any other operation,
//! and as mixed from the first such operation. Shared by the threads of a device, which add once a
//! round; a stale value costs one round at the other price. Invariant: a lull between two writes
//! does not lower the price of reads.

use crate::cost::DeviceLoad;
use crate::limits::{READ_ONLY_AFTER, SHARE_WINDOW};
use base::Time;
use std::sync::atomic::{AtomicU64, Ordering};

/// 100 %, in thousandths.
const ALL_READS: u64 = 1000;

/// The read share of a device's load.
#[derive(Debug)]
pub struct ReadShare {
    /// Time of the last release of an operation other than a read, in nanoseconds.
    changed_at: AtomicU64,
    /// End of the current counting window, in nanoseconds.
    window_end: AtomicU64,
    reads: AtomicU64,
    others: AtomicU64,
    /// Read share in the previous window, in thousandths.
    permille: AtomicU64,
}

impl Default for ReadShare {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadShare {
    /// An unknown load, which counts as mixed until it has been read-only for [`READ_ONLY_AFTER`].
    #[must_use]
    pub const fn new() -> Self {
        Self {
            changed_at: AtomicU64::new(0),
            window_end: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            others: AtomicU64::new(0),
            permille: AtomicU64::new(ALL_READS),
        }
    }

    /// Returns the kind of load at `now`.
    #[inline]
    #[must_use]
    pub fn load(&self, now: Time) -> DeviceLoad {
        let changed_at = Time(self.changed_at.load(Ordering::Relaxed));
        if changed_at != Time::ZERO && now.since(changed_at) >= READ_ONLY_AFTER {
            DeviceLoad::ReadOnly
        } else {
            DeviceLoad::Mixed
        }
    }

    /// Adds the units of a round. `others` are those of all operations other than reads.
    #[inline]
    pub fn add(&self, now: Time, reads: u64, others: u64) {
        if others > 0 || self.changed_at.load(Ordering::Relaxed) == 0 {
            self.changed_at.fetch_max(now.0.max(1), Ordering::Relaxed);
            self.others.fetch_add(others, Ordering::Relaxed);
        }
        if reads > 0 {
            self.reads.fetch_add(reads, Ordering::Relaxed);
        }
        let end = self.window_end.load(Ordering::Relaxed);
        if now.0 >= end {
            self.turn(now, end);
        }
    }

    /// Returns the share of reads among the units of the last full window, in thousandths, rounded
    /// down. For display; prices use [`load`](Self::load).
    #[must_use]
    pub fn permille(&self) -> u64 {
        self.permille.load(Ordering::Relaxed)
    }

    #[cold]
    fn turn(&self, now: Time, end: u64) {
        let next = (now + SHARE_WINDOW).0;
        let order = Ordering::Relaxed;
        if self
            .window_end
            .compare_exchange(end, next, order, order)
            .is_err()
        {
            return;
        }
        let reads = self.reads.swap(0, order);
        let all = reads.saturating_add(self.others.swap(0, order));
        if let Some(share) = reads.saturating_mul(ALL_READS).checked_div(all) {
            self.permille.store(share, order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Nanos;

    #[test]
    fn reads_are_cheap_only_after_a_while_and_dear_at_once() {
        let share = ReadShare::new();
        let start = Time(5);
        assert_eq!(
            share.load(start + Nanos::from_secs(9)),
            DeviceLoad::Mixed,
            "nothing is known"
        );
        share.add(start, 1, 0);
        assert_eq!(share.load(start), DeviceLoad::Mixed);
        let quiet = start + READ_ONLY_AFTER;
        assert_eq!(share.load(quiet), DeviceLoad::ReadOnly);
        share.add(quiet, 99, 1);
        assert_eq!(share.load(quiet), DeviceLoad::Mixed);
        share.add(quiet + Nanos(1), 99, 0);
        assert_eq!(
            share.load(quiet + READ_ONLY_AFTER - Nanos(1)),
            DeviceLoad::Mixed
        );
        assert_eq!(share.load(quiet + READ_ONLY_AFTER), DeviceLoad::ReadOnly);
    }

    #[test]
    fn the_share_is_that_of_the_last_window() {
        let share = ReadShare::new();
        let mut now = Time(1);
        for _ in 0..100 {
            share.add(now, 9, 1);
            now = now + Nanos::from_millis(1);
        }
        assert_eq!(share.permille(), 900);
        now = now + SHARE_WINDOW;
        share.add(now, 0, 0);
        share.add(now, 0, 10);
        share.add(now + SHARE_WINDOW, 0, 0);
        assert_eq!(share.permille(), 0);
    }
}
