//! A device that holds requests until the test opens its gate.
#![allow(dead_code)] // No test uses all of it.

use base::{Nanos, Time};
use block::{Channel, Completion, Device, Request, Submit};
use reactor::Context;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use testing::device::TestDevice;

/// The gate of a device.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    open: AtomicBool,
    /// Number of waiting requests.
    waiting: AtomicUsize,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

/// The device `below`, behind a closed gate.
pub(crate) fn gated(below: &Arc<dyn Device>) -> (Arc<dyn Device>, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let of_channels = Arc::clone(&gate);
    let device = TestDevice::new(Arc::clone(below), move |below| {
        Box::new(GatedChannel {
            below,
            gate: Arc::clone(&of_channels),
            waiting: VecDeque::new(),
            done: VecDeque::new(),
            look_at: Time::NEVER,
        })
    });
    (Arc::new(device), gate)
}

#[derive(Debug)]
struct GatedChannel {
    below: Box<dyn Channel>,
    gate: Arc<Gate>,
    waiting: VecDeque<Request>,
    done: VecDeque<Completion>,
    look_at: Time,
}

impl Channel for GatedChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        self.waiting.push_back(request);
        self.gate.waiting.fetch_add(1, Ordering::SeqCst);
        self.look_at = cx.now;
        Submit::Queued
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.look_at = Time::NEVER;
        if !self.waiting.is_empty() {
            self.look_at = cx.now + Nanos::from_millis(1);
        }
        while self.gate.open.load(Ordering::SeqCst)
            && let Some(request) = self.waiting.pop_front()
        {
            match self.below.submit(request, cx) {
                Submit::Done(completion) => self.done.push_back(completion),
                other => panic!("memory answers at once: {other:?}"),
            }
            self.gate.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn deadline(&self) -> Time {
        self.look_at
    }
}
