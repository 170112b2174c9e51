//! The target's own reads, to measure a device's latency in service. `[ReFlex §3.2.1, §4.3]`
//!
//! A [`Probe`] is a separate thread with its own channel to the device. It measures the time of
//! random 4 KiB reads in the device. These times and the load of all tenants, from the device's
//! [pool](qos::TokenPool), make a newer curve ([`DeviceQos::refit`]). Reads arrive independently,
//! at loads that step up to a share of the device's token rate and down again. They cost tokens
//! like those of a best-effort tenant with the default weight, so SLOs have precedence. Invariants:
//! it never writes, spends no more than its share of the rate, and withholds no tokens from tenants
//! once it has ended.

mod pace;

use crate::qos::device::DeviceQos;
use base::units::Lba;
use base::{Latencies, Nanos, Prng, Time};
use block::{BlockError, Channel, Completion, Device, DeviceError, Operation, Request, Submit};
use pace::Pace;
use qos::live::Observation;
use qos::token_scheduler::{Refused, TooManyThreads};
use qos::{Account, Percentile, TenantKey, TokenRate, TokenScheduler, Tokens, Weight};
use reactor::uring::{Options as DriverOptions, SetupError, UringDriver};
use reactor::{BufferClass, BufferPool, Context, Core, IoSlice, PollPolicy, Service};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Maximum reads in flight: 250,000 reads/s at a latency of 2 ms.
const DEPTH: u16 = 512;

/// Size of a read in bytes: the unit of a curve.
const READ_BYTES: u32 = 4096;

/// Divisor of a step's duration that gives its warm-up, during which nothing is measured.
const WARM_UP_DIVISOR: u64 = 4;

/// Time after the end for outstanding reads to complete.
const GIVE_UP_TIME: Nanos = Nanos::from_secs(1);

/// Retry interval for a device that had no room, if no read completes before.
const BUSY_RETRY: Nanos = Nanos::from_micros(100);

/// Options of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOptions {
    /// Largest share of the device's token rate to spend, in percent: 1 to 100.
    pub share_percent: u32,
    /// Duration.
    pub length: Nanos,
    /// Seed of the random places and times.
    pub seed: u64,
}

/// Progress of a probe, and a flag to end it; shared with the caller.
#[derive(Debug, Default)]
pub struct ProbeWatch {
    stop: AtomicBool,
    done_permille: AtomicU64,
    reads: AtomicU64,
    spent_milli: AtomicU64,
}

impl ProbeWatch {
    /// Ends the probe early.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns true if the probe was requested to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the elapsed part of its duration, in thousandths.
    #[must_use]
    pub fn done_permille(&self) -> u64 {
        self.done_permille.load(Ordering::Relaxed)
    }

    /// Returns the number of completed reads.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the cost of the reads, in thousandths of a token.
    #[must_use]
    pub fn spent_milli(&self) -> u64 {
        self.spent_milli.load(Ordering::Relaxed)
    }
}

