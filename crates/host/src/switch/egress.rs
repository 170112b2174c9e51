//! One dataplane thread of a switchboard: the egresses of a core, for one class or for all.
//!
//! Takes requests from its ingress, earlier classes first, steers them, hands each to the egress
//! of its (class, target), and brings completions back to their submitters. An egress is a lane of
//! its controller with its own doorbell. Owned by its thread; reached by its ingress, its mailbox
//! and the load board only. Must never: block, lose a request, or answer one twice.

use super::counters::{CoreCounters, PublishedCounters};
use super::ingress::{Ingress, IngressCompletion, IngressRequest, Submitter};
use super::limits::{COUNTERS_PERIOD, ENTRIES_PER_TURN, LANE_DEPTH};
use super::request_steering::LoadTable;
use crate::association::Association;
use crate::association::namespace_state::NamespaceState;
use crate::channel::RemoteChannel;
use base::units::CoreId;
use base::{Nanos, Time};
use block::{BlockError, Capabilities, Channel, Request, Submit};
use reactor::{Completion, Context, Driver, IoSlice, Memory, RegionHandle, Service};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::knobs::Lanes;
use switch::load::CoreLoad;
use switch::{Class, Coalescer, Knobs, LatencyActivity, LatencyWatch, PerClass, RequestSteering};

/// What a dataplane core is told by its switchboard.
#[derive(Debug)]
pub struct Message(pub(super) Update);

#[derive(Debug)]
pub(super) enum Update {
    /// There is a controller with this number.
    Target(u16, Arc<Association>),
    /// A controller has a namespace with this number.
    Namespace {
        target: u16,
        namespace: u16,
        state: Arc<NamespaceState>,
        capabilities: Capabilities,
    },
    /// A submitter with this number may send requests.
    Join(u32, Arc<Submitter>),
    /// It sends none any more.
    Leave(u32),
    /// Knobs were turned.
    Knobs(Box<Knobs>),
    /// End everything.
    Close,
}

/// A place for a dataplane core on a switchboard: what it is born with.
#[derive(Debug)]
pub struct DataplaneConfig {
    pub(super) id: CoreId,
    /// The core's number on the switchboard.
    pub(super) core: usize,
    /// The classes that it serves, earlier ones first.
    pub(super) classes: Vec<Class>,
    /// The ingress queues of every core: those of this one, and where steered requests go.
    pub(super) ingresses: Arc<Vec<PerClass<Arc<Ingress>>>>,
    pub(super) loads: Arc<LoadTable>,
    pub(super) shown: Arc<PublishedCounters>,
    pub(super) knobs: Knobs,
}

impl DataplaneConfig {
    /// The core that it is on.
    #[must_use]
    pub const fn id(&self) -> CoreId {
        self.id
    }

    /// The classes that it serves, earlier ones first.
    #[must_use]
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// What its switchboard knows of it: the core's number, the classes, the counters.
    pub(super) fn known_by(&self) -> (usize, Vec<Class>, Arc<PublishedCounters>) {
        (self.core, self.classes.clone(), Arc::clone(&self.shown))
    }

    /// The service to run there; whoever submits to it wakes `driver`.
    #[must_use]
    pub fn service(self, driver: &dyn Driver) -> EgressService {
        let service = EgressService::new(self);
        service.ingress.serve(driver.waker());
        service
    }
}

/// One (class, target).
#[derive(Debug)]
struct Egress {
    target: u16,
    class: Class,
    channel: RemoteChannel,
    /// Requests that found no room, in order; as many as submitters may have outstanding at most.
    backlog: VecDeque<IngressRequest>,
}

/// A submitter as this thread knows it.
#[derive(Debug)]
struct SubmitterState {
    submitter: Arc<Submitter>,
    memory: RegionHandle,
    /// It asks for nothing more; it is forgotten when all that it asked for is answered, because
    /// other cores may still steer requests of its here.
    leaving: bool,
    /// What it was not told of by this thread.
    held_completions: Coalescer,
}

