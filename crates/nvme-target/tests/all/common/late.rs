//! A device that begins its first requests only on demand.

use super::{Bed, namespace, ram, run, target_with};
use base::Time;
use base::units::MIB;
use block::{Channel, Completion, Device, Extents, Operation, Request, Submit, SubmitExtents};
use reactor::Context;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use switchyard_target::{Limits, RunningTarget, Target};
use testing::device::TestDevice;

/// First block whose requests complete immediately.
pub const QUICK: u64 = 1000;

#[derive(Debug)]
pub struct State {
    room: usize,
    pub open: AtomicBool,
    /// Number of requests held back.
    pub held: AtomicUsize,
    /// Number of held requests that it may complete before it is opened.
    pub permits: AtomicUsize,
    /// The operations of all accepted requests, in order.
    pub taken: Mutex<Vec<Operation>>,
}

/// A channel of RAM that begins requests for its first blocks only on demand; then it accesses the
/// memory that they came with. It has room for a few of them.
#[derive(Debug)]
struct LateChannel {
    ram: Box<dyn Channel>,
    state: Arc<State>,
    held: Vec<Request>,
    done: VecDeque<Completion>,
}

impl Channel for LateChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        let late = request.lba.0 < QUICK && !self.state.open.load(Ordering::SeqCst);
        if late && self.held.len() == self.state.room {
            return Submit::Busy(request);
        }
        let mut taken = self.state.taken.lock().expect("no panic");
        taken.push(request.operation);
        drop(taken);
        if !late {
            return self.ram.submit(request, cx);
        }
        self.held.push(request);
        self.state.held.fetch_add(1, Ordering::SeqCst);
        Submit::Queued
    }

    /// Has no room until it is opened.
    fn submit_extents(&mut self, command: Extents, cx: &mut Context<'_>) -> SubmitExtents {
        if self.state.open.load(Ordering::SeqCst) {
            self.ram.submit_extents(command, cx)
        } else {
            SubmitExtents::Busy(command)
        }
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        let open = self.state.open.load(Ordering::SeqCst);
        let permits = &self.state.permits;
        let may = || {
            let take = |permits: usize| permits.checked_sub(1);
            open || permits
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
                .is_ok()
        };
        while !self.held.is_empty() && may() {
            let request = self.held.remove(0);
            if let Submit::Done(completion) = self.ram.submit(request, cx) {
                self.done.push_back(completion);
            }
        }
    }

    fn deadline(&self) -> Time {
        if self.held.is_empty() {
            Time::NEVER
        } else {
            Time::ZERO
        }
    }

    fn closed(&self) -> bool {
        self.held.is_empty()
    }
}

/// Starts a target on two cores whose device has room for `room` late requests.
pub fn bed(room: usize) -> (Bed, Arc<State>) {
    bed_with(room, Limits::default())
}

/// Like [`bed`], with other limits.
pub fn bed_with(room: usize, limits: Limits) -> (Bed, Arc<State>) {
    bed_on(2, room, limits)
}

/// Like [`bed_with`], on `cores` cores.
pub fn bed_on(cores: usize, room: usize, limits: Limits) -> (Bed, Arc<State>) {
    bed_started(cores, room, limits, |target| run(target, cores))
}

/// Like [`bed_on`], started by `start`.
pub fn bed_started(
    cores: usize,
    room: usize,
    limits: Limits,
    start: impl FnOnce(Arc<Target>) -> RunningTarget,
) -> (Bed, Arc<State>) {
    let ram = ram(16 * MIB);
    let (late, state) = device(Arc::clone(&ram) as _, room);
    let target = start(target_with(limits, cores, [namespace(1, late)]));
    (Bed { target, ram }, state)
}

/// Returns a device over `ram` with room for `room` late requests on each core.
pub fn device(ram: Arc<dyn Device>, room: usize) -> (Arc<dyn Device>, Arc<State>) {
    let state = Arc::new(State {
        room,
        open: AtomicBool::new(false),
        held: AtomicUsize::new(0),
        permits: AtomicUsize::new(0),
        taken: Mutex::new(Vec::new()),
    });
    let own = Arc::clone(&state);
    let late = TestDevice::new(ram, move |ram| {
        Box::new(LateChannel {
            ram,
            state: Arc::clone(&own),
            held: Vec::new(),
            done: VecDeque::new(),
        })
    });
    let late = Arc::new(late.with(|capabilities| capabilities.volatile_cache = true));
    (late, state)
}
