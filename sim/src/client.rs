//! An application in the simulated world: random requests to a device, every answer checked.

mod connections;
mod content;
mod drawing;
mod extents;
mod giving_up;
mod judge;
mod leaving;
mod splitting;
mod way;

use connections::{Loss, Reopening};
pub(crate) use content::version_of;
use giving_up::GivingUp;
use splitting::Splitting;
pub(crate) use way::Way;

use crate::application::{Application, EXTENTS_AT_ONCE, Mix};
use crate::cache::Medium;
use crate::oracle::{self, Oracle, StepNumber, Version};
use crate::rights::{Law, Moment};
use crate::trace::say;
use base::units::Lba;
use base::{Nanos, Prng, Slab, SlabKey, Time};
use block::{Capabilities, Channel, Extents, Geometry, Operation, Request};
use reactor::{Context, IoSlice, OpNamespace, Service};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

#[derive(Debug)]
struct InFlight {
    since: Time,
    range: Range<usize>,
    kind: RequestKind,
    operation: Option<Operation>,
    /// Time of the request, by the rules that it is held to.
    asked: Option<Moment>,
    /// Tag of the command over several extents that it is one of: what fails one of them fails all.
    together: Option<u64>,
    /// It has a limit, or was cancelled.
    given_up: bool,
}

#[derive(Debug)]
enum RequestKind {
    Read(StepNumber),
    /// With the version that is expected in each block.
    Compare(StepNumber, Vec<Version>),
    Verify,
    /// Whatever puts something into its blocks.
    Write {
        version: Version,
        durable: bool,
    },
    /// By then settled writes are on the medium when it is answered, block by block.
    Flush(StepNumber, Vec<Version>),
}

/// Answers of an application after which those it shares its way with have noticed it.
pub const WARM_UP: u64 = 16;

/// An application works on the first so many blocks: a target that lies may say that a namespace
/// has any number of them, and each takes memory here.
const BLOCKS_MAX: u64 = 1 << 16;

/// Requests that an application has under way, at most, that flushes as often as it does anything else.
const SYNCS_DEPTH: usize = 2;

/// Interval in which an application with nothing under way looks again for blocks without a write.
const RETRY: Nanos = Nanos::from_micros(20);

/// The application, as the service of a core.
#[derive(Debug)]
pub struct Client {
    /// Name in a trace.
    name: String,
    channel: Way,
    /// Its description, with what this channel has to do.
    work: Application,
    geometry: Geometry,
    /// The largest transfer of the device.
    transfer_blocks: u64,
    /// Losses of what was not flushed that a Flush has reported, and when the last one did.
    told: (usize, StepNumber),
    oracle: Rc<RefCell<Oracle>>,
    /// Content that the device would keep without power, if it has a cache.
    medium: Option<Medium>,
    prng: Prng,
    in_flight: Slab<InFlight>,
    /// Requests that the channel had no room for.
    refused: VecDeque<Request>,
    /// The command over extents that the channel had no room for.
    refused_extents: Option<Extents>,
    /// Draws commands over extents, of so many at most; `None` where there are none.
    extents: Option<(Prng, usize)>,
    /// Draws which requests are given up; `None` where none is.
    gives_up: Option<GivingUp>,
    /// Draws writes that one command does not take; `None` where it draws all kinds of requests.
    splits: Option<Splitting>,
    /// The work of the next channel, once this one is closed.
    reopening: Option<Reopening>,
    /// The loss of the connection that is not over.
    loss: Option<Loss>,
    issued: u64,
    /// Times of answers to reads, and their latencies.
    log: Option<ReadLog>,
    /// Step at which its host was connected again last.
    reconnected: StepNumber,
    /// Time until which it asks for nothing.
    rests_until: Time,
    now: Time,
    closing: bool,
    /// It closes its channel once all is answered, although it is not judged.
    leaves: bool,
    /// Its thread has died, and others may have some of its requests.
    outlived: bool,
}

/// The time and the latency of each answered read.
pub type ReadLog = Rc<RefCell<Vec<(Time, Nanos)>>>;

impl Client {
    /// Makes the application as it is described, on a channel of a device.
    #[must_use]
    pub fn new(
        channel: Box<dyn Channel>,
        geometry: Geometry,
        capabilities: Capabilities,
        work: Application,
    ) -> Self {
        Self::by(Way::Any(channel), geometry, capabilities, work)
    }