/// The service of a dataplane core.
#[derive(Debug)]
pub struct EgressService {
    place: DataplaneConfig,
    ingress: Arc<Ingress>,
    egresses: Vec<Egress>,
    submitters: Vec<Option<SubmitterState>>,
    /// Taken from the ingress before the message that tells of its submitter: it is next.
    early: Option<IngressRequest>,
    steering: RequestSteering,
    load: CoreLoad,
    counters: CoreCounters,
    show_at: Time,
    /// The last turn left something to do.
    more: bool,
    /// What comes of `Latency` work, and how near it was in the last turn.
    latency: LatencyWatch,
    latency_activity: LatencyActivity,
    /// The egress whose class may wait that is first to send in the next turn.
    first: usize,
    /// The last turn took requests from the ingress.
    took: bool,
    /// Submitters that are told at the end of this turn of what was answered, and those that are
    /// told later.
    answered: Vec<u32>,
    held_completions: Vec<u32>,
    closing: bool,
}

impl EgressService {
    pub(super) fn new(place: DataplaneConfig) -> Self {
        let first = *place.classes.first().expect("a thread serves a class");
        let cores = place.ingresses.len();
        let seed = place.core as u64;
        Self {
            ingress: Arc::clone(&place.ingresses[place.core][first]),
            egresses: Vec::new(),
            submitters: Vec::new(),
            early: None,
            steering: RequestSteering::new(place.knobs.request_steering, cores, seed),
            load: CoreLoad::new(),
            counters: CoreCounters::default(),
            show_at: Time::ZERO,
            more: false,
            latency: LatencyWatch::new(place.knobs.sparse_latency_bytes),
            latency_activity: LatencyActivity::Absent,
            first: 0,
            took: false,
            answered: Vec::with_capacity(64),
            held_completions: Vec::with_capacity(64),
            closing: false,
            place,
        }
    }

    fn add_target(&mut self, target: u16, association: &Arc<Association>, cx: &mut Context<'_>) {
        for class in super::classes_with_lanes(self.place.knobs.lanes) {
            if !self.place.classes.contains(&class) {
                continue;
            }
            let mut channel =
                RemoteChannel::shared(Arc::clone(association), class, 1, LANE_DEPTH, cx.driver);
            let knobs = &self.place.knobs;
            channel.set_doorbell(knobs.doorbell, knobs.caravan.limits(self.latency_activity));
            self.egresses.push(Egress {
                target,
                class,
                channel,
                backlog: VecDeque::new(),
            });
        }
        // In the order in which they are served.
        self.egresses.sort_by_key(|egress| egress.class.index());
    }

    fn reconfigure(&mut self, knobs: Knobs) {
        self.place.knobs = Knobs {
            // What lanes there are was decided when they were made.
            lanes: self.place.knobs.lanes,
            ..knobs
        };
        self.steering.reconfigure(knobs.request_steering);
        self.latency.reconfigure(knobs.sparse_latency_bytes);
        self.set_doorbells();
    }

    fn set_doorbells(&mut self) {
        let knobs = &self.place.knobs;
        let limits = knobs.caravan.limits(self.latency_activity);
        for egress in &mut self.egresses {
            egress.channel.set_doorbell(knobs.doorbell, limits);
        }
    }

    /// Looks how near `Latency` work is, of all that the core has; how close its requests are is
    /// known where they pass.
    fn look_around(&mut self, now: Time) {
        let outstanding = self.place.loads.outstanding(self.place.core);
        if outstanding[Class::Latency] > 0 {
            self.latency.present(now);
        }
        let latency_activity = if self.place.knobs.prioritisation {
            self.latency.latency_activity(now)
        } else {
            LatencyActivity::Absent
        };
        if latency_activity != self.latency_activity {
            self.latency_activity = latency_activity;
            self.set_doorbells();
        }
    }

    /// Lets the egresses send: all that must not wait, and of the others, in turn, one quantum
    /// between two looks at the ingress while `Latency` work is near.
    fn depart(&mut self, cx: &mut Context<'_>) {
        let may_wait = |egress: &Egress| egress.class.properties().may_wait;
        for egress in self.egresses.iter_mut().filter(|egress| !may_wait(egress)) {
            egress.channel.pump(cx);
        }
        let count = self.egresses.len();
        let mut left = if self.latency_activity.is_active() {
            self.place.knobs.quantum_bytes
        } else {
            u64::MAX
        };
        for index in (self.first..count).chain(0..self.first.min(count)) {
            let egress = &mut self.egresses[index];
            if !may_wait(egress) {
                continue;
            }
            if left == 0 {
                self.first = index;
                self.more = true;
                break;
            }
            let bytes = egress.channel.pump(cx);
            self.latency.sent(bytes);
            left = left.saturating_sub(bytes);
        }
        for egress in &mut self.egresses {
            if egress.class.properties().steered {
                let waiting = egress.channel.waiting_for_doorbell();
                let target = usize::from(egress.target);
                let core = self.place.core;
                self.place.loads.note_waiting(core, target, waiting);
            }
        }
    }

