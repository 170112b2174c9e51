//! One thread of the load: keeps requests in flight on one channel, and measures their latency.
//!
//! The clock is read once per batch of completions, and after each request that completes on
//! submission. This reading ends the batch's requests and begins their successors, so a latency
//! counts from the moment at which its request could be issued. With a rate, it counts from the
//! intended start. Requests in flight at the end of the measured time are awaited
//! ([`limits::ANSWER_WAIT`]): they count for latency, not for the rate. Invariant: no allocation
//! per request. The measured time is the same for all threads, whether or not they run: if each
//! thread counted from its own first turn, the rates of threads that share processors would add up
//! to more than the total.

mod service;
#[cfg(test)]
mod tests;

use super::arrivals::Arrivals;
use super::job::Job;
use super::limits;
use super::measured::Measured;
use super::planner::{Planned, Planner, Role};
use super::progress::Progress;
use super::written::Written;
use anyhow::{Result, anyhow};
use base::units::Lba;
use base::{Prng, Time};
use block::{BlockError, Channel, Completion, Request, Submit};
use reactor::clock::thread_cpu;
use reactor::{BufferPool, Context, IoSlice, Memory};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Seed offset that separates the random numbers of starts from those of addresses.
const ARRIVALS: u64 = 1 << 31;

/// Message to a worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    /// The load begins at this time.
    Start(Time),
    /// Ends the load early.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Reads one unit on each connection, to check that it works.
    Probe,
    /// Writes everything once.
    Prefill,
    /// Waits for the start time.
    Ready,
    /// Runs the load.
    Run,
    /// Waits for the requests in flight.
    Drain,
    /// Reads back everything that was written.
    Sweep,
    /// Waits until the channel can close.
    Close,
    Closed,
}

/// A request in flight.
#[derive(Debug)]
struct Slot {
    target: Planned,
    sequence: u32,
    data: Option<IoSlice>,
}

/// One thread's load, as a service of its core.
pub(super) struct Worker {
    job: Job,
    channel: Box<dyn Channel>,
    phase: Phase,
    slots: Vec<Slot>,
    free: Vec<u32>,
    pool: BufferPool,
    planner: Planner,
    arrivals: Option<Arrivals>,
    /// Planned, but without room so far.
    planned: Option<Planned>,
    blocked: bool,
    /// The remaining units of a prefill or sweep.
    pass: Range<u64>,
    written: Option<Written>,
    now: Time,
    start: Time,
    /// Processor time of the thread when measuring began.
    began: Option<Duration>,
    /// The end of measuring, and the processor time of the thread then.
    ended: Option<(Time, Duration)>,
    stopped: bool,
    failure: Option<BlockError>,
    /// Time at which the thread stops waiting for outstanding requests at the end.
    waits_until: Time,
    measured: Measured,
    on_ready: Option<Box<dyn FnOnce()>>,
    completed: u64,
    /// First requests issued so far; see `Phase::Probe`.
    tried: u64,
    progress: Arc<Progress>,
}