    /// Makes the application as it is described, on its way.
    pub(crate) fn by(
        channel: Way,
        geometry: Geometry,
        capabilities: Capabilities,
        mut work: Application,
    ) -> Self {
        let reopening = match &channel {
            Way::Remote(_) => Reopening::split(&mut work),
            Way::Any(_) => None,
        };
        if work.syncs {
            work.workload.depth = work.workload.depth.min(SYNCS_DEPTH);
        }
        if work.splits {
            work.workload.depth = 1;
        }
        let geometry = Geometry {
            blocks: geometry.blocks.min(BLOCKS_MAX),
            ..geometry
        };
        let oracle = work.oracle.clone().unwrap_or_else(|| {
            let blocks = usize::try_from(geometry.blocks).expect("a small device");
            Rc::new(RefCell::new(Oracle::new(blocks)))
        });
        let seed = work.seed;
        let most = usize::try_from(capabilities.extents_max).unwrap_or(usize::MAX);
        let extents = (work.extents && most > 1)
            .then(|| (Prng::from_seed(seed ^ 0xE87E), most.min(EXTENTS_AT_ONCE)));
        // What was lost before its channel was opened is told to the channels of that time.
        let told = oracle.borrow_mut().mark();
        Self {
            name: format!("{seed:016x}"),
            channel,
            geometry,
            transfer_blocks: (capabilities.max_transfer_bytes / geometry.block_bytes).into(),
            told: (0, told),
            oracle,
            medium: None,
            prng: Prng::from_seed(seed),
            in_flight: Slab::with_capacity(work.workload.depth),
            refused: VecDeque::new(),
            refused_extents: None,
            extents,
            gives_up: work.gives_up.then(|| GivingUp::new(seed)),
            splits: work.splits.then(|| Splitting::new(seed)),
            reopening,
            loss: None,
            issued: 0,
            log: None,
            reconnected: 0,
            rests_until: Time::ZERO,
            now: Time::ZERO,
            closing: false,
            leaves: false,
            outlived: false,
            work,
        }
    }

    /// Returns true if an operation of this namespace is the application's.
    pub(crate) fn owns(&self, op_namespace: OpNamespace) -> bool {
        self.channel.as_ref().owns(op_namespace)
    }

    /// The target of its host that it works at.
    pub(crate) const fn target(&self) -> usize {
        self.work.target
    }

    /// The same application; each of its reads is noted in `log`.
    #[must_use]
    pub(crate) fn noted_in(mut self, log: Option<ReadLog>) -> Self {
        self.log = log;
        self
    }

    /// The same application on a device with a cache.
    #[must_use]
    pub(crate) fn over(mut self, medium: Option<Medium>) -> Self {
        self.medium = medium;
        self
    }

    /// Its host has a new association. What is under way was lost with the one before, or never
    /// sent.
    pub(crate) fn is_reconnected(&mut self) {
        self.reconnected = self.oracle.borrow_mut().mark();
    }

    /// A random range that is not being written, or nothing.
    fn range(&mut self, operation: Operation) -> Option<Range<usize>> {
        let write = operation.is_write();
        if write
            && self.work.mix == Mix::Everything
            && let Some(blocks) = self.written_anew()
        {
            let most = usize::try_from(self.transfer_blocks).unwrap_or(usize::MAX);
            let end = blocks.end.min(blocks.start.saturating_add(most));
            return Some(blocks.start..end);
        }
        let large = self.prng.chance(1, 16);
        let mut limit = if large {
            self.work.workload.blocks_large
        } else {
            self.work.workload.blocks_max
        };
        if operation.has_data() {
            limit = limit.min(self.transfer_blocks);
        }
        let count = 1 + self.prng.below(limit.min(self.geometry.blocks));
        let start = self.prng.below(self.geometry.blocks - count + 1);
        let index = |n: u64| usize::try_from(n).expect("a small device");
        let range = index(start)..index(start + count);
        let oracle = self.oracle.borrow();
        let free = self.work.mix == Mix::Everything
            || !write
            || !range.clone().any(|block| oracle.is_writing(block));
        free.then_some(range)
    }

    /// Memory for a request: the channel's own, or a buffer of the core.
    fn memory(&mut self, bytes: usize, cx: &Context<'_>) -> Option<IoSlice> {
        let channels = self.prng.chance(1, 2);
        let own = channels
            .then(|| self.channel.as_mut().memory(bytes))
            .flatten();
        own.or_else(|| {
            let buffer = cx.driver.buffers().take(bytes)?;
            Some(IoSlice::from_buffer(buffer, bytes))
        })
    }

    fn next_request(&mut self, cx: &Context<'_>) -> Option<Request> {
        let (operation, range) = match &mut self.splits {
            Some(splits) => splits.draw(self.geometry, self.transfer_blocks),
            None => self.draw()?,
        };
        let bytes = range.len() * self.geometry.block_bytes as usize;
        let data = if operation.has_data() {
            Some(self.memory(bytes, cx)?)
        } else {
            None
        };
        let forced = self.prng.chance(1, 8);
        let operation = match operation {
            Operation::Write { .. } => Operation::Write { durable: forced },
            Operation::WriteZeroes { deallocate, .. } => Operation::WriteZeroes {
                deallocate,
                durable: forced,
            },
            other => other,
        };
        let kind = self.begin(operation, &range);
        let lba = Lba(range.start as u64);
        let blocks = u32::try_from(range.len()).expect("a small device");
        let data = data.map(|data| self.fill(data, range.clone(), &kind));
        let (now, name) = (cx.now, &self.name);
        say(|| format!("{now:?}: {name} asks {operation:?} {range:?} {kind:?}"));
        let key = self.note(Some(operation), range, kind, cx.now, None);
        Some(Request {
            tag: key.tag(),
            operation,
            lba,
            blocks,
            data,
        })
    }

