//! A layer that counts requests and completions, for tests of the code above it.

use crate::device::Device;
use crate::layer::below::{Ended, Layer, LayerDevice};
use crate::request::{BlockError, Completion, Request};
use base::Time;
use reactor::Driver;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests of all channels so far.
#[derive(Debug, Default)]
struct Counters {
    submitted: AtomicU64,
    completed: AtomicU64,
}

/// Number of completed requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Total {
    pub(crate) completed: u64,
}

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    submitted: u64,
    completed: u64,
}

impl Snapshot {
    pub(crate) const fn in_flight(&self) -> u64 {
        self.submitted - self.completed
    }

    pub(crate) const fn total(&self) -> Total {
        let completed = self.completed;
        Total { completed }
    }
}

/// A device whose requests are counted.
#[derive(Debug)]
pub(crate) struct Stats {
    inner: Arc<dyn Device>,
    counters: Arc<Counters>,
}

impl Stats {
    pub(crate) fn new(inner: Arc<dyn Device>) -> Self {
        let counters = Arc::default();
        Self { inner, counters }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        // A completed request was submitted before: in this order none is missed.
        let completed = self.counters.completed.load(Ordering::Acquire);
        let submitted = self.counters.submitted.load(Ordering::Acquire);
        Snapshot {
            submitted,
            completed,
        }
    }
}

impl LayerDevice for Stats {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    type Layer = StatsLayer;

    fn layer(&self, _: &mut dyn Driver) -> StatsLayer {
        StatsLayer(Arc::clone(&self.counters))
    }
}

#[derive(Debug)]
pub(crate) struct StatsLayer(Arc<Counters>);

impl Layer for StatsLayer {
    type Note = ();

    fn begin(&mut self, _: &mut Request) -> Result<(), BlockError> {
        self.0.submitted.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn undo(&mut self, (): (), _: &mut Request) {
        self.0.submitted.fetch_sub(1, Ordering::Release);
    }

    fn end(&mut self, (): (), completion: Completion, _: Time) -> Ended {
        self.0.completed.fetch_add(1, Ordering::Release);
        Ended::Now(completion)
    }
}
