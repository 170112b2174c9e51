//! The dataplane thread: requests from the kernel become requests to the devices.

use super::abi::{Header, Request};
use super::error::FuseError;
use super::filesystem::{Files, HandedFiles, RequestStep};
use super::job::{Job, JobPlace, OWN, Range, Work};
use super::limits::{
    INTERRUPT_PERIOD, INTERRUPTS_MAX, REQUESTS_MAX, TURN_ANSWER_BYTES, TURN_REQUESTS,
    TURN_WRITE_BYTES, WAITING_MAX, WRITE_BYTES_MAX,
};
use super::session::Session;
use super::write_order::WriteOrder;
use crate::core_thread::passes;
use crate::device_io::connect;
use crate::{DeviceIo, Finished, IoCounters, Ping};
use base::{Nanos, SlabKey, Time};
use block::{Device, Operation};
use reactor::{Completion, Context, Driver, Op, OpKey, Outcome, PollPolicy};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;
use switch::{Class, PerClass};

/// A message to the dataplane thread.
#[derive(Debug)]
pub(super) enum Message {
    /// Reply by dropping it.
    Ping(Ping),
    /// Refuse data requests from now on, and report when none is outstanding.
    Shut,
    /// End; outstanding requests are aborted.
    End,
    /// Read no requests from now on, and reply once none is outstanding and all writes are flushed.
    Pause(Sender<HandedFiles>),
    /// Read requests again, with the state of a pause or of a predecessor; `None` cancels a pause.
    Resume(Option<HandedFiles>),
}

/// A request ready for the device, with its ticket in the write order if it is a write.
#[derive(Debug)]
struct Ready {
    ticket: Option<u64>,
    job: Job,
}

/// A request in the device.
#[derive(Debug)]
struct Running {
    ready: Ready,
    /// The blocks of a partial-block write are being read first.
    reads_first: bool,
}

/// A request whose thread has a pending signal.
#[derive(Debug)]
struct Interrupted {
    ask_at: Time,
    unique: u64,
    /// Index of its file.
    file: usize,
}

/// One device.
#[derive(Debug)]
struct File {
    io: DeviceIo<Running>,
    order: WriteOrder<Job>,
    /// Requests waiting for memory or for room in the device.
    ready: PerClass<VecDeque<Ready>>,
    /// A write has completed since the last turn.
    wrote: bool,
    /// A write has completed since the last Flush of the front end itself.
    unflushed: bool,
    /// That Flush has failed: writes may be lost.
    flush_failed: bool,
}

/// The work of the dataplane thread.
#[derive(Debug)]
pub(super) struct Dataplane {
    session: Session,
    names: Files,
    files: Vec<File>,
    /// Index of the file that is handled first in this turn.
    first: usize,
    /// Buffer for a message from the kernel.
    message: Vec<u8>,
    /// The kernel may have a message.
    readable: bool,
    /// No messages are read: a predecessor does, or a successor will.
    paused: bool,
    /// Whom to tell when nothing is outstanding.
    pausing: Option<Sender<HandedFiles>>,
    /// Interrupted requests, ordered by the time of the next check whether their threads are being
    /// killed.
    interrupted: VecDeque<Interrupted>,
    /// Buffer to join several pieces.
    scratch: Vec<u8>,
    closing: bool,
    /// Work remains that no completion will trigger.
    again: bool,
    /// Polls for the completion of a single outstanding request.
    polls_for_one: bool,
}

