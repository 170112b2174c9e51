//! A layer that counts what passes, for tests of what is above it.

use crate::device::{Channel, Device, Submit};
use crate::layer::below::{LayerChannel, LayerDevice};
use crate::request::{Completion, Request};
use base::Time;
use reactor::{Context, Driver};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests of all channels up to now.
#[derive(Debug, Default)]
struct Counters {
    submitted: AtomicU64,
    completed: AtomicU64,
}

/// What [`Counters`] counted that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Total {
    pub(crate) completed: u64,
}

/// A reading of the counters.
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

/// A device that is observed.
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
        // What is completed was submitted: in this order none is missing.
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

    fn channel(&self, inner: Box<dyn Channel>, _: &mut dyn Driver) -> Box<dyn Channel> {
        Box::new(StatsChannel {
            inner,
            counters: Arc::clone(&self.counters),
            finished: VecDeque::new(),
        })
    }
}

#[derive(Debug)]
struct StatsChannel {
    inner: Box<dyn Channel>,
    counters: Arc<Counters>,
    finished: VecDeque<Completion>,
}

impl LayerChannel for StatsChannel {
    fn inner(&self) -> &dyn Channel {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Channel {
        &mut *self.inner
    }

    fn enter(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        let answer = self.inner.submit(request, cx);
        if !matches!(answer, Submit::Busy(_)) {
            self.counters.submitted.fetch_add(1, Ordering::Release);
        }
        if matches!(answer, Submit::Done(_)) {
            self.counters.completed.fetch_add(1, Ordering::Release);
        }
        answer
    }

    fn collect(&mut self, _: Time) {
        while let Some(completion) = self.inner.reap() {
            self.counters.completed.fetch_add(1, Ordering::Release);
            self.finished.push_back(completion);
        }
    }

    fn finished(&mut self) -> Option<Completion> {
        self.finished.pop_front()
    }
}
