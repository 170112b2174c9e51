//! Counts what passes, and how long it took, without any influence on it.
//!
//! Each channel counts in cells of its own, which only its core writes; any thread may read all of
//! them at any time through [`Stats::snapshot`]. Readings of different cells may be some
//! nanoseconds apart. What a closed channel counted stays in the sum.

use super::below::{LayerChannel, LayerDevice};
use super::in_flight::InFlight;
use crate::device::{Channel, Device, Submit};
use crate::limits::LAYER_QUEUE_DEPTH;
use crate::request::{Completion, Operation, Request};
use base::{Nanos, Time};
use reactor::{Context, Driver};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Each power of two of latency is divided into this many buckets: quantiles are at most an
/// eighth too high.
const BUCKETS_PER_OCTAVE: usize = 8;

/// Latencies from 1 ns to 2⁴⁰ ns (18 minutes); longer ones count as the longest.
const BUCKETS: usize = 40 * BUCKETS_PER_OCTAVE;

/// Kinds of operations, in the order of [`StatsSnapshot::operations`].
pub const OPERATION_NAMES: [&str; 7] = [
    "read",
    "write",
    "flush",
    "write_zeroes",
    "deallocate",
    "compare",
    "verify",
];

fn kind(operation: Operation) -> usize {
    match operation {
        Operation::Read => 0,
        Operation::Write { .. } => 1,
        Operation::Flush => 2,
        Operation::WriteZeroes { .. } => 3,
        Operation::Deallocate => 4,
        Operation::Compare => 5,
        Operation::Verify => 6,
    }
}

fn bucket(latency: Nanos) -> usize {
    let value = latency.0.max(1);
    let octave = value.ilog2() as usize;
    // The bits below the highest one tell where in its octave the value lies.
    let below = u128::from(value - (1 << octave)) * BUCKETS_PER_OCTAVE as u128;
    let part = usize::try_from(below >> octave).unwrap_or(0);
    (octave * BUCKETS_PER_OCTAVE + part).min(BUCKETS - 1)
}

/// The longest latency that counts in a bucket.
fn bucket_end(index: usize) -> Nanos {
    let (octave, part) = (index / BUCKETS_PER_OCTAVE, index % BUCKETS_PER_OCTAVE + 1);
    let end = (1u64 << octave) + ((part as u64) << octave) / BUCKETS_PER_OCTAVE as u64;
    Nanos(end)
}

/// A counter with one writer and any number of readers.
#[derive(Debug, Default)]
struct Cell(AtomicU64);

impl Cell {
    fn add(&self, amount: u64) {
        let sum = self.get().wrapping_add(amount);
        self.0.store(sum, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct OperationCells {
    completed: Cell,
    failed: Cell,
    bytes: Cell,
    latency_sum: Cell,
    latency: [Cell; BUCKETS],
}

struct Cells {
    operations: [OperationCells; OPERATION_NAMES.len()],
    submitted: Cell,
    busy: Cell,
}

impl Cells {
    fn new() -> Self {
        let operation = || OperationCells {
            completed: Cell::default(),
            failed: Cell::default(),
            bytes: Cell::default(),
            latency_sum: Cell::default(),
            latency: std::array::from_fn(|_| Cell::default()),
        };
        Self {
            operations: std::array::from_fn(|_| operation()),
            submitted: Cell::default(),
            busy: Cell::default(),
        }
    }
}

impl fmt::Debug for Cells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cells")
            .field("submitted", &self.submitted)
            .finish_non_exhaustive()
    }
}

/// Counters of one kind of operation.
#[derive(Clone)]
pub struct OperationStats {
    /// Requests that ended, failed ones included.
    pub completed: u64,
    /// Requests that ended with an error.
    pub failed: u64,
    /// Bytes of the ranges of requests that succeeded.
    pub bytes: u64,
    /// Sum of the latencies of all that ended.
    pub latency_sum: Nanos,
    latency: Box<[u64; BUCKETS]>,
}

impl OperationStats {
    fn new() -> Self {
        Self {
            completed: 0,
            failed: 0,
            bytes: 0,
            latency_sum: Nanos::ZERO,
            latency: Box::new([0; BUCKETS]),
        }
    }

