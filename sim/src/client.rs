//! An application in the simulated world: random requests to a device, every answer checked.

use crate::cache::Medium;
use crate::host_core::Application;
use crate::oracle::{self, Oracle, Step, Version};
use crate::rights::{Law, Moment};
use crate::trace::say;
use base::units::Lba;
use base::{Nanos, Prng, Slab, SlabKey, Time};
use block::{BlockError, Capabilities, Channel, Completion, Geometry, Operation, Request, Submit};
use host::RemoteChannel;
use reactor::{Context, IoSlice, OpNamespace, Service};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

/// The workload of an application.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Requests in all.
    pub requests: u64,
    /// Requests under way at once.
    pub depth: usize,
    /// Blocks of most requests, at most.
    pub blocks_max: u64,
    /// Blocks of one request in sixteen, at most: large enough for several transfers.
    pub blocks_large: u64,
}

/// The results of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that were answered.
    pub answered: u64,
    /// Of these, with an error.
    pub failed: u64,
    /// Of these, because they took too long.
    pub timed_out: u64,
    /// Requests with data that were answered, in bytes.
    pub bytes: u64,
    /// The longest that a request took, after [`WARM_UP`] others.
    pub slowest: Nanos,
    /// A fingerprint of all answers in order: equal runs have equal ones.
    pub fingerprint: u64,
    /// An application without a judge was told that its namespace is gone, and asks no more.
    pub gave_up: bool,
}

#[derive(Debug)]
struct InFlight {
    since: Time,
    range: Range<usize>,
    kind: Kind,
    operation: Option<Operation>,
    /// Time of the request, by the rules that it is held to.
    asked: Option<Moment>,
}

#[derive(Debug)]
enum Kind {
    Read(Step),
    /// With the version that is expected in each block.
    Compare(Step, Vec<Version>),
    Verify,
    /// Whatever puts something into its blocks.
    Write {
        version: Version,
        durable: bool,
    },
    /// Orders what its channel was asked before and after.
    Barrier,
    /// By then settled writes are on the medium when it is answered, block by block.
    Flush(Step, Vec<Version>),
}

/// Which requests an application makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mix {
    /// Reads, writes that never overlap with others, and now and then a flush.
    #[default]
    Plain,
    /// Every operation there is, on ranges that others may be writing.
    Everything,
}

/// Errors that an application must be ready for, because something provokes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Any: the owner of the application looks at its report.
    Any,
    /// These, and no other.
    Only {
        /// The device fails requests.
        device: bool,
        /// The namespace may go for good.
        gone: bool,
        /// The host may give requests up.
        late: bool,
        /// A lost connection may be taken for a loss of what was not flushed.
        forgets: bool,
        /// True if permissions change, and sizes of volumes.
        changes: bool,
    },
}

impl Tolerance {
    /// Returns the same for an application with a volume that stays, or does not.
    #[must_use]
    pub(crate) fn of_volume(mut self, may_go: bool) -> Self {
        if let Self::Only { gone, .. } = &mut self {
            *gone &= may_go;
        }
        self
    }

    fn allows(self, error: BlockError) -> bool {
        let Self::Only {
            device,
            gone,
            late,
            changes,
            ..
        } = self
        else {
            return true;
        };
        match error {
            BlockError::ReadFailure | BlockError::WriteFailure => device,
            BlockError::Gone => gone,
            BlockError::TimedOut | BlockError::Aborted => late,
            BlockError::OutOfRange | BlockError::Denied => changes,
            _ => false,
        }
    }
}

/// Answers of an application after which those it shares its way with have noticed it.
pub const WARM_UP: u64 = 16;

/// An application works on the first so many blocks: a target that lies may say that a namespace
/// has any number of them, and each takes memory here.
const BLOCKS_MAX: u64 = 1 << 16;

/// Interval in which an application with nothing under way looks again for blocks without a write.
const RETRY: Nanos = Nanos::from_micros(20);

/// The way in which an application's requests leave.
#[derive(Debug)]
pub(crate) enum Way {
    /// By any channel.
    Any(Box<dyn Channel>),
    /// By one of a remote namespace, which knows barriers.
    Remote(Box<RemoteChannel>),
}

impl Way {
    fn as_mut(&mut self) -> &mut dyn Channel {
        match self {
            Self::Any(channel) => &mut **channel,
            Self::Remote(channel) => &mut **channel,
        }
    }

