//! A device that holds writes until the test releases them.
#![allow(dead_code)] // No test uses all of it.
#![allow(clippy::unwrap_used)] // What fails here fails the test.

use base::{Nanos, Time};
use block::{Capabilities, Channel, Completion, Device, DeviceError, Geometry, Request, Submit};
use reactor::{Context, Driver};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Holds the given number of next writes.
#[derive(Debug)]
pub(crate) struct Gated {
    below: Arc<dyn Device>,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    /// Number of writes still to be held.
    holds: usize,
    /// Number of held writes.
    held: usize,
    /// Number of writes received.
    writes: usize,
    is_open: bool,
}

impl Gated {
    /// A device that holds the first `holds` writes.
    pub(crate) fn new(below: Arc<dyn Device>, holds: usize) -> Arc<Self> {
        let gate = Gate::default();
        gate.state.lock().unwrap().holds = holds;
        let gate = Arc::new(gate);
        Arc::new(Self { below, gate })
    }

    fn wait(&self, is_it: impl Fn(&GateState) -> bool) {
        let state = self.gate.state.lock().unwrap();
        let patience = Duration::from_secs(60);
        let waits = |state: &mut GateState| !is_it(state);
        let waited = self.gate.changed.wait_timeout_while(state, patience, waits);
        let (state, waited) = waited.unwrap();
        assert!(!waited.timed_out(), "{state:?}");
    }

    /// Waits until `count` writes are held.
    pub(crate) fn wait_held(&self, count: usize) {
        self.wait(|state| state.held == count);
    }

    /// Number of writes that the device has received.
    pub(crate) fn writes(&self) -> usize {
        self.gate.state.lock().unwrap().writes
    }

    /// Executes the held writes, and holds no more.
    pub(crate) fn open_gate(&self) {
        self.gate.state.lock().unwrap().is_open = true;
        self.wait(|state| state.held == 0);
    }
}

impl Device for Gated {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok(Box::new(GatedChannel {
            below: self.below.open(driver)?,
            gate: Arc::clone(&self.gate),
            held: Vec::new(),
            done: VecDeque::new(),
            look_at: Time::NEVER,
        }))
    }
}

#[derive(Debug)]
struct GatedChannel {
    below: Box<dyn Channel>,
    gate: Arc<Gate>,
    held: Vec<Request>,
    done: VecDeque<Completion>,
    look_at: Time,
}

impl Channel for GatedChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        let mut state = self.gate.state.lock().unwrap();
        if request.operation.is_write() {
            state.writes += 1;
            if state.holds > 0 {
                state.holds -= 1;
                state.held += 1;
                self.gate.changed.notify_all();
                self.held.push(request);
                self.look_at = cx.now;
                return Submit::Queued;
            }
        }
        drop(state);
        self.below.submit(request, cx)
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop_front().or_else(|| self.below.reap())
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        if self.held.is_empty() {
            return;
        }
        self.look_at = cx.now + Nanos::from_millis(1);
        let mut state = self.gate.state.lock().unwrap();
        if !state.is_open {
            return;
        }
        self.look_at = Time::NEVER;
        for request in self.held.drain(..) {
            let Submit::Done(completion) = self.below.submit(request, cx) else {
                unreachable!("memory answers at once");
            };
            self.done.push_back(completion);
            state.held -= 1;
        }
        self.gate.changed.notify_all();
    }

    fn deadline(&self) -> Time {
        self.look_at.min(self.below.deadline())
    }

    fn closed(&self) -> bool {
        self.held.is_empty() && self.below.closed()
    }
}
