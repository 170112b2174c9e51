//! A run from start to end.

use super::machine::PAGE_BYTES;
use super::report::Report;
use super::scenario::Setup;
use super::world::{Event, TaskState, World};
use block::device::flash::Access;

/// Runs a setup in virtual time.
///
/// # Panics
/// When requests have no page, or several through a cache.
#[must_use]
pub fn run(setup: &Setup) -> Report {
    let pages = setup.load.pages;
    assert!(pages == 1 || pages > 1 && setup.cache.is_none());
    let mut world = World::new(setup);
    for thread in 0..setup.load.threads {
        world.notify(thread, None);
    }
    while let Some(event) = world.pop() {
        world.happen(event);
    }
    world.end()
}

impl World<'_> {
    fn happen(&mut self, event: Event) {
        match event {
            Event::Run(thread) => self.on_processor(thread),
            Event::Step(thread) => {
                let step = self.threads[thread].step.take();
                self.take_effect(thread, step.expect("it is within a step"));
                self.proceed(thread);
            }
            Event::Ended => self.command_ended(),
            Event::Noticed => self.interrupted(),
            Event::Due(queue) => self.due(queue),
            Event::Slice(thread, stretch) => self.end_slice(thread, stretch),
        }
    }

    /// Starts the device's next command, if the device is idle and a command waits.
    pub(super) fn start_device(&mut self) {
        let device = &mut self.device;
        let takes = self.setup.machine.device_queues || device.ended.is_empty();
        if device.current.is_some() || !takes {
            return;
        }
        device.current = device.waiting.pop_front();
        let Some(command) = &device.current else {
            return;
        };
        let accesses = command.requests.iter().map(|request| {
            let pages = request.pages;
            if request.properties.reads {
                let page = request.page;
                Access::Read { page, pages }
            } else {
                Access::Write { pages }
            }
        });
        let end = device.timing.finish_all(base::Time(self.now), accesses);
        self.push(end.0, Event::Ended);
    }

    fn command_ended(&mut self) {
        let command = self.device.current.take().expect("it was at work");
        if self.setup.path.polls() {
            let sender = command.sender;
            self.threads[sender].finished.push_back(command);
            self.start_device();
            self.notify(sender, None);
        } else {
            self.device.ended.push_back(command);
            let over = self.now + self.setup.machine.interrupt_ns;
            self.push(over, Event::Noticed);
            self.start_device();
        }
    }

    /// Ends the interrupt of a command, which ran on the processor of the sending thread if that
    /// thread was running.
    fn interrupted(&mut self) {
        let command = self.device.ended.pop_front().expect("it told of one");
        let sender = command.sender;
        let it = &mut self.threads[sender];
        it.finished.push_back(command);
        if it.state == TaskState::Running {
            it.debt += self.setup.machine.interrupt_ns;
        } else if self.free > 0 && self.measures() {
            // A processor without a thread took it.
            self.busy_ns += self.setup.machine.interrupt_ns;
        }
        self.start_device();
        self.notify(sender, None);
    }

    fn end(mut self) -> Report {
        let seconds = self.setup.measured.0 as f64 / 1e9;
        let bytes = self.report.requests * self.setup.load.pages * PAGE_BYTES;
        self.report.bytes_per_second = bytes as f64 / seconds;
        let all_ns = self.setup.measured.0 * self.setup.machine.processors as u64;
        let busy_ns = self.busy_ns.saturating_sub(self.called_ns);
        self.report.busy_percent = busy_ns as f64 / all_ns as f64 * 100.0;
        let queued = self.queues.iter().map(|queue| queue.requests.len());
        let own = self.threads.iter();
        let own = own.flat_map(|thread| thread.unsent.iter().chain(&thread.finished));
        let device = &self.device;
        let device = device.waiting.iter().chain(&device.ended);
        let commands = own.chain(device).chain(&self.device.current);
        let carried = commands.map(|command| command.requests.len());
        self.report.under_way = queued.chain(carried).sum::<usize>() as u64;
        self.report
    }
}