    /// Takes requests from the ingress, every class in its order, and of each no more than what the
    /// next turn can wait for: what a lane then sends is cut by its caravans.
    fn take_in(&mut self, cx: &mut Context<'_>) {
        self.more = false;
        self.took = false;
        if let Some(entry) = self.early.take()
            && !self.route(entry, cx)
        {
            return;
        }
        for index in 0..self.place.classes.len() {
            let class = self.place.classes[index];
            for taken in 0.. {
                if taken >= ENTRIES_PER_TURN {
                    self.more = true;
                    break;
                }
                let Some(entry) = self.ingress.take(class) else {
                    break;
                };
                self.took = true;
                if !self.route(entry, cx) {
                    return;
                }
            }
        }
    }

    /// Sends a request on its way; false when its submitter is not known yet, so that it has to
    /// wait for the mailbox.
    fn route(&mut self, entry: IngressRequest, cx: &mut Context<'_>) -> bool {
        let core = self.place.core;
        if !entry.steered {
            let loads = self.place.loads.to(usize::from(entry.target));
            let chosen = self.steering.steer(entry.class, core, &loads);
            if chosen != core {
                let steered = IngressRequest {
                    steered: true,
                    ..entry
                };
                let ingress = &self.place.ingresses[chosen][entry.class];
                if ingress.put(steered).is_ok() {
                    ingress.ring();
                    return true;
                }
            }
        }
        let lane = self.lane_class(entry.class);
        let known = self.submitters.get(entry.submitter as usize);
        let Some(known) = known.and_then(Option::as_ref) else {
            self.early = Some(entry);
            self.more = true;
            return false;
        };
        if entry.class == Class::Latency {
            self.latency.arrived(cx.now);
        }
        let bytes = u64::from(entry.data.map_or(0, |(_, length)| length));
        let target = usize::from(entry.target);
        self.place
            .loads
            .note(core, target, entry.class, bytes, true);
        self.counters.requests[entry.class] += 1;
        self.counters.bytes[entry.class] += bytes;
        let egress = self
            .egresses
            .iter_mut()
            .find(|egress| egress.target == entry.target && egress.class == lane);
        match egress {
            None => self.answer(entry.submitter, entry.slot, Err(BlockError::Gone)),
            Some(egress) if !egress.backlog.is_empty() => egress.backlog.push_back(entry),
            Some(egress) => {
                let memory = &known.memory;
                match egress.submit(entry, memory, cx) {
                    Outcome::Taken => {}
                    Outcome::Busy => egress.backlog.push_back(entry),
                    Outcome::Done(result) => self.over(entry, result),
                }
            }
        }
        true
    }

    const fn lane_class(&self, class: Class) -> Class {
        match self.place.knobs.lanes {
            Lanes::PerClass => class,
            Lanes::Shared => Class::DEFAULT,
        }
    }

    /// A request was answered on the spot.
    fn over(&mut self, entry: IngressRequest, result: Result<(), BlockError>) {
        let bytes = u64::from(entry.data.map_or(0, |(_, length)| length));
        let (core, target) = (self.place.core, usize::from(entry.target));
        self.place
            .loads
            .note(core, target, entry.class, bytes, false);
        self.answer(entry.submitter, entry.slot, result);
    }

    /// Hands out what found no room before.
    fn drain_backlogs(&mut self, cx: &mut Context<'_>) {
        for index in 0..self.egresses.len() {
            while let Some(entry) = self.egresses[index].backlog.pop_front() {
                let known = &self.submitters[entry.submitter as usize];
                let memory = &known.as_ref().expect("it has requests outstanding").memory;
                match self.egresses[index].submit(entry, memory, cx) {
                    Outcome::Taken => {}
                    Outcome::Busy => {
                        self.egresses[index].backlog.push_front(entry);
                        break;
                    }
                    Outcome::Done(result) => self.over(entry, result),
                }
            }
        }
    }

