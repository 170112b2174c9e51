//! Counters of a device's path.

use crate::limits::EXTENTS_MAX;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a path, shared by all threads.
#[derive(Debug)]
pub(super) struct PathStats {
    won: AtomicU64,
    lost: AtomicU64,
    taken_over: AtomicU64,
    /// Number of commands, by requests per command.
    merged: Box<[AtomicU64]>,
}

/// Counters of a path since the device was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSnapshot {
    /// Elections won: a thread became the runner of a queue.
    pub elections_won: u64,
    /// Requests sent by another thread: its runner, the dispatcher, or after a plug. Requests in a
    /// queue that the submitter runs itself are not counted.
    pub elections_lost: u64,
    /// Queues taken over from a preempted thread.
    pub taken_over: u64,
    /// Commands sent by requests per command: (requests, commands), ascending, without zero counts.
    pub merged: Vec<(u32, u64)>,
}

impl PathSnapshot {
    /// Returns the difference to an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |count| {
            let found = earlier
                .merged
                .iter()
                .find(|(requests, _)| *requests == count);
            found.map_or(0, |(_, commands)| *commands)
        };
        let merged = self.merged.iter();
        let merged = merged.map(|&(count, commands)| (count, commands - before(count)));
        Self {
            elections_won: self.elections_won - earlier.elections_won,
            elections_lost: self.elections_lost - earlier.elections_lost,
            taken_over: self.taken_over - earlier.taken_over,
            merged: merged.filter(|(_, commands)| *commands > 0).collect(),
        }
    }

    /// Commands sent.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.merged.iter().map(|(_, commands)| commands).sum()
    }

    /// Average requests per command; 0 without commands.
    #[must_use]
    pub fn mean_merged(&self) -> f64 {
        let requests: u64 = self.merged.iter().map(|(n, c)| u64::from(*n) * c).sum();
        if self.commands() == 0 {
            return 0.0;
        }
        requests as f64 / self.commands() as f64
    }
}

impl PathStats {
    pub(super) fn new() -> Self {
        Self {
            won: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            taken_over: AtomicU64::new(0),
            merged: (0..EXTENTS_MAX).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn won(&self) {
        self.won.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn taken_over(&self) {
        self.taken_over.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a command of `requests` requests.
    pub(super) fn sent(&self, requests: usize) {
        let index = requests.clamp(1, self.merged.len()) - 1;
        self.merged[index].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> PathSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let merged = (1..).zip(self.merged.iter().map(read));
        PathSnapshot {
            elections_won: read(&self.won),
            elections_lost: read(&self.lost),
            taken_over: read(&self.taken_over),
            merged: merged.filter(|(_, commands)| *commands > 0).collect(),
        }
    }
}