    fn add(&mut self, cells: &OperationCells) {
        self.completed += cells.completed.get();
        self.failed += cells.failed.get();
        self.bytes += cells.bytes.get();
        self.latency_sum += Nanos(cells.latency_sum.get());
        for (sum, cell) in self.latency.iter_mut().zip(&cells.latency) {
            *sum += cell.get();
        }
    }

    fn merge(&mut self, other: &Self) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.bytes += other.bytes;
        self.latency_sum += other.latency_sum;
        for (sum, count) in self.latency.iter_mut().zip(other.latency.iter()) {
            *sum += count;
        }
    }

    /// The latency that `per_mille` of a thousand requests did not exceed, at most an eighth too
    /// high; zero when none ended.
    #[must_use]
    pub fn latency_quantile(&self, per_mille: u64) -> Nanos {
        let total: u64 = self.latency.iter().sum();
        let wanted = u128::from(total) * u128::from(per_mille.min(1000));
        let mut seen = 0u128;
        for (index, &count) in self.latency.iter().enumerate() {
            seen += u128::from(count);
            if count > 0 && seen * 1000 >= wanted {
                return bucket_end(index);
            }
        }
        Nanos::ZERO
    }
}

impl fmt::Debug for OperationStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationStats")
            .field("completed", &self.completed)
            .field("failed", &self.failed)
            .field("bytes", &self.bytes)
            .field("latency_sum", &self.latency_sum)
            .finish_non_exhaustive()
    }
}

/// Counters of all channels up to now.
#[derive(Clone, Debug)]
pub struct StatsSnapshot {
    /// Counters by kind, in the order of [`OPERATION_NAMES`].
    pub operations: [OperationStats; OPERATION_NAMES.len()],
    /// Requests that were taken.
    pub submitted: u64,
    /// Times that a request was sent back because there was no room.
    pub busy: u64,
}

impl StatsSnapshot {
    fn new() -> Self {
        Self {
            operations: std::array::from_fn(|_| OperationStats::new()),
            submitted: 0,
            busy: 0,
        }
    }

    fn add(&mut self, cells: &Cells) {
        for (sum, cells) in self.operations.iter_mut().zip(&cells.operations) {
            sum.add(cells);
        }
        self.submitted += cells.submitted.get();
        self.busy += cells.busy.get();
    }

    /// Returns the counters of one kind of operation; its options make no difference.
    #[must_use]
    pub fn of(&self, operation: Operation) -> &OperationStats {
        &self.operations[kind(operation)]
    }

    /// Requests under way.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let completed: u64 = self.operations.iter().map(|stats| stats.completed).sum();
        self.submitted.saturating_sub(completed)
    }

    /// Returns the sum over all kinds.
    #[must_use]
    pub fn total(&self) -> OperationStats {
        let mut total = OperationStats::new();
        for stats in &self.operations {
            total.merge(stats);
        }
        total
    }
}

#[derive(Debug)]
struct Registry {
    open: Vec<Arc<Cells>>,
    /// Counters of channels that are gone.
    retired: StatsSnapshot,
}

/// A device that is observed.
#[derive(Debug)]
pub struct Stats {
    inner: Arc<dyn Device>,
    registry: Arc<Mutex<Registry>>,
}

fn lock(registry: &Mutex<Registry>) -> std::sync::MutexGuard<'_, Registry> {
    // Counters are valid whatever happened to the thread that was at it.
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stats {
    /// `inner`, observed.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        let registry = Registry {
            open: Vec::new(),
            retired: StatsSnapshot::new(),
        };
        Self {
            inner,
            registry: Arc::new(Mutex::new(registry)),
        }
    }

    /// Returns the counters of all channels together since the device was made. May be called on
    /// any thread.
    #[must_use]
    pub fn snapshot(&self) -> StatsSnapshot {
        let registry = lock(&self.registry);
        let mut sum = registry.retired.clone();
        for cells in &registry.open {
            sum.add(cells);
        }
        sum
    }
}

impl LayerDevice for Stats {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn channel(&self, inner: Box<dyn Channel>, _: &mut dyn Driver) -> Box<dyn Channel> {
        let cells = Arc::new(Cells::new());
        lock(&self.registry).open.push(Arc::clone(&cells));
        Box::new(StatsChannel {
            inner,
            cells,
            registry: Arc::clone(&self.registry),
            block_bytes: self.geometry().block_bytes,
            in_flight: InFlight::new(),
            finished: VecDeque::with_capacity(LAYER_QUEUE_DEPTH),
        })
    }
}