impl Dataplane {
    /// Opens the devices on the calling core, and starts watching for requests.
    ///
    /// # Errors A device that does not open, or a driver that cannot watch the file.
    pub(super) fn open(
        session: Session,
        names: Files,
        namespaces: &[(u32, PerClass<Arc<dyn Device>>)],
        (poll, is_taken_over): (PollPolicy, bool),
        driver: &mut impl Driver,
    ) -> Result<Self, FuseError> {
        let mut files = Vec::with_capacity(namespaces.len());
        for &(nsid, ref devices) in namespaces {
            let io = DeviceIo::open(devices, REQUESTS_MAX, driver);
            files.push(File {
                io: io.map_err(|source| FuseError::Device { nsid, source })?,
                order: WriteOrder::new(),
                ready: PerClass::default(),
                wrote: false,
                unflushed: false,
                flush_failed: false,
            });
        }
        let opened = connect(files.iter_mut().map(|file| &mut file.io), driver);
        opened.map_err(|(place, source)| FuseError::Device {
            nsid: namespaces[place].0,
            source,
        })?;
        let file = driver.open_file(Arc::clone(session.file()));
        let file = file.map_err(FuseError::Session)?;
        let slot = SlabKey {
            index: 0,
            generation: 0,
        };
        let key = OpKey::new(driver.op_namespace(), 0, slot);
        driver.submit(key, Op::Watch { file });
        Ok(Self {
            session,
            names,
            files,
            first: 0,
            message: Session::memory(),
            readable: true,
            paused: is_taken_over,
            pausing: None,
            interrupted: VecDeque::new(),
            scratch: Vec::new(),
            closing: false,
            again: false,
            polls_for_one: poll == PollPolicy::Auto,
        })
    }

    /// Counters of each device.
    pub(super) fn counters(&self) -> Vec<Arc<IoCounters>> {
        let counters = self.files.iter().map(|file| file.io.counters());
        counters.map(Arc::clone).collect()
    }

    #[cfg(test)]
    pub(super) const fn shared(&self) -> &Arc<super::SharedMount> {
        &self.names.shared
    }

    /// Outstanding requests, and bytes of data held for them.
    #[cfg(test)]
    pub(super) fn under_way(&self) -> (usize, usize) {
        let under_way = &self.names.under_way;
        (under_way.requests.get(), under_way.bytes.get())
    }

    /// Returns true if there may be a message, and there is room for its request.
    fn may_read(&self) -> bool {
        let under_way = &self.names.under_way;
        self.readable
            && !self.paused
            && !self.closing
            && under_way.requests.get() < WAITING_MAX
            && under_way.bytes.get() < WRITE_BYTES_MAX
    }

    /// Reads requests from the kernel, up to the limit of one turn.
    fn read_requests(&mut self, cx: &mut Context<'_>) {
        let mut bytes = 0;
        for _ in 0..TURN_REQUESTS {
            if !self.may_read() || bytes >= TURN_WRITE_BYTES {
                return;
            }
            match self.session.read(&mut self.message) {
                Ok(Some(len)) => {
                    bytes += len;
                    self.begin_request(len, cx);
                }
                Ok(None) => self.readable = false,
                Err(errno) => {
                    if errno != Errno::NODEV {
                        tracing::error!("cannot read FUSE requests: {errno}");
                    }
                    self.close(cx);
                }
            }
        }
    }

    /// Replies to the request in the first `len` bytes of the message, or passes it to its device.
    fn begin_request(&mut self, len: usize, cx: &mut Context<'_>) {
        let message = &self.message[..len];
        let Some((header, body)) = Header::parse(message) else {
            tracing::error!("a FUSE request has only {len} bytes");
            return;
        };
        let request = Request::parse(&header, body).ok_or(Errno::IO);
        let step = request.and_then(|request| self.names.step(&header, request, cx.now));
        match step {
            Ok(RequestStep::Answer(answer)) => self.session.answer(header.unique, answer.bytes()),
            Ok(RequestStep::Carry(job, data)) => self.files[job.file].enter(job, data, cx),
            Ok(RequestStep::Interrupt(unique)) => self.interrupt(unique, cx.now),
            Ok(RequestStep::End) => {}
            Err(errno) => self.session.refuse(header.unique, errno),
        }
    }

    /// Records that a request's thread has a pending signal.
    fn interrupt(&mut self, unique: u64, now: Time) {
        let mut files = self.files.iter();
        let found = files.position(|file| file.thread_of(unique).is_some());
        if let Some(file) = found {
            self.interrupted.push_front(Interrupted {
                ask_at: now,
                unique,
                file,
            });
        }
    }