    /// Takes what the lanes completed, and tells submitters of it.
    fn bring_back(&mut self, now: Time) {
        for index in 0..self.egresses.len() {
            while let Some(done) = self.egresses[index].channel.reap() {
                let egress = &self.egresses[index];
                let (submitter, slot, class) = unpack(done.tag);
                let bytes = done.data.as_ref().map_or(0, IoSlice::len) as u64;
                let target = usize::from(egress.target);
                self.place
                    .loads
                    .note(self.place.core, target, class, bytes, false);
                self.completed(
                    now,
                    class,
                    submitter,
                    IngressCompletion {
                        slot,
                        result: done.result,
                    },
                );
            }
        }
        for submitter in self.answered.drain(..) {
            if let Some(known) = &mut self.submitters[submitter as usize] {
                self.counters.notify(&mut known.held_completions);
                known.submitter.ring();
            }
        }
        let (submitters, counters) = (&mut self.submitters, &mut self.counters);
        self.held_completions.retain(|&submitter| {
            let Some(known) = &mut submitters[submitter as usize] else {
                return false;
            };
            if known.held_completions.is_due(now) {
                counters.notify(&mut known.held_completions);
                known.submitter.ring();
            }
            known.held_completions.until() != Time::NEVER
        });
    }

    /// A request came back; its submitter is told at the end of this turn, or later.
    fn completed(&mut self, now: Time, class: Class, submitter: u32, done: IngressCompletion) {
        let most = if self.latency_activity.is_active() && !self.closing {
            self.place.knobs.completion_hold
        } else {
            Nanos::ZERO
        };
        let known = self.finish(submitter, done);
        let held = known.held_completions.until() != Time::NEVER;
        let under_way = known.submitter.under_way();
        let tell = known
            .held_completions
            .completed(now, class, under_way, most);
        if !tell && !held {
            self.held_completions.push(submitter);
        } else if tell && self.answered.last() != Some(&submitter) {
            self.answered.push(submitter);
        }
    }

    fn finish(&mut self, submitter: u32, done: IngressCompletion) -> &mut SubmitterState {
        let known = self.submitters[submitter as usize]
            .as_mut()
            .expect("a submitter stays known while it has requests outstanding");
        known.submitter.finish(done);
        known
    }

    /// A request is answered on the spot; its submitter is told at once.
    fn answer(&mut self, submitter: u32, slot: u32, result: Result<(), BlockError>) {
        self.finish(submitter, IngressCompletion { slot, result });
        if self.answered.last() != Some(&submitter) {
            self.answered.push(submitter);
        }
    }

    /// Lets go of submitters that have left and were answered everything.
    fn forget_leavers(&mut self) {
        for known in &mut self.submitters {
            known.take_if(|known| known.leaving && known.submitter.is_quiet());
        }
    }

    /// Shows the counters to whoever asks, and follows the load.
    fn show(&mut self, now: Time) {
        if now < self.show_at {
            return;
        }
        self.show_at = now + COUNTERS_PERIOD;
        self.forget_leavers();
        let outstanding = self.place.loads.outstanding(self.place.core);
        for &class in &self.place.classes {
            self.load.sample(now, class, outstanding[class]);
        }
        let mut counters = self.counters.clone();
        counters.steering = *self.steering.counters();
        counters.load_bytes = self.load.all(now);
        counters.sparse_arrivals = self.latency.sparse_arrivals();
        for egress in &mut self.egresses {
            let class = egress.class;
            egress
                .channel
                .add_doorbell_counters(&mut counters.caravans[class]);
        }
        self.place.shown.show(counters);
    }
}

/// What became of a request at its egress.
enum Outcome {
    Taken,
    Busy,
    Done(Result<(), BlockError>),
}

impl Egress {
    #[inline]
    fn submit(
        &mut self,
        entry: IngressRequest,
        memory: &RegionHandle,
        cx: &mut Context<'_>,
    ) -> Outcome {
        let data = entry.data.map(|(offset, length)| {
            let memory = Memory::Region(memory.clone());
            IoSlice::new(memory, offset as usize, length as usize)
        });
        let request = Request {
            tag: pack(entry.submitter, entry.slot, entry.class),
            operation: entry.operation,
            lba: entry.lba,
            blocks: entry.blocks,
            data,
        };
        let namespace = usize::from(entry.namespace);
        match self.channel.submit_to(namespace, request, cx) {
            Submit::Queued => Outcome::Taken,
            Submit::Busy(_) => Outcome::Busy,
            Submit::Done(done) => Outcome::Done(done.result),
        }
    }
}

/// Submitter, slot and class in a request's tag.
#[inline]
fn pack(submitter: u32, slot: u32, class: Class) -> u64 {
    u64::from(submitter) << 32 | u64::from(slot) << 8 | class.index() as u64
}