    fn as_ref(&self) -> &dyn Channel {
        match self {
            Self::Any(channel) => &**channel,
            Self::Remote(channel) => &**channel,
        }
    }
}

/// The application, as the service of a core.
#[derive(Debug)]
pub struct Client {
    /// Name in a trace.
    name: String,
    channel: Way,
    /// Which channel it is, and how many barriers it was given.
    order: (u64, u64),
    /// Rules that requests are held to, besides their content.
    law: Option<Law>,
    geometry: Geometry,
    /// The largest transfer of the device.
    transfer_blocks: u64,
    workload: Workload,
    mix: Mix,
    tolerance: Tolerance,
    /// The target of its host that it works at.
    target: usize,
    /// The host that it runs on.
    host: u64,
    /// Losses of what was not flushed that a Flush has reported, and when the last one did.
    told: (u64, Step),
    judged: bool,
    oracle: Rc<RefCell<Oracle>>,
    /// Content that the device would keep without power, if it has a cache.
    medium: Option<Medium>,
    prng: Prng,
    in_flight: Slab<InFlight>,
    /// Requests that the channel had no room for.
    refused: VecDeque<Request>,
    issued: u64,
    report: Rc<RefCell<Report>>,
    /// Times of answers to reads, and their latencies.
    log: Option<ReadLog>,
    /// Step at which its host was connected again last.
    reconnected: Step,
    /// After how many requests it rests, and for how long; then until when it does.
    rest: Option<(u64, Nanos)>,
    rests_until: Time,
    now: Time,
    closing: bool,
}

/// The time and the latency of each answered read.
pub type ReadLog = Rc<RefCell<Vec<(Time, Nanos)>>>;

impl Client {
    /// Makes an application on a freshly made device of zeroes. It writes its results to `report`
    /// as it goes.
    #[must_use]
    pub fn new(
        channel: Box<dyn Channel>,
        geometry: Geometry,
        workload: Workload,
        seed: u64,
        report: Rc<RefCell<Report>>,
    ) -> Self {
        Self::by(Way::Any(channel), geometry, workload, seed, report)
    }

    fn by(
        channel: Way,
        geometry: Geometry,
        workload: Workload,
        seed: u64,
        report: Rc<RefCell<Report>>,
    ) -> Self {
        let geometry = Geometry {
            blocks: geometry.blocks.min(BLOCKS_MAX),
            ..geometry
        };
        let blocks = usize::try_from(geometry.blocks).expect("a small device");
        Self {
            name: format!("{seed:016x}"),
            channel,
            order: (seed | 1, 0),
            law: None,
            geometry,
            transfer_blocks: u64::MAX,
            workload,
            mix: Mix::default(),
            tolerance: Tolerance::Any,
            target: 0,
            host: 1,
            told: (0, 0),
            judged: true,
            oracle: Rc::new(RefCell::new(Oracle::new(blocks))),
            medium: None,
            prng: Prng::from_seed(seed),
            in_flight: Slab::with_capacity(workload.depth),
            refused: VecDeque::new(),
            issued: 0,
            report,
            log: None,
            reconnected: 0,
            rest: None,
            rests_until: Time::ZERO,
            now: Time::ZERO,
            closing: false,
        }
    }

    /// The application as it is described, on its channel.
    pub(crate) fn of(
        channel: Way,
        geometry: Geometry,
        capabilities: Capabilities,
        application: Application,
    ) -> Self {
        let Application {
            workload,
            seed,
            mix,
            tolerance,
            oracle,
            host,
            judged,
            rest,
            report,
            law,
            target,
            ..
        } = application;
        let mut client = Self::by(channel, geometry, workload, seed, report);
        let transfer_blocks = capabilities.max_transfer_bytes / geometry.block_bytes;
        client.transfer_blocks = u64::from(transfer_blocks);
        client.law = law;
        client.target = target;
        client.judged = judged;
        client.rest = rest;
        client.host = host;
        if let Some(oracle) = oracle {
            client.oracle = oracle;
        }
        // What was lost before its channel was opened is told to the channels of that time.
        client.told.1 = client.oracle.borrow_mut().mark();
        client.asking(mix, tolerance)
    }

    /// Returns true if an operation of this namespace is the application's.
    pub(crate) fn owns(&self, op_namespace: OpNamespace) -> bool {
        self.channel.as_ref().owns(op_namespace)
    }