    /// Cancels interrupted requests whose threads are being killed: the threads could not end
    /// before. Requests of other threads continue, as on a disk, because programs do not expect
    /// `EINTR` from one.
    fn give_up_interrupted(&mut self, cx: &mut Context<'_>) {
        for _ in 0..INTERRUPTS_MAX {
            let due = |next: &mut Interrupted| next.ask_at <= cx.now;
            let Some(mut next) = self.interrupted.pop_front_if(due) else {
                return;
            };
            let file = &mut self.files[next.file];
            let Some(thread) = file.thread_of(next.unique) else {
                continue;
            };
            if is_being_ended(thread) {
                file.give_up(next.unique, &self.session, cx);
            }
            // A request that cannot be cancelled yet is checked again.
            let periods = 1 + self.interrupted.len() / INTERRUPTS_MAX;
            let periods = u64::try_from(periods).expect("requests are bounded");
            next.ask_at = cx.now + Nanos(INTERRUPT_PERIOD.0 * periods);
            self.interrupted.push_back(next);
        }
    }

    /// Returns the time of the next check of an interrupted request.
    fn ask_at(&self) -> Time {
        let next = self.interrupted.front();
        next.map_or(Time::NEVER, |next| next.ask_at)
    }

    /// Updates the times of files that were written in this turn, before the next request is read.
    fn note_writes(&mut self) {
        for (file, entry) in self.files.iter_mut().zip(&mut self.names.entries) {
            if std::mem::take(&mut file.wrote) {
                entry.times.wrote();
            }
        }
    }

    /// Reports the last write times of the files to the owner of the mount.
    fn tell_times(&self) {
        let times = self.names.entries.iter();
        let begin = SystemTime::UNIX_EPOCH;
        // A time set by a program may be out of range of this machine's clock.
        let time = |modified| begin.checked_add(modified).unwrap_or(begin);
        let times = times.map(|entry| time(entry.times.modified)).collect();
        let modified = self.names.shared.modified.lock();
        *modified.unwrap_or_else(PoisonError::into_inner) = times;
    }

    /// Replies to a pause when nothing is outstanding, and the writes of all files are flushed.
    fn run_pause(&mut self, cx: &mut Context<'_>) {
        if self.pausing.is_none() || self.names.under_way.requests.get() > 0 {
            return;
        }
        let mut is_flushed = true;
        for (index, file) in self.files.iter_mut().enumerate() {
            if std::mem::take(&mut file.unflushed) {
                is_flushed = false;
                let job = Job {
                    unique: OWN,
                    thread: 0,
                    file: index,
                    class: Class::DEFAULT,
                    range: Range::default(),
                    work: Work::Flush(file.io.client()),
                    place: JobPlace::new(Rc::clone(&self.names.under_way)),
                };
                file.enter(job, &[], cx);
            }
        }
        if !is_flushed {
            self.again = true;
        } else if let Some(reply) = self.pausing.take() {
            let failed = |file: &mut File| std::mem::take(&mut file.flush_failed);
            let failed: Vec<_> = self.files.iter_mut().map(failed).collect();
            self.interrupted.clear();
            // One that waits no longer has cancelled the pause.
            let _ = reply.send(self.names.hand_over(&failed));
        }
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.closing, true) {
            self.files.iter_mut().for_each(|file| file.io.close(cx));
        }
    }
}

/// Returns true if the thread's process is being killed: the kernel has then sent `SIGKILL` to each
/// of its threads.
fn is_being_ended(thread: u32) -> bool {
    const SIGKILL: u64 = 1 << (9 - 1);
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let pending = lines.find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    pending.is_some_and(|mask| mask & SIGKILL != 0)
}

impl File {
    fn waiting(&self) -> usize {
        self.ready.iter().map(|(_, queue)| queue.len()).sum()
    }

    /// Accepts a request with the data of a write.
    fn enter(&mut self, mut job: Job, data: &[u8], cx: &mut Context<'_>) {
        let mut data = Some(data);
        let mut ticket = None;
        if job.is_write() {
            let (range, alone) = (job.blocks(), job.changes_parts());
            if alone || self.order.has_parts() {
                job.hold(data.take().expect("it was just put there"));
            }
            let Some((entered, again)) = self.order.enter(range, alone, job) else {
                return;
            };
            (ticket, job) = (Some(entered), again);
        }
        let class = job.class;
        let mut ready = Ready { ticket, job };
        if self.ready[class].is_empty() {
            match self.begin_one(ready, data, cx) {
                Ok(()) => return,
                Err(refused) => ready = refused,
            }
        }
        if let Some(data) = data {
            ready.job.hold(data);
        }
        self.ready[class].push_back(ready);
    }