    fn note(
        &mut self,
        operation: Option<Operation>,
        range: Range<usize>,
        kind: RequestKind,
        since: Time,
        together: Option<u64>,
    ) -> SlabKey {
        let in_flight = InFlight {
            together,
            given_up: false,
            since,
            range,
            kind,
            operation,
            asked: self.work.law.as_ref().map(Law::moment),
        };
        let noted = self.in_flight.insert(in_flight);
        noted.expect("the depth was checked")
    }

    /// Tells the oracle that a request begins. Returns what the answer is judged by.
    fn begin(&self, operation: Operation, range: &Range<usize>) -> RequestKind {
        let mut oracle = self.oracle.borrow_mut();
        match operation {
            Operation::Read => RequestKind::Read(oracle.begin_read()),
            Operation::Verify => RequestKind::Verify,
            Operation::Flush => {
                let known = self.medium.as_ref().map(|_| oracle.settled());
                RequestKind::Flush(oracle.begin_flush(), known.unwrap_or_default())
            }
            Operation::Compare => {
                let began = oracle.begin_read();
                let last = |block| oracle.allowed(block, began).next_back().unwrap_or(0);
                let mut expected: Vec<_> = range.clone().map(last).collect();
                if began.is_multiple_of(4) {
                    // A version that was never written is not there, whichever block it is.
                    let odd = usize::try_from(began / 4).expect("a few steps") % range.len();
                    expected[odd] = Version::MAX;
                }
                RequestKind::Compare(began, expected)
            }
            Operation::Write { durable } => RequestKind::Write {
                version: oracle.begin_write(range.clone(), oracle::Content::Version),
                durable,
            },
            Operation::WriteZeroes { durable, .. } => RequestKind::Write {
                version: oracle.begin_write(range.clone(), oracle::Content::Zeroes),
                durable,
            },
            Operation::Deallocate => RequestKind::Write {
                version: oracle.begin_write(range.clone(), oracle::Content::Zeroes),
                durable: false,
            },
        }
    }

    fn issue(&mut self, cx: &mut Context<'_>) {
        while let Some(request) = self.refused.pop_front() {
            if !self.submit(request, cx) {
                return;
            }
        }
        if let Some(command) = self.refused_extents.take()
            && !self.submit_extents(command, cx)
        {
            return;
        }
        if self
            .work
            .rest
            .is_some_and(|(after, _)| after <= self.issued)
            && let Some((_, rest)) = self.work.rest.take()
        {
            self.rests_until = cx.now + rest;
        }
        let mut attempts = 0;
        while self.issued < self.work.workload.requests
            && !self.in_flight.is_full()
            && attempts < 64
        {
            if self.rests_until > cx.now {
                return;
            }
            attempts += 1;
            if let Some(command) = self.next_extents(cx) {
                self.issued += command.extents.len() as u64;
                if !self.submit_extents(command, cx) {
                    return;
                }
                continue;
            }
            if let Some(request) = self.next_request(cx) {
                self.issued += 1;
                if !self.submit(request, cx) {
                    return;
                }
            }
        }
    }

    /// Returns true if the application has asked for everything and has every answer.
    fn all_answered(&self) -> bool {
        self.issued == self.work.workload.requests && self.in_flight.is_empty()
    }
}

impl Service for Client {
    type Message = ();

    fn apply(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        assert!(
            self.channel.as_ref().owns(completion.key.op_namespace),
            "only the channel has operations"
        );
        self.channel.as_mut().complete(completion, cx);
    }

    fn message(&mut self, (): (), _cx: &mut Context<'_>) {}

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.now = cx.now;
        self.channel.as_mut().tick(cx);
        while let Some(completion) = self.channel.as_mut().reap() {
            self.answered(completion, true);
        }
        while let Some(command) = self.channel.as_mut().reap_extents() {
            self.answered_extents(command, true);
        }
        self.issue(cx);
        self.cancel_some(cx);
        self.channel.as_mut().kick(cx);
        let ends = self.leaves || self.work.judged && !self.lacks_lane();
        if self.all_answered() && !self.closing && ends {
            self.closing = true;
            self.channel.as_mut().close(cx);
        }
    }

    fn deadline(&self) -> Time {
        let asks = self.issued < self.work.workload.requests;
        let idle = self.in_flight.is_empty() && !self.closing && asks;
        // With nothing in flight, a range that was refused for being written is tried again.
        if self.rests_until > self.now {
            self.rests_until.min(self.channel.as_ref().deadline())
        } else if idle {
            self.now + RETRY
        } else {
            self.channel.as_ref().deadline()
        }
    }

    fn finished(&self) -> bool {
        self.closing && self.channel.as_ref().closed()
    }
}