impl Worker {
    /// A worker on `channel`; calls `on_ready` once it can start.
    pub(super) fn new(
        job: Job,
        mut channel: Box<dyn Channel>,
        pool: &BufferPool,
        progress: Arc<Progress>,
        on_ready: Box<dyn FnOnce()>,
    ) -> Result<Self> {
        let mut random = Prng::from_seed(job.seed);
        let bytes = job.unit_bytes as usize;
        // Content that no layer below can compress or take for zeroes.
        let mut content = vec![0; bytes];
        let slots = (0..job.depth)
            .map(|_| {
                // Verification reads the data, which is only possible in the load's own buffers.
                let theirs = job.content.is_none().then(|| channel.memory(bytes));
                let ours = || {
                    let buffer = pool.take(bytes)?;
                    Some(IoSlice::from_buffer(buffer, bytes))
                };
                let mut data = theirs.flatten().or_else(ours);
                let slice = data.as_mut().ok_or_else(|| anyhow!("too few buffers"))?;
                random.fill(&mut content);
                slice.copy_in(0, &content);
                Ok(Slot {
                    target: Planned::default(),
                    sequence: 0,
                    data,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let written = job
            .content
            .map(|content| Written::new(content, job.span.end - job.span.start));
        Ok(Self {
            channel,
            phase: Phase::Probe,
            free: (0..job.depth).rev().collect(),
            slots,
            pool: pool.clone(),
            planner: Planner::new(random, job.first),
            arrivals: job
                .schedule
                .map(|schedule| Arrivals::new(schedule, job.seed.wrapping_add(ARRIVALS))),
            planned: None,
            blocked: false,
            pass: 0..0,
            written,
            now: Time::ZERO,
            start: Time::NEVER,
            began: None,
            ended: None,
            stopped: false,
            failure: None,
            waits_until: Time::NEVER,
            measured: Measured::default(),
            on_ready: Some(on_ready),
            completed: 0,
            tried: 0,
            progress,
            job,
        })
    }

    /// Measurements after the end, or the error that prevented them.
    pub(super) fn into_result(mut self) -> Result<Measured> {
        if let Some(error) = self.failure {
            return Err(anyhow!("cannot read the device: {error}"));
        }
        if let (Some(began_cpu), Some((ended, ended_cpu))) = (self.began, self.ended) {
            self.measured.elapsed = ended.since(self.measured_from());
            self.measured.cpu = ended_cpu.saturating_sub(began_cpu);
        }
        Ok(self.measured)
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Updates the time: begins and ends measuring.
    fn advance(&mut self, now: Time) {
        self.now = now;
        if self.phase != Phase::Run {
            return;
        }
        if self.began.is_none() && now >= self.measured_from() {
            self.began = Some(thread_cpu());
        }
        if self.ended.is_none() && now >= self.end() {
            self.ended = Some((self.end(), thread_cpu()));
        }
    }

    /// Begin of the measured time, once the start is known.
    fn measured_from(&self) -> Time {
        self.start + self.job.warmup
    }

    /// End of the measured time.
    fn end(&self) -> Time {
        self.measured_from() + self.job.measured
    }

    /// Moves to the next phase while possible, and issues the phase's requests.
    fn step(&mut self, cx: &mut Context<'_>) {
        let mut submitted = false;
        loop {
            match self.phase {
                Phase::Probe if self.stopped || self.failure.is_some() => self.close(cx),
                Phase::Probe if self.completed >= self.job.tries => {
                    self.pass = self.job.prefill.clone();
                    self.phase = Phase::Prefill;
                    continue;
                }
                Phase::Probe => {
                    let before = self.completed;
                    submitted |= self.try_connections(cx);
                    if self.completed > before {
                        continue;
                    }
                }
                Phase::Prefill | Phase::Sweep if self.stopped => self.close(cx),
                Phase::Sweep if self.now >= self.waits_until => self.give_up(cx),
                Phase::Prefill | Phase::Sweep => {
                    submitted |= self.issue_pass(cx);
                    if self.pass.is_empty() && self.planned.is_none() && self.in_flight() == 0 {
                        self.end_pass(cx);
                        continue;
                    }
                }
                Phase::Ready if self.stopped => self.close(cx),
                Phase::Run if self.stopped || self.ended.is_some() => {
                    self.end_run();
                    continue;
                }
                Phase::Run => submitted |= self.issue_load(cx),
                Phase::Drain if self.in_flight() == 0 => {
                    let sweep = self.written.is_some() && !self.stopped;
                    self.pass = if sweep { self.job.span.clone() } else { 0..0 };
                    self.phase = Phase::Sweep;
                    continue;
                }
                Phase::Close if self.channel.closed() || self.now >= self.waits_until => {
                    self.phase = Phase::Closed;
                }
                Phase::Drain if self.now >= self.waits_until => self.give_up(cx),
                Phase::Ready | Phase::Drain | Phase::Close | Phase::Closed => {}
            }
            break;
        }
        if submitted {
            self.channel.kick(cx);
        }
    }

    /// Issues the first requests, a few at once: a distant or busy host answers slowly.
    fn try_connections(&mut self, cx: &mut Context<'_>) -> bool {
        let mut submitted = false;
        while self.tried < self.job.tries
            && self.in_flight() < limits::TRIES_AT_ONCE
            && !self.free.is_empty()
        {
            self.planned = Some(Planned {
                unit: self.job.span.start,
                read: true,
                role: Role::Data,
                begins: self.now,
            });
            if !self.submit_planned(cx) {
                break;
            }
            self.tried += 1;
            submitted = true;
        }
        submitted
    }

    fn end_pass(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Sweep {
            self.close(cx);
        } else {
            self.phase = Phase::Ready;
            if let Some(on_ready) = self.on_ready.take() {
                on_ready();
            }
        }
    }

    fn end_run(&mut self) {
        self.planned = None;
        if self.began.is_some() && self.ended.is_none() {
            self.ended = Some((self.now, thread_cpu()));
        }
        self.phase = Phase::Drain;
        self.wait_for_answers();
    }

    fn wait_for_answers(&mut self) {
        let wait = if self.stopped {
            limits::STOPPED_ANSWER_WAIT
        } else {
            limits::ANSWER_WAIT
        };
        self.waits_until = self.now + wait;
    }

    /// Ends the load. Outstanding requests are awaited only for [`limits::STOPPED_ANSWER_WAIT`].
    fn stop(&mut self) {
        self.stopped = true;
        if self.waits_until < Time::NEVER {
            self.waits_until = self.waits_until.min(self.now + limits::STOPPED_ANSWER_WAIT);
        }
    }

    /// Once all requests are complete, waits without limit: a cache still writes its pages.
    fn wait_for_the_channel(&mut self) {
        if self.in_flight() == 0 {
            self.waits_until = Time::NEVER;
        }
    }

    /// Counts the outstanding requests as errors, and closes the channel to end them.
    fn give_up(&mut self, cx: &mut Context<'_>) {
        let unanswered = self.in_flight() + usize::from(self.planned.is_some());
        for _ in 0..unanswered {
            self.measured.unanswered += 1;
            self.measured.note_error(|| "no response".to_owned());
        }
        self.close(cx);
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Close;
        self.wait_for_answers();
        self.wait_for_the_channel();
        self.channel.close(cx);
        self.channel.kick(cx);
        if self.channel.closed() {
            self.phase = Phase::Closed;
        }
    }

    /// Issues requests within depth, room and schedule. At most `depth` per turn, or a device that
    /// completes on submission would keep the turn from ending.
    fn issue_load(&mut self, cx: &mut Context<'_>) -> bool {
        let mut submitted = false;
        for _ in 0..self.slots.len() {
            if self.free.is_empty() || self.ended.is_some() || self.stopped {
                break;
            }
            if self.planned.is_none() {
                if !self.planner.may_plan(&self.job, self.in_flight()) {
                    break;
                }
                let begins = self.next_begins();
                if begins > self.now {
                    break;
                }
                self.planned = Some(self.planner.plan(begins, &self.job, self.written.as_ref()));
                if let Some(arrivals) = &mut self.arrivals {
                    arrivals.pass();
                }
            } else if self.job.schedule.is_none()
                && let Some(planned) = &mut self.planned
            {
                planned.begins = self.now;
            }
            if !self.submit_planned(cx) {
                break;
            }
            submitted = true;
        }
        submitted
    }

    /// Returns the start of the next request: now, or as scheduled.
    fn next_begins(&self) -> Time {
        match &self.arrivals {
            None => self.now.max(self.start),
            Some(arrivals) => arrivals.next(self.start),
        }
    }

    /// Issues the next requests of a prefill or a sweep.
    fn issue_pass(&mut self, cx: &mut Context<'_>) -> bool {
        let read = self.phase == Phase::Sweep;
        let mut submitted = false;
        for _ in 0..self.slots.len() {
            if self.free.is_empty() {
                break;
            }
            if self.planned.is_none() {
                if let (true, Some(written)) = (read, &self.written) {
                    let start = self.job.span.start;
                    while !self.pass.is_empty() && written.sequence(self.pass.start - start) == 0 {
                        self.pass.start += 1;
                    }
                }
                let Some(unit) = self.pass.next() else {
                    break;
                };
                self.planned = Some(Planned {
                    unit,
                    read,
                    role: Role::Data,
                    begins: self.now,
                });
            }
            if !self.submit_planned(cx) {
                break;
            }
            submitted = true;
        }
        submitted
    }

    /// Submits the planned request. Returns false if there was no room.
    fn submit_planned(&mut self, cx: &mut Context<'_>) -> bool {
        let (Some(planned), Some(index)) = (self.planned, self.free.pop()) else {
            return false;
        };
        let slot = &mut self.slots[index as usize];
        let bytes = self.job.unit_bytes as usize;
        let data = slot.data.take();
        let taken = || {
            self.pool
                .take(bytes)
                .map(|buffer| IoSlice::from_buffer(buffer, bytes))
        };
        let Some(mut data) = data.or_else(taken) else {
            self.free.push(index);
            self.blocked = true;
            return false;
        };
        slot.target = planned;
        let names_blocks = planned.role != Role::Flush;
        if let (Some(written), true) = (&mut self.written, names_blocks) {
            written.set_busy(planned.unit - self.job.span.start, true);
            if !planned.read {
                slot.sequence = written.take_sequence();
                let lba = planned.unit * u64::from(self.job.unit_blocks);
                let buffer = data
                    .bytes_mut()
                    .expect("a buffer of this pool, owned by the slice");
                written.content.fill(lba, u64::from(slot.sequence), buffer);
            }
        }
        let (blocks, data) = if names_blocks {
            (self.job.unit_blocks, Some(data))
        } else {
            slot.data = Some(data);
            (0, None)
        };
        let request = Request {
            tag: u64::from(index),
            operation: planned.operation(),
            lba: Lba(planned.unit * u64::from(self.job.unit_blocks)),
            blocks,
            data,
        };
        match self.channel.submit(request, cx) {
            Submit::Queued => {}
            Submit::Done(completion) => {
                self.advance(cx.driver.now());
                self.finish(completion);
            }
            Submit::Busy(request) => {
                let slot = &mut self.slots[index as usize];
                slot.data = request.data.or(slot.data.take());
                self.free.push(index);
                if let (Some(written), true) = (&mut self.written, names_blocks) {
                    written.set_busy(planned.unit - self.job.span.start, false);
                }
                self.blocked = true;
                return false;
            }
        }
        self.planned = None;
        true
    }

    /// Handles a completion.
    fn finish(&mut self, completion: Completion) {
        let index = u32::try_from(completion.tag).expect("a tag is a slot's number");
        let bytes = self.job.unit_bytes as usize;
        let data = completion.data.and_then(|data| {
            let offset = data.offset();
            match data.into_memory() {
                Memory::Buffer(buffer) => Some(IoSlice::from_buffer(buffer, bytes)),
                Memory::Region(region) => Some(IoSlice::new(Memory::Region(region), offset, bytes)),
                Memory::Shared(_) => None,
            }
        });
        self.free.push(index);
        self.completed += 1;
        self.blocked = false;
        match self.phase {
            Phase::Drain | Phase::Sweep => self.wait_for_answers(),
            Phase::Close => self.wait_for_the_channel(),
            _ => {}
        }
        let slot = &mut self.slots[index as usize];
        let (target, sequence) = (slot.target, slot.sequence);
        let written = self.written.as_mut();
        let written = written.filter(|_| target.role != Role::Flush);
        let result = match (completion.result, written) {
            (result, None) => result.map(|()| false).map_err(|error| (error, None)),
            (result, Some(written)) => {
                let unit = target.unit - self.job.span.start;
                let lba = target.unit * u64::from(self.job.unit_blocks);
                written.set_busy(unit, false);
                written.settle(unit, lba, target.read, sequence, result, data.as_ref())
            }
        };
        slot.data = data.or(slot.data.take());
        match result {
            Ok(compared) => self.measured.verified += u64::from(compared),
            Err((error, detail)) => return self.failed(target, error, detail),
        }
        // A Flush moves no data; each counted request is one unit.
        let counts = target.role != Role::Flush && self.began.is_some();
        if counts && matches!(self.phase, Phase::Run | Phase::Drain) {
            let latency = self.now.since(target.begins);
            self.measured.latency.record(latency);
            self.progress.record(latency);
            self.measured.requests += u64::from(self.ended.is_none());
        }
    }

    #[cold]
    fn failed(&mut self, target: Planned, error: BlockError, detail: Option<String>) {
        if self.phase == Phase::Probe {
            self.failure = Some(error);
            return;
        }
        if matches!(self.phase, Phase::Close | Phase::Closed) {
            return;
        }
        self.measured.note_error(|| {
            let what = target.word();
            let lba = target.unit * u64::from(self.job.unit_blocks);
            let reason = detail.unwrap_or_else(|| error.to_string());
            format!("{what} at block {lba}: {reason}")
        });
        if error == BlockError::Gone {
            // Every further request would fail the same way, as fast as this thread can submit.
            self.stopped = true;
        }
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("phase", &self.phase)
            .field("in_flight", &self.in_flight())
            .field("completed", &self.completed)
            .finish_non_exhaustive()
    }
}