    /// Submits waiting requests to the device while there is room; returns true if any was
    /// submitted.
    fn begin(&mut self, cx: &mut Context<'_>) -> bool {
        let mut begun = false;
        self.io.release();
        for class in Class::ALL {
            while let Some(ready) = self.ready[class].pop_front() {
                if let Err(ready) = self.begin_one(ready, None, cx) {
                    self.ready[class].push_front(ready);
                    break;
                }
                begun = true;
            }
        }
        begun
    }

    /// Submits a request to the device; returns it if there is no room. `data` is that of a write,
    /// unless it is held.
    fn begin_one(
        &mut self,
        mut ready: Ready,
        data: Option<&[u8]>,
        cx: &mut Context<'_>,
    ) -> Result<(), Ready> {
        if self.io.is_full() {
            return Err(ready);
        }
        let (class, operation) = (ready.job.class, ready.job.operation());
        let bytes = if operation.has_data() {
            ready.job.range.memory_bytes()
        } else {
            0
        };
        let Some(mut memory) = self.io.memory(class, bytes, cx) else {
            self.io.reserve(class, bytes, cx);
            return Err(ready);
        };
        if matches!(operation, Operation::Write { .. }) {
            ready.job.fill(data, &mut memory);
        }
        let range = (ready.job.range.start, ready.job.range.span);
        let client = match &ready.job.work {
            Work::Flush(client) => Some(client.clone()),
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
        Ok(())
    }

    /// Fails requests that wait for memory that can never become free.
    fn refuse_waiting(&mut self, session: &Session) {
        for class in Class::ALL {
            while let Some(ready) = self.ready[class].pop_front() {
                self.leave(ready.ticket);
                session.refuse(ready.job.unique, Errno::NOMEM);
            }
        }
    }

    /// Returns the thread of the request with this identifier if it belongs to this file.
    fn thread_of(&self, unique: u64) -> Option<u32> {
        let ready = self.ready.iter().flat_map(|(_, queue)| queue);
        let ready = ready.map(|ready| &ready.job);
        let running = self.io.owners().map(|running| &running.ready.job);
        let mut jobs = ready.chain(running).chain(self.order.waiting());
        jobs.find(|job| job.unique == unique).map(|job| job.thread)
    }

    /// Cancels the request with this identifier: it ends soon, unless the device cannot cancel it.
    fn give_up(&mut self, unique: u64, session: &Session, cx: &mut Context<'_>) {
        let is_it = |job: &Job| job.unique == unique;
        if self.order.remove_waiting(is_it) {
            session.refuse(unique, Errno::INTR);
            self.begin_writes();
            return;
        }
        for class in Class::ALL {
            let queue = &mut self.ready[class];
            let found = queue.iter().position(|ready| is_it(&ready.job));
            if let Some(ready) = found.and_then(|index| queue.remove(index)) {
                session.refuse(unique, Errno::INTR);
                self.leave(ready.ticket);
                return;
            }
        }
        self.io.cancel(|running| is_it(&running.ready.job), cx);
    }

    /// Removes an ended write from the order, so that writes that waited for it can begin.
    fn leave(&mut self, ticket: Option<u64>) {
        let Some(ticket) = ticket else { return };
        self.order.leave(ticket);
        self.begin_writes();
    }

    fn begin_writes(&mut self) {
        while let Some((ticket, job)) = self.order.begin() {
            let ticket = Some(ticket);
            self.ready[job.class].push_back(Ready { ticket, job });
        }
    }

    /// Returns the next finished request: of class `Throughput` only while `bytes` is above 0. The
    /// bytes of a read are subtracted from it.
    fn finished(&mut self, bytes: &mut usize) -> Option<Finished<Running>> {
        let urgent = self.io.finished_of(Class::Latency);
        if urgent.is_some() || *bytes == 0 {
            return urgent;
        }
        let finished = self.io.finished_of(Class::Throughput)?;
        if matches!(finished.owner.ready.job.work, Work::Read) {
            *bytes = bytes.saturating_sub(finished.owner.ready.job.range.len);
        }
        Some(finished)
    }

    fn finish(
        &mut self,
        finished: Finished<Running>,
        scratch: &mut Vec<u8>,
        session: &mut Session,
    ) {
        let Finished {
            owner: Running {
                mut ready,
                reads_first,
            },
            result,
            mut data,
        } = finished;
        if reads_first && result.is_ok() {
            let mut durable = false;
            let zeroes = match ready.job.work {
                Work::Write {
                    durable: is_durable,
                } => {
                    durable = is_durable;
                    None
                }
                _ => Some(vec![0; ready.job.range.len]),
            };
            ready.job.fill(zeroes.as_deref(), &mut data);
            let range = (ready.job.range.start, ready.job.range.span);
            let running = Running {
                ready,
                reads_first: false,
            };
            // The read has just freed its own slot among the device's requests.
            let class = running.ready.job.class;
            let operation = Operation::Write { durable };
            self.io.submit(class, operation, range, data, running);
            return;
        }
        if result.is_ok() && ready.job.next_step() {
            self.io.recycle(data);
            self.ready[ready.job.class].push_back(ready);
            return;
        }
        if ready.job.unique == OWN {
            self.flush_failed |= result.is_err();
            self.io.recycle(data);
            return;
        }
        // A failed write may have been executed in part.
        self.wrote |= ready.ticket.is_some();
        self.unflushed |= ready.ticket.is_some();
        self.leave(ready.ticket);
        ready.job.answer(result, &data, scratch, session);
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
        if let Some(Completion { outcome, .. }) = completion {
            let Outcome::Readable(result) = outcome else {
                unreachable!("the service starts nothing else");
            };
            self.readable = true;
            if let Err(error) = result {
                tracing::error!("cannot wait for FUSE requests: {error}");
                self.close(cx);
            }
        }
    }

    fn message(&mut self, message: Message, cx: &mut Context<'_>) {
        match message {
            Message::Ping(ping) => drop(ping),
            Message::Shut => self.names.shut = true,
            Message::End => self.close(cx),
            Message::Pause(reply) => (self.paused, self.pausing) = (true, Some(reply)),
            Message::Resume(handed) => {
                if let Some(handed) = handed {
                    self.names.take_over(handed);
                }
                (self.paused, self.pausing, self.readable) = (false, None, true);
            }
        }
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.read_requests(cx);
        self.give_up_interrupted(cx);
        let mut bytes = TURN_ANSWER_BYTES;
        // Files take turns, because one file may use up a turn's reply budget.
        self.first = (self.first + 1) % self.files.len();
        self.again = passes(|| {
            let mut progress = false;
            let (last, first) = self.files.split_at_mut(self.first);
            for file in first.iter_mut().chain(last) {
                progress |= file.begin(cx);
                file.io.turn(cx);
                while let Some(finished) = file.finished(&mut bytes) {
                    file.finish(finished, &mut self.scratch, &mut self.session);
                    progress = true;
                }
            }
            progress
        });
        self.note_writes();
        if self.closing {
            self.tell_times();
        }
        self.session.flush();
        let nothing_runs = self.files.iter().all(|file| file.io.under_way() == 0);
        if nothing_runs && !self.again {
            let session = &self.session;
            self.files
                .iter_mut()
                .for_each(|file| file.refuse_waiting(session));
            // Writes that waited for finished ones.
            self.again = self.files.iter().any(|file| file.waiting() > 0);
        }
        self.again |= self.may_read();
        self.run_pause(cx);
        if self.names.shut && self.names.under_way.requests.get() == 0 {
            self.names.shared.drained.store(true, Ordering::Relaxed);
        }
    }

    fn deadline(&self) -> Time {
        if self.again {
            return Time::ZERO;
        }
        let devices = self.files.iter().map(|file| file.io.deadline());
        devices.fold(self.ask_at(), Time::min)
    }

    /// An application that waits for its only request leaves its processor idle. With more requests
    /// outstanding it has further work, and a sleeping dataplane thread finds several completions
    /// at once.
    fn poll_policy(&self) -> Option<PollPolicy> {
        let policy = match self.names.under_way.requests.get() {
            1 => PollPolicy::Spare,
            _ => PollPolicy::Never,
        };
        self.polls_for_one.then_some(policy)
    }

    fn finished(&self) -> bool {
        let mut files = self.files.iter();
        self.closing && files.all(|file| file.io.closed() && !file.io.has_finished())
    }
}