/// The layer's record of a request that is under way.
#[derive(Clone, Copy, Debug)]
struct Note {
    kind: usize,
    bytes: u64,
    since: Time,
}

/// One core's way in.
#[derive(Debug)]
struct StatsChannel {
    inner: Box<dyn Channel>,
    cells: Arc<Cells>,
    registry: Arc<Mutex<Registry>>,
    block_bytes: u32,
    in_flight: InFlight<Note>,
    finished: VecDeque<Completion>,
}

impl StatsChannel {
    fn count(&self, note: Note, completion: &Completion, now: Time) {
        let cells = &self.cells.operations[note.kind];
        cells.completed.add(1);
        if completion.result.is_ok() {
            cells.bytes.add(note.bytes);
        } else {
            cells.failed.add(1);
        }
        let latency = now.since(note.since);
        cells.latency_sum.add(latency.0);
        cells.latency[bucket(latency)].add(1);
    }
}

impl Drop for StatsChannel {
    fn drop(&mut self) {
        let mut registry = lock(&self.registry);
        registry.retired.add(&self.cells);
        registry
            .open
            .retain(|cells| !Arc::ptr_eq(cells, &self.cells));
    }
}

impl LayerChannel for StatsChannel {
    fn inner(&self) -> &dyn Channel {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Channel {
        &mut *self.inner
    }

    fn enter(&mut self, mut request: Request, cx: &mut Context<'_>) -> Submit {
        if self.in_flight.is_full() || self.finished.len() >= LAYER_QUEUE_DEPTH {
            self.cells.busy.add(1);
            return Submit::Busy(request);
        }
        let flush = request.operation == Operation::Flush;
        let blocks = if flush { 0 } else { request.blocks };
        let note = Note {
            kind: kind(request.operation),
            bytes: u64::from(blocks) * u64::from(self.block_bytes),
            since: cx.now,
        };
        self.in_flight.enter(&mut request, note);
        match self.inner.submit(request, cx) {
            Submit::Done(mut completion) => {
                let _ = self.in_flight.restore(&mut completion);
                self.cells.submitted.add(1);
                // The context's time stands still within a turn.
                self.count(note, &completion, cx.driver.now());
                Submit::Done(completion)
            }
            Submit::Queued => {
                self.cells.submitted.add(1);
                Submit::Queued
            }
            Submit::Busy(mut request) => {
                if let Some((tag, _)) = self.in_flight.leave(request.tag) {
                    request.tag = tag;
                }
                self.cells.busy.add(1);
                Submit::Busy(request)
            }
        }
    }

    fn collect(&mut self, now: Time) {
        while let Some(mut completion) = self.inner.reap() {
            if let Some(note) = self.in_flight.restore(&mut completion) {
                self.count(note, &completion, now);
                self.finished.push_back(completion);
            }
        }
    }

    fn finished(&mut self) -> Option<Completion> {
        self.finished.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_in_its_bucket() {
        for value in [1, 2, 3, 7, 8, 9, 100, 1_000, 123_456, 1 << 39] {
            let index = bucket(Nanos(value));
            let end = bucket_end(index).0;
            assert!(
                end >= value && end <= value + value / 8 + 1,
                "{value}: {end}"
            );
            assert!(index == 0 || bucket_end(index - 1).0 <= value, "{value}");
        }
        assert_eq!(bucket(Nanos(u64::MAX)), BUCKETS - 1);
        assert_eq!(bucket(Nanos::ZERO), 0);
    }

    #[test]
    fn quantiles_come_from_the_right_bucket() {
        let cells = Cells::new();
        let cells = &cells.operations[0];
        for _ in 0..990 {
            cells.latency[bucket(Nanos(1_000))].add(1);
        }
        for _ in 0..10 {
            cells.latency[bucket(Nanos(1_000_000))].add(1);
        }
        let mut stats = OperationStats::new();
        assert_eq!(stats.latency_quantile(500), Nanos::ZERO);
        stats.add(cells);
        assert!(stats.latency_quantile(990).0 < 1_200);
        assert!(stats.latency_quantile(991).0 >= 1_000_000);
        assert!(stats.latency_quantile(1000).0 < 1_130_000);
    }
}