/// Why nothing was observed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The probe was stopped.
    #[error("the calibration was cancelled; the model is unchanged")]
    Stopped,
    /// A read failed.
    #[error("a read of block {block} failed: {error}; the model is unchanged")]
    Read {
        /// The block.
        block: u64,
        /// The error.
        error: BlockError,
    },
    /// The device is smaller than a read.
    #[error("the device is smaller than a read of {READ_BYTES} bytes")]
    TooSmall,
    /// The device cannot be opened again.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The scheduler has no place for another thread.
    #[error(transparent)]
    Threads(#[from] TooManyThreads),
    /// The kernel refused the set-up of the thread.
    #[error(transparent)]
    SetUp(#[from] SetupError),
    /// The driver failed.
    #[error("io_uring failed: {0}")]
    Driver(#[from] io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeState {
    /// Not started: the duration begins with the first turn.
    New,
    Running,
    /// Waits for outstanding reads.
    Ending(Time),
    Ended,
}

/// A read in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    block: u64,
    /// Time at which its tokens were paid.
    begun: Time,
}

/// The measurements of one load step.
#[derive(Debug)]
struct LoadStep {
    number: usize,
    /// Time from which reads count; [`Time::NEVER`] before.
    counts_from: Time,
    latency: Latencies,
    /// Integral over time of the reads' share of all requests, in thousandths times nanoseconds.
    reads_share: u128,
}

/// Observes a device; the service of a separate thread.
#[derive(Debug)]
pub struct Probe {
    qos: Arc<DeviceQos>,
    scheduler: TokenScheduler<u16>,
    key: TenantKey,
    channel: Box<dyn Channel>,
    buffers: BufferPool,
    read_blocks: u32,
    /// Number of possible read positions on the device.
    places: u64,
    options: ProbeOptions,
    watch: Arc<ProbeWatch>,
    state: ProbeState,
    started: Time,
    pace: Pace,
    places_random: Prng,
    slots: Vec<Slot>,
    free: Vec<u16>,
    paid: Vec<(u16, Tokens)>,
    /// Paid reads for which the device had no room.
    busy: VecDeque<Request>,
    in_channel: usize,
    step: LoadStep,
    /// Time of the last sample of the mix.
    looked_at: Time,
    /// The pool's count of spent tokens at the last sample.
    load_seen: u64,
    observations: Vec<Observation>,
    failure: Option<ProbeError>,
}

impl Probe {
    /// Creates a probe of a device that tenants share by `qos`. It takes read memory from
    /// `buffers`, and `channel` is its own channel to the device.
    ///
    /// # Errors
    /// [`ProbeError::TooSmall`], [`ProbeError::Threads`].
    pub fn new(
        device: &dyn Device,
        channel: Box<dyn Channel>,
        buffers: &BufferPool,
        qos: &Arc<DeviceQos>,
        options: ProbeOptions,
        watch: Arc<ProbeWatch>,
    ) -> Result<Self, ProbeError> {
        let geometry = device.geometry();
        let read_blocks = (READ_BYTES / geometry.block_bytes.max(1)).max(1);
        let places = geometry.blocks / u64::from(read_blocks);
        if places == 0 {
            return Err(ProbeError::TooSmall);
        }
        let mut scheduler = TokenScheduler::new(Arc::clone(qos.pool()), DEPTH.into())?;
        let key = scheduler.attach(&Arc::new(Account::unregistered(Weight::default())));
        Ok(Self {
            qos: Arc::clone(qos),
            scheduler,
            key,
            channel,
            buffers: buffers.clone(),
            read_blocks,
            places,
            options,
            watch,
            state: ProbeState::New,
            started: Time::ZERO,
            pace: Pace::new(options.share_percent, options.seed),
            places_random: Prng::from_seed(!options.seed),
            slots: vec![Slot::default(); DEPTH.into()],
            free: (0..DEPTH).rev().collect(),
            paid: Vec::with_capacity(DEPTH.into()),
            busy: VecDeque::new(),
            in_channel: 0,
            step: LoadStep {
                number: 0,
                counts_from: Time::NEVER,
                latency: Latencies::new(),
                reads_share: 0,
            },
            looked_at: Time::ZERO,
            load_seen: 0,
            observations: Vec::with_capacity(Pace::STEPS),
            failure: None,
        })
    }

    /// Returns the observations, in order of time.
    ///
    /// # Errors
    /// [`ProbeError::Read`], [`ProbeError::Stopped`].
    pub fn into_result(self) -> Result<Vec<Observation>, ProbeError> {
        self.failure.map_or(Ok(self.observations), Err)
    }

    fn step_time(&self) -> Nanos {
        Nanos(self.options.length.0 / Pace::STEPS as u64)
    }

    fn step_begin(&self) -> Time {
        self.started + Nanos(self.step_time().0 * self.step.number as u64)
    }

    /// Returns the end of the current phase of the step: of its warm-up, or of the step.
    fn step_due(&self) -> Time {
        let begin = self.step_begin();
        if self.step.counts_from == Time::NEVER {
            begin + Nanos(self.step_time().0 / WARM_UP_DIVISOR)
        } else {
            begin + self.step_time()
        }
    }

    /// Begins the next step when it is due.
    fn advance(&mut self, now: Time, cx: &mut Context<'_>) {
        let passed = u128::from(now.since(self.looked_at).0);
        self.step.reads_share += passed * u128::from(self.qos.pool().share().permille());
        self.looked_at = now;
        while self.state == ProbeState::Running && now >= self.step_due() {
            let spent = self.qos.pool().spent_since(&mut self.load_seen);
            if self.step.counts_from == Time::NEVER {
                self.step.counts_from = now;
                self.step.reads_share = 0;
                continue;
            }
            let span = now.since(self.step.counts_from);
            self.observations.push(self.step.seen(spent, span));
            self.step.latency.clear();
            self.step.counts_from = Time::NEVER;
            self.step.number += 1;
            if self.step.number == Pace::STEPS {
                self.end(now, cx);
            }
        }
        let permille = now.since(self.started).0 * 1000 / self.options.length.0.max(1);
        self.watch
            .done_permille
            .store(permille.min(1000), Ordering::Relaxed);
    }

    /// Stops issuing reads.
    fn end(&mut self, now: Time, cx: &mut Context<'_>) {
        self.state = ProbeState::Ending(now + GIVE_UP_TIME);
        let free = &mut self.free;
        self.scheduler.drain(self.key, &mut |slot| free.push(slot));
        self.busy.clear();
        self.channel.close(cx);
    }

    /// Issues the reads that are due.
    fn arrive(&mut self, now: Time) {
        let pool = self.qos.pool();
        let load = pool.share().load(now);
        let price = pool
            .model()
            .prices(load)
            .cost(qos::PricedOperation::Read, 1);
        self.pace.earn(now, pool.rate(), price);
        while self.pace.due(now) {
            let Some(slot) = self.free.pop() else {
                // The device or its tenants delay it. In an open loop, a read that cannot start is
                // skipped.
                self.pace.skip(self.step.number);
                continue;
            };
            let read = qos::PricedOperation::Read;
            match self.scheduler.enqueue(self.key, read, 1, slot) {
                Ok(()) => self.pace.take(self.step.number),
                Err(Refused::Full(slot) | Refused::Closed(slot)) => {
                    self.free.push(slot);
                    self.pace.skip(self.step.number);
                }
            }
        }
    }

    /// Submits paid reads to the device.
    fn submit_paid(&mut self, cx: &mut Context<'_>) {
        let paid = &mut self.paid;
        self.scheduler
            .round(cx.now, &mut |slot, cost| paid.push((slot, cost)));
        let mut paid = std::mem::take(&mut self.paid);
        for (slot, cost) in paid.drain(..) {
            let milli = u64::try_from(cost.0 / Tokens::milli(1).0).unwrap_or(0);
            self.watch.spent_milli.fetch_add(milli, Ordering::Relaxed);
            let block = self.places_random.below(self.places) * u64::from(self.read_blocks);
            self.slots[usize::from(slot)] = Slot {
                block,
                begun: cx.now,
            };
            let bytes = READ_BYTES as usize;
            let Some(buffer) = self.buffers.take(bytes) else {
                self.free.push(slot);
                continue;
            };
            self.busy.push_back(Request {
                tag: slot.into(),
                operation: Operation::Read,
                lba: Lba(block),
                blocks: self.read_blocks,
                data: Some(IoSlice::from_buffer(buffer, bytes)),
            });
        }
        self.paid = paid;
        let mut submitted = false;
        while let Some(request) = self.busy.pop_front() {
            match self.channel.submit(request, cx) {
                Submit::Queued => {
                    self.in_channel += 1;
                    submitted = true;
                }
                Submit::Done(completion) => self.completed(&completion, cx.driver.now()),
                Submit::Busy(request) => {
                    self.busy.push_front(request);
                    break;
                }
            }
        }
        if submitted {
            self.channel.kick(cx);
        }
    }

    fn completed(&mut self, completion: &Completion, now: Time) {
        let index = u16::try_from(completion.tag).expect("a tag is a slot's number");
        self.free.push(index);
        let slot = self.slots[usize::from(index)];
        if self.state != ProbeState::Running {
            return;
        }
        match completion.result {
            Ok(()) => {
                self.watch.reads.fetch_add(1, Ordering::Relaxed);
                if slot.begun >= self.step.counts_from {
                    let took = now.since(slot.begun);
                    self.step.latency.record(took.max(Nanos(1)));
                }
            }
            Err(error) => {
                let block = slot.block;
                self.failure = Some(ProbeError::Read { block, error });
            }
        }
    }

    fn reap(&mut self, cx: &mut Context<'_>) {
        self.channel.tick(cx);
        while let Some(completion) = self.channel.reap() {
            self.in_channel -= 1;
            self.completed(&completion, cx.driver.now());
        }
    }
}

impl LoadStep {
    fn seen(&self, spent: Tokens, span: Nanos) -> Observation {
        let billionths = u128::from(spent.0.unsigned_abs());
        let rate = billionths / u128::from(span.0.max(1));
        let share = self.reads_share / u128::from(span.0.max(1));
        let at = |percentile: Percentile| {
            let quantile = f64::from(percentile.permille()) / 1000.0;
            self.latency.quantile(quantile).max(Nanos(1))
        };
        Observation {
            rate: TokenRate(u64::try_from(rate).unwrap_or(u64::MAX)),
            read_permille: u16::try_from(share.min(1000)).expect("at most 1000"),
            reads: self.latency.count(),
            latency: Percentile::ALL.map(at),
        }
    }
}

impl Service for Probe {
    type Message = ();

    fn apply(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        if self.channel.owns(completion.key.op_namespace) {
            self.channel.complete(completion, cx);
        }
    }

    fn message(&mut self, (): (), _cx: &mut Context<'_>) {}

    fn maintain(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        if self.state == ProbeState::New {
            self.state = ProbeState::Running;
            self.started = now;
            self.pace.begin(now);
        }
        self.reap(cx);
        if self.state == ProbeState::Running && (self.failure.is_some() || self.watch.is_stopped())
        {
            self.failure.get_or_insert(ProbeError::Stopped);
            self.end(now, cx);
        }
        self.advance(now, cx);
        match self.state {
            ProbeState::Running => {
                self.arrive(now);
                self.submit_paid(cx);
            }
            ProbeState::Ending(until) => {
                self.reap(cx);
                if (self.in_channel == 0 && self.channel.closed()) || now >= until {
                    self.state = ProbeState::Ended;
                }
            }
            ProbeState::New | ProbeState::Ended => {}
        }
    }

    fn deadline(&self) -> Time {
        let own = match self.state {
            ProbeState::New => return Time::ZERO,
            ProbeState::Running => {
                let retry = if self.busy.is_empty() {
                    Time::NEVER
                } else {
                    self.pace.now() + BUSY_RETRY
                };
                self.step_due()
                    .min(self.pace.next())
                    .min(self.scheduler.deadline())
                    .min(retry)
            }
            ProbeState::Ending(until) => until,
            ProbeState::Ended => Time::NEVER,
        };
        own.min(self.channel.deadline())
    }

    fn finished(&self) -> bool {
        self.state == ProbeState::Ended
    }
}

/// Observes a device from this thread, on a driver of its own, until the duration is over or the
/// watch is stopped. Never called on a core of the target.
///
/// # Errors
/// The reason why nothing was observed.
pub fn observe(
    device: &dyn Device,
    qos: &Arc<DeviceQos>,
    options: ProbeOptions,
    watch: Arc<ProbeWatch>,
) -> Result<Vec<Observation>, ProbeError> {
    let mut driver = UringDriver::new(&DriverOptions {
        buffers: vec![BufferClass {
            bytes: READ_BYTES as usize,
            count: DEPTH.into(),
        }],
        sockets: 1,
        file_operations: DEPTH.into(),
    })?;
    let channel = device.open(&mut driver)?;
    let buffers = reactor::Driver::buffers(&driver).clone();
    let probe = Probe::new(device, channel, &buffers, qos, options, watch)?;
    let mut core = Core::new(driver, probe, PollPolicy::Auto);
    core.run()?;
    core.service.into_result()
}
