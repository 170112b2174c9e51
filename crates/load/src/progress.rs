//! Progress of a load's threads, which the conductor reads while they run.

use base::Nanos;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets of a power of two: a percentile is exact to an eighth.
const PER_OCTAVE: u64 = 8;

/// Buckets up to 2^37 ns, more than the largest latency of a report.
const BUCKETS: usize = 35 * 8;

/// Progress of a thread, on its own cache lines. Only the thread writes it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Progress {
    /// Requests completed since the start.
    pub(super) completed: AtomicU64,
    /// Bytes of a request.
    pub(super) request_bytes: u64,
    /// Measured requests by latency.
    latencies: [AtomicU64; BUCKETS],
}

impl Progress {
    /// No progress of a thread with requests of this size.
    pub(super) fn new(request_bytes: u32) -> Self {
        Self {
            completed: AtomicU64::new(0),
            request_bytes: request_bytes.into(),
            latencies: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    /// Counts a measured request.
    pub(super) fn record(&self, latency: Nanos) {
        let count = &self.latencies[bucket(latency)];
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    /// Returns the 99th percentile of the measured latencies of all threads; `None` without any.
    pub(super) fn p99<'a>(threads: impl Iterator<Item = &'a Self>) -> Option<Nanos> {
        let mut counts = [0; BUCKETS];
        for thread in threads {
            for (sum, count) in counts.iter_mut().zip(&thread.latencies) {
                *sum += count.load(Relaxed);
            }
        }
        let total: u64 = counts.iter().sum();
        let mut rank = total - total / 100;
        let found = counts.iter().position(|&count| {
            rank = rank.saturating_sub(count);
            rank == 0
        });
        found.filter(|_| total > 0).map(largest)
    }
}

/// Returns the bucket of a latency.
fn bucket(latency: Nanos) -> usize {
    let octave = u64::from((latency.0 | (PER_OCTAVE - 1)).ilog2() - (PER_OCTAVE - 1).ilog2());
    let within = (latency.0 >> octave.saturating_sub(1)) % PER_OCTAVE;
    usize::try_from(octave * PER_OCTAVE + within).map_or(BUCKETS - 1, |it| it.min(BUCKETS - 1))
}

/// Returns the largest latency of a bucket.
fn largest(bucket: usize) -> Nanos {
    let (octave, within) = (bucket as u64 / PER_OCTAVE, bucket as u64 % PER_OCTAVE);
    Nanos(match octave {
        0 => within,
        octave => ((PER_OCTAVE + within + 1) << (octave - 1)) - 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let mut expected = 0;
        for number in 0..BUCKETS - 1 {
            let last = largest(number);
            assert_eq!(bucket(last), number);
            assert_eq!(bucket(Nanos(expected)), number, "{expected}");
            expected = last.0 + 1;
        }
        assert_eq!(bucket(Nanos(u64::MAX)), BUCKETS - 1);
        assert!(largest(BUCKETS - 1).0 > base::Latencies::MAX.0);
    }

    #[test]
    fn the_percentile_is_that_of_all_threads() {
        let threads = [Progress::new(512), Progress::new(512)];
        assert_eq!(Progress::p99(threads.iter()), None);
        for _ in 0..98 {
            threads[0].record(Nanos(1_000));
        }
        threads[1].record(Nanos(2_000));
        threads[1].record(Nanos(1_000_000));
        let p99 = Progress::p99(threads.iter()).expect("latencies");
        assert!((2_000..2_250).contains(&p99.0), "{p99:?}");
    }
}
