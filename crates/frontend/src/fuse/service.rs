//! The dataplane thread: requests of the kernel as requests of the devices.

use super::job::{Job, Message, Work};
use super::limits::REQUESTS_MAX;
use super::write_order::WriteOrder;
use crate::core_thread::passes;
use crate::{DeviceIo, Finished, IoCounters};
use base::Time;
use block::{Device, DeviceError, Operation};
use reactor::{Completion, Context, Driver};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;
use switch::{Class, PerClass};

/// A request with a ticket of the order of writes, if it is one.
#[derive(Debug)]
struct Ready {
    ticket: Option<u64>,
    job: Job,
}

/// A request in the device.
#[derive(Debug)]
struct Running {
    ready: Ready,
    /// The blocks of a write are being read, to change part of them.
    reads_first: bool,
}

/// One device.
#[derive(Debug)]
struct File {
    io: DeviceIo<Running>,
    order: WriteOrder<Job>,
    /// Requests that wait for memory.
    ready: PerClass<VecDeque<Ready>>,
}

/// The work of the dataplane thread.
#[derive(Debug)]
pub(super) struct Dataplane {
    files: Vec<File>,
    /// Room to make one piece of several.
    scratch: Vec<u8>,
    closing: bool,
    /// Work is left that no completion brings back.
    again: bool,
}

impl Dataplane {
    /// Opens the devices on the calling core.
    ///
    /// # Errors
    /// The index of a device, and its answer.
    pub(super) fn open(
        devices: &[PerClass<Arc<dyn Device>>],
        driver: &mut dyn Driver,
    ) -> Result<Self, (usize, DeviceError)> {
        let mut files = Vec::with_capacity(devices.len());
        for (index, device) in devices.iter().enumerate() {
            let io = DeviceIo::open(device, REQUESTS_MAX, driver);
            files.push(File {
                io: io.map_err(|error| (index, error))?,
                order: WriteOrder::new(),
                ready: PerClass::default(),
            });
        }
        Ok(Self {
            files,
            scratch: Vec::new(),
            closing: false,
            again: false,
        })
    }

    /// Counters of each device.
    pub(super) fn counters(&self) -> Vec<Arc<IoCounters>> {
        let counters = self.files.iter().map(|file| file.io.counters());
        counters.map(Arc::clone).collect()
    }
}

impl File {
    fn waiting(&self) -> usize {
        self.ready.iter().map(|(_, queue)| queue.len()).sum()
    }

    fn enter(&mut self, job: Job) {
        if !job.is_write() {
            self.ready[job.class].push_back(Ready { ticket: None, job });
            return;
        }
        let range = job.range.start..job.range.start + job.range.span;
        let alone = job.operation() == Operation::Read;
        if let Some((ticket, job)) = self.order.enter(range, alone, job) {
            let ticket = Some(ticket);
            self.ready[job.class].push_back(Ready { ticket, job });
        }
    }

    /// Hands requests to the device, as far as there is memory; returns true if any was.
    fn begin(&mut self, cx: &mut Context<'_>) -> bool {
        let mut begun = false;
        self.io.release();
        for class in Class::ALL {
            while !self.io.is_full()
                && let Some(ready) = self.ready[class].front()
            {
                let operation = ready.job.operation();
                let bytes = if operation.has_data() {
                    ready.job.range.memory_bytes()
                } else {
                    0
                };
                let Some(mut memory) = self.io.memory(class, bytes, cx) else {
                    self.io.reserve(class, bytes, cx);
                    break;
                };
                let ready = self.ready[class].pop_front().expect("it was in front");
                let whole_write = matches!(operation, Operation::Write { .. });
                if whole_write {
                    ready.job.fill(&mut memory);
                }
                let range = (ready.job.range.start, ready.job.range.span);
                let client = match &ready.job.work {
                    Work::Flush { client, .. } => Some(client.clone()),
                    _ => None,
                };
                let running = Running {
                    reads_first: ready.ticket.is_some() && operation == Operation::Read,
                    ready,
                };
                match client {
                    Some(client) => {
                        self.io.recycle(memory);
                        self.io.flush(class, &client, running);
                    }
                    None => self.io.submit(class, operation, range, memory, running),
                }
                begun = true;
            }
        }
        begun
    }

    /// Fails requests that wait for memory that is never free.
    fn refuse_waiting(&mut self) {
        for class in Class::ALL {
            while let Some(ready) = self.ready[class].pop_front() {
                self.leave(ready.ticket);
                ready.job.fail(Errno::NOMEM);
            }
        }
    }

    /// Removes an ended write from the order, so that those that waited for it begin.
    fn leave(&mut self, ticket: Option<u64>) {
        let Some(ticket) = ticket else { return };
        self.order.leave(ticket);
        while let Some((ticket, job)) = self.order.begin() {
            let ticket = Some(ticket);
            self.ready[job.class].push_back(Ready { ticket, job });
        }
    }

    fn finish(&mut self, finished: Finished<Running>, scratch: &mut Vec<u8>) {
        let Finished {
            owner: Running { ready, reads_first },
            result,
            mut data,
        } = finished;
        if let (true, Ok(()), Work::Write { durable, .. }) = (reads_first, result, &ready.job.work)
        {
            ready.job.fill(&mut data);
            let operation = Operation::Write { durable: *durable };
            let range = (ready.job.range.start, ready.job.range.span);
            let running = Running {
                ready,
                reads_first: false,
            };
            // Its own place among the device's requests was just freed.
            let class = running.ready.job.class;
            self.io.submit(class, operation, range, data, running);
            return;
        }
        self.leave(ready.ticket);
        ready.job.answer(result, &data, scratch);
        self.io.recycle(data);
    }
}

impl reactor::Service for Dataplane {
    type Message = Message;

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        let mut completion = Some(completion);
        for file in &mut self.files {
            let Some(other) = completion.take() else {
                return;
            };
            completion = file.io.apply(other, cx);
        }
    }

    fn message(&mut self, message: Message, cx: &mut Context<'_>) {
        match message {
            Message::Job(job) if self.closing => job.fail(Errno::NODEV),
            Message::Job(job) => self.files[job.file].enter(job),
            Message::End => {
                self.closing = true;
                self.files.iter_mut().for_each(|file| file.io.close(cx));
            }
        }
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.again = passes(|| {
            let mut progress = false;
            for file in &mut self.files {
                progress |= file.begin(cx);
                file.io.turn(cx);
                while let Some(finished) = file.io.finished() {
                    file.finish(finished, &mut self.scratch);
                    progress = true;
                }
            }
            progress
        });
        let nothing_runs = self.files.iter().all(|file| file.io.under_way() == 0);
        if nothing_runs && !self.again {
            self.files.iter_mut().for_each(File::refuse_waiting);
            // Writes that waited for those.
            self.again = self.files.iter().any(|file| file.waiting() > 0);
        }
    }

    fn deadline(&self) -> Time {
        if self.again {
            return Time::ZERO;
        }
        let devices = self.files.iter().map(|file| file.io.deadline());
        devices.min().unwrap_or(Time::NEVER)
    }

    fn finished(&self) -> bool {
        self.closing && self.files.iter().all(|file| file.io.closed())
    }
}
