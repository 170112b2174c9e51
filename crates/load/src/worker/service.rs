//! The turns of a load's thread, and the times at which it must be awake.

use super::{Message, Phase, Worker};
use crate::limits;
use base::Time;
use reactor::{Context, PollPolicy, Service};
use std::sync::atomic::Ordering;

impl Service for Worker {
    type Message = Message;

    fn apply(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        if self.channel.owns(completion.key.op_namespace) {
            self.channel.complete(completion, cx);
        }
    }

    fn message(&mut self, message: Message, _: &mut Context<'_>) {
        match message {
            Message::Start(start) if self.phase == Phase::Ready => {
                self.start = start;
                self.phase = Phase::Run;
            }
            Message::Start(_) => {}
            Message::Stop => self.stop(),
        }
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.channel.tick(cx);
        self.advance(cx.now);
        if let Some(first) = self.channel.reap() {
            self.advance(cx.driver.now());
            self.finish(first);
            while let Some(completion) = self.channel.reap() {
                self.finish(completion);
            }
        }
        self.blocked = false;
        self.step(cx);
        if self.progress.completed.load(Ordering::Relaxed) != self.completed {
            self.progress
                .completed
                .store(self.completed, Ordering::Relaxed);
        }
    }

    fn poll_policy(&self) -> Option<PollPolicy> {
        self.channel
            .is_served_elsewhere()
            .then_some(PollPolicy::Never)
    }

    fn deadline(&self) -> Time {
        let room = !self.free.is_empty();
        let work = match self.phase {
            Phase::Probe | Phase::Prefill | Phase::Run | Phase::Sweep if self.blocked => {
                // A completion will make room; without requests in flight, only time will.
                let retry = self.now + limits::BUSY_RETRY;
                if self.in_flight() == 0 {
                    retry
                } else {
                    Time::NEVER
                }
            }
            // Before the first turn there is no request whose completion could wake the thread.
            Phase::Probe if self.in_flight() == 0 => Time::ZERO,
            Phase::Prefill | Phase::Sweep if room && !self.pass.is_empty() => Time::ZERO,
            Phase::Run if room && self.planner.may_plan(&self.job, self.in_flight()) => {
                self.punctual(self.next_begins())
            }
            _ => Time::NEVER,
        };
        let phase = match self.phase {
            Phase::Run if self.began.is_none() => self.measured_from(),
            Phase::Run => self.end(),
            Phase::Drain | Phase::Sweep | Phase::Close => self.waits_until,
            _ => Time::NEVER,
        };
        work.min(phase).min(self.channel.deadline())
    }

    fn finished(&self) -> bool {
        self.phase == Phase::Closed
    }
}

impl Worker {
    /// Returns the time to wake up for a request with the intended start `begins`.
    fn punctual(&self, begins: Time) -> Time {
        if self.job.punctual {
            begins - limits::PUNCTUALITY
        } else {
            begins
        }
    }
}
