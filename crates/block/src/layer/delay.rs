//! Makes a device slower: every completion is held back for a time that depends on the request.
//!
//! The request goes down at once and its completion waits, so a delay adds to what the device
//! itself takes, and requests are delayed side by side, not one after the other.

use super::below::{LayerChannel, LayerDevice};
use super::in_flight::InFlight;
use crate::delay_queue::DelayQueue;
use crate::device::{Channel, Device, Submit};
use crate::limits::LAYER_QUEUE_DEPTH;
use crate::request::{BlockError, Completion, Operation, Request};
use base::{Nanos, Time};
use reactor::{Context, Driver};
use std::sync::Arc;

/// Durations for which requests are held back. Zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayOptions {
    /// Delay of each request that reads (Read, Compare, Verify).
    pub read: Nanos,
    /// Further delay for each KiB that it names, rounded up.
    pub read_per_kib: Nanos,
    /// Delay of each request that changes something (Write, Write Zeroes, Deallocate).
    pub write: Nanos,
    /// Further delay for each KiB that it names, rounded up. Write Zeroes and Deallocate move no
    /// data and pay the fixed part alone.
    pub write_per_kib: Nanos,
    /// Delay of each Flush.
    pub flush: Nanos,
}

impl DelayOptions {
    /// Returns the time for which a request is held back.
    fn of(&self, request: &Request, block_bytes: u32) -> Nanos {
        let kib = (u64::from(request.blocks) * u64::from(block_bytes)).div_ceil(1024);
        let sum = |fixed: Nanos, per_kib: Nanos| fixed + Nanos(per_kib.0.saturating_mul(kib));
        match request.operation {
            Operation::Read | Operation::Compare | Operation::Verify => {
                sum(self.read, self.read_per_kib)
            }
            Operation::Write { .. } => sum(self.write, self.write_per_kib),
            Operation::WriteZeroes { .. } | Operation::Deallocate => self.write,
            Operation::Flush => self.flush,
        }
    }
}

/// A device that takes longer.
#[derive(Debug)]
pub struct Delay {
    inner: Arc<dyn Device>,
    options: DelayOptions,
}

impl Delay {
    /// `inner`, slower by `options`.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, options: DelayOptions) -> Self {
        Self { inner, options }
    }
}

impl LayerDevice for Delay {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn channel(&self, inner: Box<dyn Channel>, _: &mut dyn Driver) -> Box<dyn Channel> {
        Box::new(DelayChannel {
            inner,
            options: self.options,
            block_bytes: self.geometry().block_bytes,
            in_flight: InFlight::new(),
            delayed: DelayQueue::new(),
            closing: false,
        })
    }
}

/// One core's way in.
#[derive(Debug)]
struct DelayChannel {
    inner: Box<dyn Channel>,
    options: DelayOptions,
    block_bytes: u32,
    in_flight: InFlight<Nanos>,
    delayed: DelayQueue,
    closing: bool,
}

impl DelayChannel {
    fn hold(&mut self, completion: Completion, delay: Nanos, now: Time) {
        // What was refused took no time on the medium.
        if delay == Nanos::ZERO || completion.result.is_err() || self.closing {
            self.delayed.pass(completion);
        } else {
            self.delayed.hold(completion, now + delay);
        }
    }
}

impl LayerChannel for DelayChannel {
    fn inner(&self) -> &dyn Channel {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Channel {
        &mut *self.inner
    }

    fn enter(&mut self, mut request: Request, cx: &mut Context<'_>) -> Submit {
        if self.in_flight.is_full() || self.delayed.len() >= LAYER_QUEUE_DEPTH {
            return Submit::Busy(request);
        }
        if self.closing {
            return Submit::Done(request.ended(Err(BlockError::Aborted)));
        }
        let delay = self.options.of(&request, self.block_bytes);
        self.in_flight.enter(&mut request, delay);
        match self.inner.submit(request, cx) {
            Submit::Done(mut completion) => {
                let delay = self.in_flight.restore(&mut completion).unwrap_or(delay);
                if delay == Nanos::ZERO || completion.result.is_err() {
                    return Submit::Done(completion);
                }
                self.hold(completion, delay, cx.now);
                Submit::Queued
            }
            Submit::Queued => Submit::Queued,
            Submit::Busy(mut request) => {
                if let Some((tag, _)) = self.in_flight.leave(request.tag) {
                    request.tag = tag;
                }
                Submit::Busy(request)
            }
        }
    }

    fn collect(&mut self, now: Time) {
        while let Some(mut completion) = self.inner.reap() {
            if let Some(delay) = self.in_flight.restore(&mut completion) {
                self.hold(completion, delay, now);
            }
        }
    }

    fn finished(&mut self) -> Option<Completion> {
        self.delayed.pop()
    }

    fn fire(&mut self, now: Time) {
        self.delayed.fire(now);
    }

    fn due(&self) -> Time {
        self.delayed.next()
    }

    fn closing(&mut self) {
        self.closing = true;
    }

    fn close_held(&mut self) {
        // The effects are in place; no request waits for its delay any more.
        self.delayed.fire(Time::NEVER);
    }
}
