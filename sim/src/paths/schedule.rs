//! The scheduler: any thread may have any processor, in the order in which threads became ready,
//! and keeps it for a slice if other threads want it.

use super::world::{Event, TaskState, World};

impl World<'_> {
    /// Makes a sleeping thread ready. `waker` pays for it; an interrupt pays by itself.
    fn wake(&mut self, thread: usize, waker: Option<usize>) {
        let machine = &self.setup.machine;
        let cost = if self.free > 0 {
            self.free -= 1;
            self.threads[thread].state = TaskState::Waking;
            let takes = machine.wake_call_ns + machine.wake_ns;
            let takes = self.random.around(takes);
            self.push(self.now + takes, Event::Run(thread));
            // The processor sleeps until the waker's call has ended.
            self.called_ns += u64::from(self.measures()) * machine.wake_call_ns;
            machine.wake_call_ns
        } else {
            // Every processor is awake: one of them takes the thread when it is free.
            self.enqueue(thread);
            machine.call_ns
        };
        if let Some(waker) = waker {
            self.threads[waker].debt += cost;
        }
    }

    /// Notifies a thread of work.
    pub(super) fn notify(&mut self, thread: usize, waker: Option<usize>) {
        match self.threads[thread].state {
            TaskState::Asleep => self.wake(thread, waker),
            TaskState::Polling => self.proceed(thread),
            // It checks for work before it sleeps.
            TaskState::Waking | TaskState::Ready | TaskState::Running => {}
        }
    }

    fn enqueue(&mut self, thread: usize) {
        self.threads[thread].state = TaskState::Ready;
        self.ready.push_back(thread);
        for other in 0..self.threads.len() {
            self.limit(other);
        }
    }

    /// A polling thread polls until the end of its slice if other threads want its processor.
    fn limit(&mut self, thread: usize) {
        let it = &self.threads[thread];
        if it.state == TaskState::Polling && !self.ready.is_empty() {
            let end = it.since + self.setup.machine.slice_ns;
            let event = Event::Slice(thread, it.stretch);
            self.push(end.max(self.now), event);
        }
    }

    /// A thread gets a processor.
    pub(super) fn on_processor(&mut self, thread: usize) {
        let it = &mut self.threads[thread];
        it.since = self.now;
        it.stretch = it.stretch.wrapping_add(1);
        self.proceed(thread);
    }

    /// Starts the next step of a thread on its processor, or takes the processor from it.
    pub(super) fn proceed(&mut self, thread: usize) {
        if self.slice_is_over(thread) {
            self.enqueue(thread);
            return self.release();
        }
        if let Some((step, cost)) = self.next_step(thread) {
            let it = &mut self.threads[thread];
            it.state = TaskState::Running;
            it.step = Some(step);
            let cost = cost + std::mem::take(&mut it.debt);
            let end = self.now + self.random.around(cost);
            self.push(end, Event::Step(thread));
        } else if self.polls(thread) {
            self.threads[thread].state = TaskState::Polling;
            self.limit(thread);
        } else {
            self.threads[thread].state = TaskState::Asleep;
            self.release();
        }
    }

    /// The slice of a polling thread may have ended.
    pub(super) fn end_slice(&mut self, thread: usize, stretch: u32) {
        let it = &self.threads[thread];
        if it.state == TaskState::Polling && it.stretch == stretch && self.slice_is_over(thread) {
            self.enqueue(thread);
            self.release();
        }
    }

    fn slice_is_over(&self, thread: usize) -> bool {
        let end = self.threads[thread].since + self.setup.machine.slice_ns;
        !self.ready.is_empty() && self.now >= end
    }

    /// Frees a processor.
    fn release(&mut self) {
        let Some(next) = self.ready.pop_front() else {
            self.free += 1;
            return;
        };
        self.threads[next].state = TaskState::Waking;
        let switched = self.now + self.setup.machine.switch_ns;
        self.push(switched, Event::Run(next));
    }
}
