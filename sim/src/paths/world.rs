//! The state of a run: threads, processors, queues, the device and the calendar.

use super::cache::PageCache;
use super::report::Report;
use super::request::{Command, Request};
use super::scenario::Setup;
use crate::calendar::Calendar;
use crate::model::Random;
use base::Time;
use block::device::flash::Timing;
use std::collections::VecDeque;
use switch::ReadAhead;
use switch::path::{Gate, Path, QueueKind};

/// A scheduled event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A thread gets a processor.
    Run(usize),
    /// The step of a thread ends.
    Step(usize),
    /// The device has completed its command.
    Ended,
    /// The interrupt of a command ends.
    Noticed,
    /// A plugged queue is due.
    Due(usize),
    /// The time slice of a polling thread ends, if it is still in the same stretch.
    Slice(usize, u32),
}

/// A step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It processes the results of a command that it sent.
    Finish,
    /// It sends a command.
    Send,
    /// The runner of a queue takes a batch, or ends.
    Look,
    /// It submits a request.
    Issue,
    /// An application starts a request.
    Next,
    /// The dispatcher checks for a queue to run.
    Bell,
    /// It pays for its effects.
    Settle,
}

/// The role of a thread.
#[derive(Debug)]
pub(super) enum Role {
    App(Box<App>),
    /// It writes back pages of the cache; the number in flight.
    Flusher(u32),
    Dispatcher,
}

/// An application.
#[derive(Debug)]
pub(super) struct App {
    /// Requests to submit.
    pub(super) todo: VecDeque<Request>,
    /// Start time of its request.
    pub(super) began: u64,
    /// It waits for a request or a page.
    pub(super) waits: bool,
    /// Outstanding pages that it writes back itself.
    pub(super) writes_back: u32,
    /// The page that it must write after these.
    pub(super) held_up: Option<u64>,
    /// First page of its part.
    pub(super) first: u64,
    /// Next page within its part, for sequential order.
    pub(super) next: u64,
    pub(super) read_ahead: ReadAhead,
}

impl App {
    /// Returns the number of outstanding pages that it has submitted for write-back.
    pub(super) fn writes_under_way(&self) -> u32 {
        let left = u32::try_from(self.todo.len()).expect("a few requests");
        self.writes_back.saturating_sub(left)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    Asleep,
    /// A processor wakes up for it.
    Waking,
    /// It waits for a processor.
    Ready,
    /// It runs a step on a processor.
    Running,
    /// It polls the device on a processor.
    Polling,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) role: Role,
    pub(super) state: TaskState,
    /// Time since which it has its processor.
    pub(super) since: u64,
    pub(super) stretch: u32,
    pub(super) step: Option<Step>,
    /// Costs of effects, charged to the next step.
    pub(super) debt: u64,
    /// The queue that it runs, and whether it has yet to check it for the first time.
    pub(super) term: Option<(usize, bool)>,
    pub(super) unsent: VecDeque<Command>,
    pub(super) finished: VecDeque<Command>,
    /// Commands that it sent and whose results it has not processed.
    pub(super) under_way: u32,
    /// Its own requests in these commands.
    pub(super) own_under_way: usize,
    /// It was notified to check for a queue.
    pub(super) rung: bool,
}

impl Thread {
    fn new(role: Role) -> Self {
        Self {
            role,
            state: TaskState::Asleep,
            since: 0,
            stretch: 0,
            step: None,
            debt: 0,
            term: None,
            unsent: VecDeque::new(),
            finished: VecDeque::new(),
            under_way: 0,
            own_under_way: 0,
            rung: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) kind: QueueKind,
    pub(super) gate: Gate,
    pub(super) requests: VecDeque<Request>,
}

#[derive(Debug)]
pub(super) struct Device {
    pub(super) timing: Timing,
    pub(super) waiting: VecDeque<Command>,
    pub(super) current: Option<Command>,
    /// Completed commands whose interrupt is pending.
    pub(super) ended: VecDeque<Command>,
}

#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) setup: &'a Setup,
    pub(super) now: u64,
    pub(super) random: Random,
    calendar: Calendar<u64, Event>,
    pub(super) threads: Vec<Thread>,
    pub(super) flusher: Option<usize>,
    pub(super) dispatcher: Option<usize>,
    /// Number of processors without a thread.
    pub(super) free: usize,
    /// Measured time of all processors with a thread or an interrupt.
    pub(super) busy_ns: u64,
    /// Part of it in which processors slept while a wake-up of a thread was in progress.
    pub(super) called_ns: u64,
    pub(super) ready: VecDeque<usize>,
    pub(super) queues: Vec<Queue>,
    pub(super) device: Device,
    pub(super) cache: Option<PageCache>,
    pub(super) report: Report,
}

impl<'a> World<'a> {
    pub(super) fn new(setup: &'a Setup) -> Self {
        let rules = match setup.path {
            Path::Interrupt | Path::Poll => setup.rules.of_disks(),
            _ => setup.rules,
        };
        let queues = setup.path.queues().iter().map(|&kind| Queue {
            kind,
            gate: Gate::new(kind, rules),
            requests: VecDeque::new(),
        });
        let queues: Vec<_> = queues.collect();
        let part = setup.device_pages / setup.load.threads as u64;
        let read_ahead = switch::ReadAheadRules {
            context_look_up: setup.cache.is_some_and(|cache| cache.context_look_up),
            ..switch::ReadAheadRules::default()
        };
        let app = |index: u64| {
            Thread::new(Role::App(Box::new(App {
                todo: VecDeque::new(),
                began: 0,
                waits: false,
                writes_back: 0,
                held_up: None,
                first: index * part,
                next: 0,
                read_ahead: ReadAhead::new(read_ahead),
            })))
        };
        let mut threads: Vec<_> = (0..setup.load.threads as u64).map(app).collect();
        let mut further = |needed: bool, role| {
            needed.then(|| {
                threads.push(Thread::new(role));
                threads.len() - 1
            })
        };
        let flusher = further(setup.cache.is_some(), Role::Flusher(0));
        let dispatched = queues.iter().any(|queue| queue.kind != QueueKind::Temporal);
        let dispatcher = further(dispatched, Role::Dispatcher);
        Self {
            setup,
            now: 0,
            random: Random::new(setup.seed),
            calendar: Calendar::new(),
            threads,
            flusher,
            dispatcher,
            free: setup.machine.processors,
            busy_ns: 0,
            called_ns: 0,
            ready: VecDeque::new(),
            queues,
            device: Device {
                timing: Timing::new(setup.device.parts()),
                waiting: VecDeque::new(),
                current: None,
                ended: VecDeque::new(),
            },
            cache: setup.cache.map(PageCache::new),
            report: Report::default(),
        }
    }

    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.calendar.push(at, event);
    }

    /// Takes the next event, and sets the clock; `None` at the end of the run.
    pub(super) fn pop(&mut self) -> Option<Event> {
        let end = self.setup.warm_up.0 + self.setup.measured.0;
        let (at, event) = self.calendar.pop()?;
        let used = self.setup.machine.processors - self.free;
        let from = self.now.max(self.setup.warm_up.0);
        let measured = at.min(end).saturating_sub(from);
        self.busy_ns += measured * used as u64;
        self.now = at;
        (at < end).then_some(event)
    }

    pub(super) const fn time(&self) -> Time {
        Time(self.now)
    }

    /// Returns true after the warm-up.
    pub(super) const fn measures(&self) -> bool {
        self.now >= self.setup.warm_up.0
    }
}
