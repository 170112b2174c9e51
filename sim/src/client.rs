//! An application in the simulated world: random requests to a device, with every answer checked.

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
    /// Rules in force when the request was issued.
    asked: Option<Moment>,
    /// Tag of the command over several extents that this request belongs to; if one of its requests
    /// fails, all fail.
    together: Option<u64>,
    /// It has a time limit, or was cancelled.
    given_up: bool,
}

#[derive(Debug)]
enum RequestKind {
    Read(StepNumber),
    /// With the expected version of each block.
    Compare(StepNumber, Vec<Version>),
    Verify,
    /// Any operation that changes its blocks.
    Write {
        version: Version,
        durable: bool,
    },
    /// With the settled version of each block, which must be on the medium when the Flush
    /// completes.
    Flush(StepNumber, Vec<Version>),
}

/// Answers after which applications that share a connection with this one have adapted to it.
pub const WARM_UP: u64 = 16;

/// Maximum blocks that an application uses: a target that violates the protocol may report any
/// size, and each block takes memory here.
const BLOCKS_MAX: u64 = 1 << 16;

/// Maximum outstanding requests of an application for which every second request is a Flush.
const SYNCS_DEPTH: usize = 2;

/// Retry interval of an application that has nothing outstanding and found no block without a write
/// in flight.
const RETRY: Nanos = Nanos::from_micros(20);

/// The application, as the service of a core.
#[derive(Debug)]
pub struct Client {
    /// Name in a trace.
    name: String,
    channel: Way,
    /// Its description, reduced to the work of this channel.
    work: Application,
    geometry: Geometry,
    /// Maximum transfer of the device, in blocks.
    transfer_blocks: u64,
    /// Number of losses of unflushed writes that a Flush has reported, and the step of the last
    /// report.
    told: (usize, StepNumber),
    oracle: Rc<RefCell<Oracle>>,
    /// Content of the device that survives a power loss; `None` without a volatile cache.
    medium: Option<Medium>,
    prng: Prng,
    in_flight: Slab<InFlight>,
    /// Requests that the channel refused because it was full.
    refused: VecDeque<Request>,
    /// Command over extents that the channel refused because it was full.
    refused_extents: Option<Extents>,
    /// Draws commands over extents, with their maximum number; `None` without such commands.
    extents: Option<(Prng, usize)>,
    /// Draws the requests to time out or cancel; `None` if there are none.
    gives_up: Option<GivingUp>,
    /// Draws writes that exceed one command; `None` if it draws all kinds of requests.
    splits: Option<Splitting>,
    /// Work of the next channel, after this channel is closed.
    reopening: Option<Reopening>,
    /// The loss of the connection that lasts now.
    loss: Option<Loss>,
    issued: u64,
    /// Times of answers to reads, and their latencies.
    log: Option<ReadLog>,
    /// Step at which its host last reconnected.
    reconnected: StepNumber,
    /// Time until which it issues no requests.
    rests_until: Time,
    now: Time,
    closing: bool,
    /// It closes its channel after the last answer even though it is not checked.
    leaves: bool,
    /// Its thread has died, and other threads may hold some of its requests.
    outlived: bool,
}

/// The time and the latency of each answered read.
pub type ReadLog = Rc<RefCell<Vec<(Time, Nanos)>>>;

impl Client {
    /// Creates the application `work` on a channel of a device.
    #[must_use]
    pub fn new(
        channel: Box<dyn Channel>,
        geometry: Geometry,
        capabilities: Capabilities,
        work: Application,
    ) -> Self {
        Self::by(Way::Any(channel), geometry, capabilities, work)
    }

    /// Creates the application `work` on an open channel or submitter.
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
        // Losses before this channel was opened are reported to the channels of that time.
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

    /// Index of its target among the targets of its host.
    pub(crate) const fn target(&self) -> usize {
        self.work.target
    }

    /// Logs each of its reads in `log`.
    #[must_use]
    pub(crate) fn noted_in(mut self, log: Option<ReadLog>) -> Self {
        self.log = log;
        self
    }

    /// Sets the content of a device with a volatile cache.
    #[must_use]
    pub(crate) fn over(mut self, medium: Option<Medium>) -> Self {
        self.medium = medium;
        self
    }

    /// Notes that its host has a new association. Outstanding requests were lost with the previous
    /// association, or never sent.
    pub(crate) fn is_reconnected(&mut self) {
        self.reconnected = self.oracle.borrow_mut().mark();
    }

    /// Draws a range without a write in flight; `None` if there is none.
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

    /// Memory for a request: from the channel, or a buffer of the core.
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

    /// Reports the start of a request to the oracle. Returns the data by which the answer is
    /// checked.
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
                    // Only one block has a version that was never written.
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

    /// Returns true if all requests were issued and answered.
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
        // Nothing is outstanding: retries a range that was refused because a write to it was in
        // flight.
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