    /// The target of its host that it works at.
    pub(crate) const fn target(&self) -> usize {
        self.target
    }

    /// The same application, which shares its device with others: so they share what they know.
    #[must_use]
    pub fn beside(mut self, oracle: Rc<RefCell<Oracle>>) -> Self {
        self.oracle = oracle;
        self
    }

    /// The same application, which makes these requests, and panics at any other error.
    #[must_use]
    pub fn asking(mut self, mix: Mix, tolerance: Tolerance) -> Self {
        self.mix = mix;
        self.tolerance = tolerance;
        self
    }

    /// The same application; each of its reads is noted in `log`.
    #[must_use]
    pub fn noted_in(mut self, log: Option<ReadLog>) -> Self {
        self.log = log;
        self
    }

    /// The same application on a device with a cache.
    #[must_use]
    pub fn over(mut self, medium: Option<Medium>) -> Self {
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
        let large = self.prng.chance(1, 16);
        let mut limit = if large {
            self.workload.blocks_large
        } else {
            self.workload.blocks_max
        };
        if operation.has_data() {
            limit = limit.min(self.transfer_blocks);
        }
        let count = 1 + self.prng.below(limit.min(self.geometry.blocks));
        let start = self.prng.below(self.geometry.blocks - count + 1);
        let index = |n: u64| usize::try_from(n).expect("a small device");
        let range = index(start)..index(start + count);
        let oracle = self.oracle.borrow();
        let free = self.mix == Mix::Everything
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
            // The last ones are for its host, which could not connect again without.
            let mut left = cx.driver.buffers().usage();
            let buffer = left
                .all(|(_, free, _)| free > 1)
                .then(|| cx.driver.buffers().take(bytes))??;
            Some(IoSlice::from_buffer(buffer, bytes))
        })
    }

    /// Draws the next operation.
    fn operation(&mut self) -> Operation {
        const WRITE: Operation = Operation::Write { durable: false };
        let roll = self.prng.below(100);
        match (self.mix, roll) {
            (Mix::Plain, 0..50) | (Mix::Everything, 0..38) => Operation::Read,
            (Mix::Plain, 50..97) | (Mix::Everything, 38..76) => WRITE,
            (Mix::Everything, 76..81) => Operation::WriteZeroes {
                deallocate: roll.is_multiple_of(2),
                durable: false,
            },
            (Mix::Everything, 81..85) => Operation::Deallocate,
            (Mix::Everything, 85..92) => Operation::Compare,
            (Mix::Everything, 92..95) => Operation::Verify,
            _ => Operation::Flush,
        }
    }

    fn next_request(&mut self, cx: &Context<'_>) -> Option<Request> {
        let operation = self.operation();
        let range = match operation {
            Operation::Flush => 0..0,
            _ => self.range(operation)?,
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
        let key = self.note(Some(operation), range, kind, cx.now);
        Some(Request {
            tag: tag(key),
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
        kind: Kind,
        since: Time,
    ) -> SlabKey {
        let in_flight = InFlight {
            since,
            range,
            kind,
            operation,
            asked: self.law.as_ref().map(Law::moment),
        };
        let noted = self.in_flight.insert(in_flight);
        noted.expect("the depth was checked")
    }

    /// Orders what was asked before and what comes after, where the way knows how. Returns whether
    /// a barrier is under way.
    fn order(&mut self, cx: &mut Context<'_>) -> bool {
        if !matches!(self.channel, Way::Remote(_)) {
            return false;
        }
        let key = self.note(None, 0..0, Kind::Barrier, cx.now);
        let Way::Remote(channel) = &mut self.channel else {
            return false;
        };
        if channel.barrier(tag(key), cx).is_err() {
            self.in_flight.remove(key);
            return false;
        }
        self.order.1 += 1;
        true
    }

    /// Tells the oracle that a request begins. Returns what the answer is judged by.
    fn begin(&self, operation: Operation, range: &Range<usize>) -> Kind {
        let mut oracle = self.oracle.borrow_mut();
        match operation {
            Operation::Read => Kind::Read(oracle.begin_read()),
            Operation::Verify => Kind::Verify,
            Operation::Flush => {
                let known = self.medium.as_ref().map(|_| oracle.settled());
                Kind::Flush(oracle.begin_flush(), known.unwrap_or_default())
            }
            Operation::Compare => {
                let began = oracle.begin_read();
                let last = |block| oracle.allowed(block, began).last().unwrap_or(0);
                let mut expected: Vec<_> = range.clone().map(last).collect();
                if began.is_multiple_of(4) {
                    // A version that was never written is not there, whichever block it is.
                    let odd = usize::try_from(began / 4).expect("a few steps") % range.len();
                    expected[odd] = Version::MAX;
                }
                Kind::Compare(began, expected)
            }
            Operation::Write { durable } => Kind::Write {
                version: oracle.begin_ordered(range.clone(), oracle::Content::Version, self.order),
                durable,
            },
            Operation::WriteZeroes { durable, .. } => Kind::Write {
                version: oracle.begin_ordered(range.clone(), oracle::Content::Zeroes, self.order),
                durable,
            },
            Operation::Deallocate => Kind::Write {
                version: oracle.begin_ordered(range.clone(), oracle::Content::Zeroes, self.order),
                durable: false,
            },
        }
    }

    /// A request's content: the version and the address of each block, all over it.
    fn fill(&self, mut data: IoSlice, range: Range<usize>, kind: &Kind) -> IoSlice {
        let size = self.geometry.block_bytes as usize;
        for (index, block) in range.enumerate() {
            let content = match kind {
                Kind::Write { version, .. } => content(block, *version, size),
                Kind::Compare(_, expected) => content(block, expected[index], size),
                _ => vec![0xEE; size],
            };
            data.copy_in(index * size, &content);
        }
        data
    }

    /// Takes an answer. `sent`: a command of the request may have left the host.
    fn answered(&mut self, completion: Completion, sent: bool) {
        let key = slab_key(completion.tag);
        let request = self
            .in_flight
            .remove(key)
            .expect("each request is answered once");
        say(|| {
            let (range, kind) = (&request.range, &request.kind);
            let (now, name, result) = (self.now, &self.name, completion.result);
            format!("{now:?}: {name} is answered {result:?} to {range:?} {kind:?}")
        });
        let mut report = self.report.borrow_mut();
        report.answered += 1;
        report.failed += u64::from(is_failure(completion.result));
        report.timed_out += u64::from(completion.result == Err(BlockError::TimedOut));
        report.bytes += completion.data.as_ref().map_or(0, IoSlice::len) as u64;
        if report.answered > WARM_UP {
            report.slowest = report.slowest.max(self.now.since(request.since));
        }
        let mix = completion.tag ^ u64::from(completion.result.is_ok()) << 63;
        report.fingerprint = (report.fingerprint ^ mix).wrapping_mul(0x0100_0000_01B3);
        drop(report);
        if self.judged {
            self.judge(request, completion, sent);
        } else if completion.result == Err(BlockError::Gone) {
            // A lie told it so; asking on and on would bring nothing else.
            self.workload.requests = self.issued;
            self.report.borrow_mut().gave_up = true;
        }
    }

    /// Asserts that the answer is one that the device may give.
    fn judge(&mut self, request: InFlight, completion: Completion, sent: bool) {
        let range = request.range;
        let answer = completion.result;
        let mut untouched = Vec::new();
        if let (Some(law), Some(operation), Some(asked)) =
            (&self.law, request.operation, request.asked)
        {
            untouched = law.judge(operation, &range, asked, answer);
        }
        if let (Kind::Barrier, Err(BlockError::TimedOut)) = (&request.kind, answer) {
            // The target has no patience for ever; the channel keeps its own order all the same.
            return;
        }
        let differs =
            matches!(request.kind, Kind::Compare(..)) && answer == Err(BlockError::CompareFailure);
        if let (Kind::Flush(began, _), Err(BlockError::CacheLost)) = (&request.kind, answer) {
            return self.told_of_loss(*began);
        }
        if let Err(error) = answer
            && !differs
        {
            assert!(
                self.tolerance.allows(error),
                "{:?} of blocks {range:?} failed: {error}, and nothing provokes that",
                request.kind
            );
        }
        match request.kind {
            Kind::Flush(began, settled) if answer.is_ok() => {
                self.check_medium(settled.into_iter().enumerate());
                let (_, told) = self.told;
                self.oracle.borrow_mut().flushed(began, self.host, told);
            }
            Kind::Write { version, durable } if answer.is_ok() => {
                self.check_order(&range, version);
                if durable {
                    self.check_medium(range.clone().map(|block| (block, version)));
                }
                let mut oracle = self.oracle.borrow_mut();
                oracle.acknowledge(range, version, durable, self.host);
            }
            // A command of it may still be on its way to the target, where the namespace comes back:
            // no other host is kept from its blocks (docs/decisions/0004-replay.md).
            Kind::Write { .. } if sent && answer == Err(BlockError::Gone) => {}
            Kind::Write { version, .. } => {
                let mut oracle = self.oracle.borrow_mut();
                oracle.fail(range, version);
                let denied = answer == Err(BlockError::Denied);
                for block in untouched.into_iter().filter(|_| denied) {
                    oracle.never(block..block + 1, version);
                }
            }
            Kind::Read(began) => {
                if answer.is_ok() {
                    let data = completion.data.expect("a read's data comes back");
                    self.check_read(&range, began, request.since, &data);
                }
                self.oracle.borrow_mut().end_read(began);
            }
            Kind::Compare(began, expected) => {
                if answer.is_ok() || differs {
                    self.check_compared(&range, began, &expected, differs);
                }
                self.oracle.borrow_mut().end_read(began);
            }
            Kind::Verify | Kind::Flush(..) | Kind::Barrier => {}
        }
    }

    /// Checks what a read has returned, and notes how long it took.
    fn check_read(&mut self, range: &Range<usize>, began: Step, since: Time, data: &IoSlice) {
        if let Some(log) = &self.log {
            let took = self.now.since(since);
            log.borrow_mut().push((self.now, took));
        }
        let mut bytes = vec![0; data.len()];
        data.copy_out(0, &mut bytes);
        self.check(range, began, &bytes);
    }

    /// A Flush that began then failed because what was not flushed may be lost. Every loss is told
    /// once; whatever was asked for before that is told too.
    fn told_of_loss(&mut self, began: Step) {
        let mut oracle = self.oracle.borrow_mut();
        let (losses, told) = self.told;
        let forgets = match self.tolerance {
            Tolerance::Any => true,
            Tolerance::Only { forgets, .. } => forgets,
        };
        // A lane of a switchboard tells the next Flush by it, and there are several.
        let again = matches!(self.channel, Way::Any(_)) && losses > 0;
        assert!(
            forgets || again || oracle.losses() > losses || began < told,
            "a Flush says that writes may be lost, and nothing provokes that"
        );
        self.told = (oracle.losses(), oracle.begin_flush());
    }

    /// A comparison that holds found what was expected; one that does not found something else
    /// somewhere.
    fn check_compared(
        &self,
        range: &Range<usize>,
        began: Step,
        expected: &[Version],
        differs: bool,
    ) {
        let oracle = self.oracle.borrow();
        let mut blocks = range.clone().zip(expected);
        let right = if differs {
            blocks.any(|(block, &expected)| {
                let mut allowed = oracle.allowed(block, began);
                allowed.any(|found| found != expected)
            })
        } else {
            blocks.all(|(block, &expected)| oracle.allows(block, began, expected))
        };
        assert!(
            right,
            "a comparison of blocks {range:?} with versions {expected:?} said differs={differs}, \
             which it could not have found"
        );
    }

    /// Asserts that a write did not pass an older one that was lost with a connection. The older
    /// one is known to have been sent on it if it was read before the host was connected again.
    fn check_order(&self, range: &Range<usize>, version: Version) {
        if matches!(self.channel, Way::Any(_)) {
            // Other threads connect again, and when they did is not known here.
            return;
        }
        let oracle = self.oracle.borrow();
        for (_, other) in self.in_flight.iter() {
            let Kind::Write { version: older, .. } = other.kind else {
                continue;
            };
            for block in range.start.max(other.range.start)..range.end.min(other.range.end) {
                assert!(
                    !oracle.overtakes(block, version, older, self.reconnected),
                    "version {version} of block {block} was acknowledged before version {older}, \
                     which was lost with a connection"
                );
            }
        }
    }

    /// Asserts that what was acknowledged before a Flush, or written with FUA, is on the medium.
    fn check_medium(&self, promised: impl Iterator<Item = (usize, Version)>) {
        let Some(medium) = &self.medium else { return };
        for (block, promised) in promised {
            let durable = medium.durable(block);
            assert!(
                durable >= promised,
                "block {block} was promised to be on the medium as version {promised}; there is \
                 {durable}"
            );
        }
    }

    fn check(&mut self, range: &Range<usize>, began: Step, bytes: &[u8]) {
        let size = self.geometry.block_bytes as usize;
        for (block, found) in range.clone().zip(bytes.chunks(size)) {
            let version = version_of(block, found);
            let oracle = self.oracle.borrow();
            assert!(
                oracle.allows(block, began, version),
                "block {block} holds version {version}; allowed were {:?}",
                oracle.allowed(block, began).collect::<Vec<_>>()
            );
            drop(oracle);
            self.oracle.borrow_mut().note_read(block, version);
            let mut report = self.report.borrow_mut();
            report.fingerprint = (report.fingerprint ^ version).wrapping_mul(0x0100_0000_01B3);
        }
    }

    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> bool {
        match self.channel.as_mut().submit(request, cx) {
            Submit::Done(completion) => self.answered(completion, false),
            Submit::Queued => {}
            Submit::Busy(request) => {
                self.refused.push_front(request);
                return false;
            }
        }
        true
    }

    fn issue(&mut self, cx: &mut Context<'_>) {
        while let Some(request) = self.refused.pop_front() {
            if !self.submit(request, cx) {
                return;
            }
        }
        if self.rest.is_some_and(|(after, _)| after <= self.issued)
            && let Some((_, rest)) = self.rest.take()
        {
            self.rests_until = cx.now + rest;
        }
        if self.rests_until > cx.now {
            return;
        }
        let mut attempts = 0;
        while self.issued < self.workload.requests && !self.in_flight.is_full() && attempts < 64 {
            attempts += 1;
            if self.mix == Mix::Everything && self.prng.chance(1, 48) && self.order(cx) {
                self.issued += 1;
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
    #[must_use]
    pub fn all_answered(&self) -> bool {
        self.issued == self.workload.requests && self.in_flight.is_empty()
    }
}

/// A crashed application reads nothing more; what was being written may still take effect.
impl Drop for Client {
    fn drop(&mut self) {
        let Ok(mut oracle) = self.oracle.try_borrow_mut() else {
            return;
        };
        for (_, request) in self.in_flight.iter() {
            if let Kind::Read(began) | Kind::Compare(began, _) = request.kind {
                oracle.end_read(began);
            }
        }
    }
}

/// A comparison that does not hold is an answer like another.
fn is_failure(result: Result<(), BlockError>) -> bool {
    result.is_err_and(|error| error != BlockError::CompareFailure)
}

/// Which write put these bytes into a block.
///
/// # Panics
/// If none has put all of them there.
pub(crate) fn version_of(block: usize, found: &[u8]) -> Version {
    let version = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
    let expected = pattern(block, version);
    let part = found.chunks(expected.len());
    let differs = part
        .zip(0..)
        .find(|(part, _)| **part != expected[..part.len()]);
    if let Some((_, part)) = differs {
        let at = part * expected.len();
        panic!(
            "block {block} begins as version {version} has it and goes on otherwise from byte \
             {at}: {:02x?}",
            &found[at..(at + 32).min(found.len())]
        );
    }
    version
}

/// Returns what a write of `version` puts into `block`; version 0 is a block that was never
/// written.
fn content(block: usize, version: Version, size: usize) -> Vec<u8> {
    let pattern = pattern(block, version);
    let mut content = vec![0; size];
    for part in content.chunks_mut(pattern.len()) {
        part.copy_from_slice(&pattern[..part.len()]);
    }
    content
}

/// Returns the pattern that fills a block.
fn pattern(block: usize, version: Version) -> [u8; 16] {
    let mut pattern = [0; 16];
    if version > 0 {
        pattern[..8].copy_from_slice(&version.to_le_bytes());
        pattern[8..].copy_from_slice(&(block as u64).to_le_bytes());
    }
    pattern
}

const fn tag(key: SlabKey) -> u64 {
    (key.generation as u64) << 32 | key.index as u64
}

fn slab_key(tag: u64) -> SlabKey {
    let index = u32::try_from(tag & 0xFFFF_FFFF).expect("masked");
    let generation = u8::try_from(tag >> 32 & 0xFF).expect("masked");
    SlabKey { index, generation }
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
        self.issue(cx);
        self.channel.as_mut().kick(cx);
        if self.all_answered() && !self.closing && self.judged {
            self.closing = true;
            self.channel.as_mut().close(cx);
        }
    }

    fn deadline(&self) -> Time {
        let asks = self.issued < self.workload.requests;
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