#[inline]
fn unpack(tag: u64) -> (u32, u32, Class) {
    let class = Class::ALL[(tag & 0xff) as usize];
    let slot = u32::try_from(tag >> 8 & 0xff_ffff).expect("24 bits");
    (
        u32::try_from(tag >> 32).expect("the upper half"),
        slot,
        class,
    )
}

impl Service for EgressService {
    type Message = Message;

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        let op_namespace = completion.key.op_namespace;
        let egress = self
            .egresses
            .iter_mut()
            .find(|egress| egress.channel.owns(op_namespace));
        if let Some(egress) = egress {
            egress.channel.complete(completion, cx);
        }
    }

    fn message(&mut self, Message(note): Message, cx: &mut Context<'_>) {
        match note {
            Update::Target(target, association) => self.add_target(target, &association, cx),
            Update::Namespace {
                target,
                namespace,
                state,
                capabilities,
            } => {
                let egresses = self.egresses.iter_mut();
                for egress in egresses.filter(|egress| egress.target == target) {
                    let number = egress
                        .channel
                        .add_namespace(Arc::clone(&state), capabilities);
                    debug_assert_eq!(number, usize::from(namespace), "told in order");
                }
            }
            Update::Join(number, submitter) => {
                let index = number as usize;
                if self.submitters.len() <= index {
                    self.submitters.resize_with(index + 1, || None);
                }
                self.submitters[index] = Some(SubmitterState {
                    memory: submitter.region.handle(),
                    submitter,
                    leaving: false,
                    held_completions: Coalescer::default(),
                });
            }
            Update::Leave(number) => {
                if let Some(known) = &mut self.submitters[number as usize] {
                    known.leaving = true;
                }
                self.forget_leavers();
            }
            Update::Knobs(knobs) => self.reconfigure(*knobs),
            Update::Close => {
                self.closing = true;
                for egress in &mut self.egresses {
                    egress.channel.close(cx);
                }
            }
        }
    }

    fn took_work(&self) -> bool {
        self.took
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.ingress.awake();
        for egress in &mut self.egresses {
            egress.channel.tick(cx);
        }
        self.bring_back(cx.now);
        self.drain_backlogs(cx);
        self.take_in(cx);
        self.look_around(cx.now);
        self.depart(cx);
        self.bring_back(cx.now);
        self.show(cx.now);
    }

    fn deadline(&self) -> Time {
        // Asked before a sleep: from now on whoever brings a request wakes this thread.
        if self.more || !self.ingress.may_sleep() {
            return Time::ZERO;
        }
        let lanes = self.egresses.iter().map(|egress| egress.channel.deadline());
        let held_completions = self.held_completions.iter().map(|&submitter| {
            let known = self.submitters[submitter as usize].as_ref();
            known.map_or(Time::NEVER, |known| known.held_completions.until())
        });
        lanes.chain(held_completions).min().unwrap_or(Time::NEVER)
    }

    fn stays_awake(&mut self) {
        self.ingress.awake();
    }

    fn finished(&self) -> bool {
        // Whoever was not told would wait for ever.
        let all_closed = self.egresses.iter().all(|egress| egress.channel.closed());
        self.closing && self.held_completions.is_empty() && all_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::Wake;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug, Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A core that only looked whether it might sleep was woken, while it polled, for each run of
    /// requests from another core.
    #[test]
    fn a_core_that_polls_is_not_woken() {
        let ingress = Arc::new(Ingress::new(4));
        let wakes = Arc::new(Wakes::default());
        ingress.serve(Arc::clone(&wakes) as Arc<dyn Wake>);
        let mut service = EgressService::new(DataplaneConfig {
            id: CoreId(0),
            core: 0,
            classes: Class::ALL.to_vec(),
            ingresses: Arc::new(vec![PerClass::from_fn(|_| Arc::clone(&ingress))]),
            loads: Arc::new(LoadTable::new(1)),
            shown: Arc::default(),
            knobs: Knobs::switchyard(),
        });
        assert_eq!(service.deadline(), Time::NEVER);
        service.stays_awake();
        ingress.ring();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        assert_eq!(service.deadline(), Time::NEVER);
        ingress.ring();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "it sleeps");
    }

    #[test]
    fn a_tag_holds_submitter_slot_and_class() {
        for class in Class::ALL {
            let tag = pack(0xffff_fffe, 0x00ab_cdef, class);
            assert_eq!(unpack(tag), (0xffff_fffe, 0x00ab_cdef, class));
        }
    }
}
