//! The dispatcher: the thread that runs the queues of a device when no submitter does.

use super::queue::{Bell, SharedQueue};
use super::runner::Runner;
use base::Time;
use reactor::{Completion, Context, Service};
use std::convert::Infallible;
use std::sync::Arc;

/// A dispatcher, as the service of a core.
#[derive(Debug)]
pub struct Dispatcher {
    bell: Arc<Bell>,
    queues: Arc<[SharedQueue]>,
    runner: Runner,
    polls: bool,
    now: Time,
    closing: bool,
}

impl Dispatcher {
    pub(super) fn new(
        bell: Arc<Bell>,
        queues: Arc<[SharedQueue]>,
        runner: Runner,
        polls: bool,
    ) -> Self {
        Self {
            bell,
            queues,
            runner,
            polls,
            now: Time::ZERO,
            closing: false,
        }
    }
}

impl Drop for Dispatcher {
    /// A dispatcher whose ring fails, or that panics, leaves its role to submitters.
    fn drop(&mut self) {
        self.bell.stop_serving();
    }
}

impl Service for Dispatcher {
    type Message = Infallible;

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        if self.runner.owns(completion.key.op_namespace) {
            self.runner.complete(completion, cx);
        }
    }

    fn message(&mut self, message: Infallible, _: &mut Context<'_>) {
        match message {}
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.now = cx.now;
        self.bell.sleeper.awake();
        for (index, queue) in self.queues.iter().enumerate() {
            if !self.runner.runs(index)
                && let Some(term) = queue.begin_dispatched(cx.now)
            {
                self.runner.begin(index, term);
            }
        }
        self.runner.turn(cx);
        if self.bell.is_unserved() && !self.runner.is_gone() {
            self.bell.serve_again();
        }
        if self.bell.has_ended() && !self.closing {
            // Every submitter has closed its channel, so nothing waits any more.
            self.closing = true;
            self.runner.close(cx);
        }
    }

    fn deadline(&self) -> Time {
        let below = self.runner.deadline(self.polls);
        if below == Time::ZERO {
            return Time::ZERO;
        }
        let due = || {
            let due = self.queues.iter().map(|queue| queue.due(self.now));
            due.min().unwrap_or(Time::NEVER)
        };
        let mut next = Time::NEVER;
        let idle = self.bell.sleeper.may_sleep(|| {
            next = due();
            next > self.now && (self.closing || !self.bell.has_ended())
        });
        if idle { next.min(below) } else { Time::ZERO }
    }

    fn finished(&self) -> bool {
        self.closing && self.runner.closed()
    }
}
