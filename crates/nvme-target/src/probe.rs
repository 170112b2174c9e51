//! Reads of the target's own, by which it sees how late a device is while it serves.
//! `[ReFlex §3.2.1, §4.3]`
//!
//! A [`Probe`] is a thread of its own with its own way into the device, beside the cores that serve
//! it. It reads 4 KiB at random places and takes their time in the device; together with the load of
//! all tenants, which the device's [pool](qos::TokenPool) knows, that is what a newer curve is made of
//! ([`DeviceQos::refit`]). Its reads arrive independently of each other, in steps up to a
//! share of the device's token rate and down again, and each pays the token scheduler as a
//! best-effort tenant's would: so promises come first, and it has no more of what is left than one
//! tenant with the usual weight.
//!
//! Must never: write; spend more than its share of the rate; hold anything back from tenants once it
//! has ended.

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

/// Reads in flight at most: at 2 ms, a quarter of a million a second.
const DEPTH: u16 = 512;

/// Bytes of one read: the unit of a curve.
const READ_BYTES: u32 = 4096;

/// Of each step's time, this part runs before anything counts.
const WARM_UP_DIVISOR: u64 = 4;

/// Time after the end in which reads may still come back from the device.
const GIVE_UP_TIME: Nanos = Nanos::from_secs(1);

/// Time after which a device that had no room is tried again, if nothing ends before.
const BUSY_RETRY: Nanos = Nanos::from_micros(100);

/// Options of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOptions {
    /// The most that is spent, in hundredths of the device's token rate: 1 to 100.
    pub share_percent: u32,
    /// Duration.
    pub length: Nanos,
    /// Fixes places and times.
    pub seed: u64,
}

/// Progress of a probe, and the request to end it: shared with the caller.
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

    /// Returns true once it was asked to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the part of its time that is over, in thousandths.
    #[must_use]
    pub fn done_permille(&self) -> u64 {
        self.done_permille.load(Ordering::Relaxed)
    }

    /// Reads that ended so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns their cost, in thousandths of a token.
    #[must_use]
    pub fn spent_milli(&self) -> u64 {
        self.spent_milli.load(Ordering::Relaxed)
    }
}

/// Reason for which nothing was observed.
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
        /// The reason.
        error: BlockError,
    },
    /// The device is smaller than a read.
    #[error("the device is smaller than a read of {READ_BYTES} bytes")]
    TooSmall,
    /// The device cannot be opened once more.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The scheduler has no place for one more thread.
    #[error(transparent)]
    Threads(#[from] TooManyThreads),
    /// The kernel refuses what a thread needs.
    #[error(transparent)]
    SetUp(#[from] SetupError),
    /// The kernel broke off.
    #[error("io_uring failed: {0}")]
    Driver(#[from] io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeState {
    /// Its time begins with its first turn.
    New,
    Running,
    /// Waits for what is in the device.
    Ending(Time),
    Ended,
}

/// A read under way.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    block: u64,
    /// Time at which its tokens were paid.
    begun: Time,
}

/// A step of the load, as far as it was seen.
#[derive(Debug)]
struct LoadStep {
    number: usize,
    /// From when on it counts; [`Time::NEVER`] before.
    counts_from: Time,
    latency: Latencies,
    /// Thousandths of reads among all requests, times nanoseconds.
    reads_share: u128,
}

/// Observes a device: the service of a thread of its own.
#[derive(Debug)]
pub struct Probe {
    qos: Arc<DeviceQos>,
    scheduler: TokenScheduler<u16>,
    key: TenantKey,
    channel: Box<dyn Channel>,
    buffers: BufferPool,
    read_blocks: u32,
    /// Places of a read on the device.
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
    /// Paid for, and the device had no room.
    busy: VecDeque<Request>,
    in_channel: usize,
    step: LoadStep,
    /// Time of the last look at the mix.
    looked_at: Time,
    /// The pool's count of spent tokens at the last look.
    load_seen: u64,
    observations: Vec<Observation>,
    failure: Option<ProbeError>,
}

impl Probe {
    /// A probe of a device that tenants share by `qos`, which takes the memory of its reads from
    /// `buffers`; `channel` is its own way in.
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

    /// Returns the observations, in the order of time.
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

    /// Returns the end of the step at hand: of its warm-up, or of all of it.
    fn step_due(&self) -> Time {
        let begin = self.step_begin();
        if self.step.counts_from == Time::NEVER {
            begin + Nanos(self.step_time().0 / WARM_UP_DIVISOR)
        } else {
            begin + self.step_time()
        }
    }

    /// Goes on to the next step when it is time.
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

    /// Asks for nothing more.
    fn end(&mut self, now: Time, cx: &mut Context<'_>) {
        self.state = ProbeState::Ending(now + GIVE_UP_TIME);
        let free = &mut self.free;
        self.scheduler.drain(self.key, &mut |slot| free.push(slot));
        self.busy.clear();
        self.channel.close(cx);
    }

    /// Lets arrive what is due.
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
                // The device or its tenants keep it waiting: a load in an open loop has no patience.
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

    /// Hands to the device what is paid for.
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

/// Observes a device from this thread, on a driver of its own, until its time is over or the watch
/// says so. Never called on a core of the target.
///
/// # Errors
/// Why nothing was observed.
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
