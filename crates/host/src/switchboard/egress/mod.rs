//! One dataplane thread of a switchboard: the egresses of a core.
//!
//! Takes requests from its ingress, earlier classes first, steers them, submits each to the egress
//! of its (class, target), and returns completions to their submitters. An egress is a lane of its
//! controller with its own doorbell. Owned by its thread; reached only through its ingress, its
//! mailbox and the load table. Never blocks, loses a request, or answers one twice.

mod completions;
mod egresses;
#[cfg(test)]
mod tests;

use crate::association::Association;
use crate::channel::RemoteChannel;
use crate::switchboard::counters::CoreCounters;
use crate::switchboard::ingress::{Ingress, IngressRequest, Submitter, TargetNumber};
use crate::switchboard::limits::{COUNTERS_PERIOD, ENTRIES_PER_TURN, LANE_DEPTH};
use crate::switchboard::message::{DataplaneConfig, DataplaneMessage, Update};
use base::Time;
use block::{BlockError, Channel};
use egresses::{Egress, Egresses, Outcome, pack};
use reactor::{Completion, Context, Driver, RegionHandle, Service};
use std::collections::VecDeque;
use std::sync::Arc;
use switch::knobs::Lanes;
use switch::{Class, Coalescer, Knobs, LatencyActivity, LatencyWatch, RequestSteering};

impl DataplaneConfig {
    /// Returns the service to run on `driver`, which submitters wake.
    #[must_use]
    pub fn service(self, driver: &dyn Driver) -> EgressService {
        let service = EgressService::new(self);
        service.ingress().sleeper.serve(driver.waker());
        service
    }
}

/// State of a submitter in this thread.
#[derive(Debug)]
struct SubmitterState {
    submitter: Arc<Submitter>,
    memory: RegionHandle,
    /// True once it submits nothing more. It is removed when all its requests are answered, because
    /// other cores may still steer requests of it here.
    closed: bool,
    /// Completions of which this thread has not notified it yet.
    held_completions: Coalescer,
}

/// Requests taken from the ingress for an egress.
#[derive(Debug, Default)]
struct Intake {
    /// A request taken from the ingress before the message that registers its submitter: it is
    /// next.
    early: Option<IngressRequest>,
    /// True if the last turn took requests from the ingress.
    took: bool,
    /// True if the last turn left work to do.
    more: bool,
}

/// The submitters known to this core, by number.
#[derive(Debug)]
struct Submitters {
    known: Vec<Option<SubmitterState>>,
    /// Submitters that are notified of completions at the end of this turn.
    answered: Vec<u32>,
    /// Submitters that are notified of completions later.
    held: Vec<u32>,
}

/// Activity of `Latency` work on the core.
#[derive(Debug)]
struct LatencyMonitor {
    watch: LatencyWatch,
    /// Level in the last turn.
    level: LatencyActivity,
}

/// Counters that the core publishes periodically.
#[derive(Debug)]
struct Statistics {
    counters: CoreCounters,
    publish_at: Time,
    /// True if the core did something since it last published them.
    unpublished: bool,
}

impl Statistics {
    /// Returns the time at which the core publishes them, even if it is otherwise idle.
    fn deadline(&self) -> Time {
        if self.unpublished {
            self.publish_at
        } else {
            Time::NEVER
        }
    }
}

/// The service of a dataplane core.
#[derive(Debug)]
pub struct EgressService {
    config: DataplaneConfig,
    intake: Intake,
    steering: RequestSteering,
    egresses: Egresses,
    submitters: Submitters,
    latency: LatencyMonitor,
    statistics: Statistics,
    closing: bool,
}

impl EgressService {
    pub(super) fn new(config: DataplaneConfig) -> Self {
        let cores = config.ingresses.len();
        let seed = config.core as u64;
        Self {
            intake: Intake::default(),
            steering: RequestSteering::new(config.knobs.request_steering, cores, seed),
            egresses: Egresses::default(),
            submitters: Submitters {
                known: Vec::new(),
                answered: Vec::with_capacity(64),
                held: Vec::with_capacity(64),
            },
            latency: LatencyMonitor {
                watch: LatencyWatch::new(config.knobs.sparse_latency_bytes),
                level: LatencyActivity::Absent,
            },
            statistics: Statistics {
                counters: CoreCounters::default(),
                publish_at: Time::ZERO,
                unpublished: false,
            },
            closing: false,
            config,
        }
    }

    #[inline]
    fn ingress(&self) -> &Ingress {
        &self.config.ingresses[self.config.core]
    }

    fn add_target(
        &mut self,
        number: &Arc<TargetNumber>,
        association: &Arc<Association>,
        cx: &mut Context<'_>,
    ) {
        for class in crate::switchboard::classes_with_lanes(self.config.knobs.lanes) {
            let waker = self.egresses.notice(|| cx.driver.waker());
            let association = Arc::clone(association);
            let mut channel =
                RemoteChannel::shared(association, class, 1, LANE_DEPTH, waker, cx.driver);
            let knobs = &self.config.knobs;
            channel.set_doorbell(knobs.doorbell, knobs.caravan.limits(self.latency.level));
            self.egresses.add(Egress {
                target: number.0,
                _number: Arc::clone(number),
                class,
                channel,
                refused: false,
                backlog: VecDeque::new(),
                backlog_limit: Time::NEVER,
            });
        }
    }

    fn reconfigure(&mut self, knobs: Knobs) {
        self.config.knobs = knobs;
        self.steering.reconfigure(knobs.request_steering);
        self.latency.watch.reconfigure(knobs.sparse_latency_bytes);
        self.set_doorbells();
    }

    fn set_doorbells(&mut self) {
        let knobs = &self.config.knobs;
        let limits = knobs.caravan.limits(self.latency.level);
        for egress in self.egresses.each() {
            egress.channel.set_doorbell(knobs.doorbell, limits);
        }
    }

    /// Updates the activity of `Latency` work on the core, including direct lanes. The spacing of
    /// requests is measured where they pass.
    fn watch_latency(&mut self, now: Time) {
        if self.config.loads.latency_bytes(self.config.core) > 0 {
            self.latency.watch.present(now);
        }
        let latency_activity = if self.config.knobs.prioritisation {
            self.latency.watch.latency_activity(now)
        } else {
            LatencyActivity::Absent
        };
        if latency_activity != self.latency.level {
            self.latency.level = latency_activity;
            self.set_doorbells();
        }
    }

    /// Lets the egresses send: first all that may not wait, then the remaining ones in turn; while
    /// `Latency` work is active, at most one quantum between two checks of the ingress.
    fn send(&mut self, cx: &mut Context<'_>) {
        let may_wait = |egress: &Egress| egress.class.properties().may_wait;
        let count = self.egresses.busy_count();
        for nth in 0..count {
            let egress = self.egresses.busy(nth);
            if !may_wait(egress) {
                egress.channel.pump(cx);
            }
        }
        let mut left = if self.latency.level.is_active() {
            self.config.knobs.quantum_bytes
        } else {
            u64::MAX
        };
        let first = self.egresses.before_first();
        for nth in (first..count).chain(0..first) {
            let egress = self.egresses.busy(nth);
            if !may_wait(egress) {
                continue;
            }
            if left == 0 {
                self.egresses.begin_with(nth);
                self.intake.more = true;
                break;
            }
            let bytes = egress.channel.pump(cx);
            self.latency.watch.sent(bytes);
            left = left.saturating_sub(bytes);
        }
        for egress in self.egresses.each_busy() {
            if egress.class.properties().steered {
                let waiting = egress.channel.waiting_for_doorbell();
                let target = usize::from(egress.target);
                let core = self.config.core;
                self.config.loads.note_waiting(core, target, waiting);
            }
        }
    }

    /// Takes requests from the ingress, in class order and at most [`ENTRIES_PER_TURN`] of each
    /// class, so that the next turn does not wait long. Caravans limit what a lane then sends.
    fn take_in(&mut self, cx: &mut Context<'_>) {
        self.intake.more = false;
        self.intake.took = false;
        if let Some(entry) = self.intake.early.take()
            && !self.route(entry, cx)
        {
            return;
        }
        for class in Class::ALL {
            for taken in 0.. {
                if taken >= ENTRIES_PER_TURN {
                    self.intake.more = true;
                    break;
                }
                let Some(entry) = self.ingress().take(class) else {
                    break;
                };
                self.intake.took = true;
                if !self.route(entry, cx) {
                    return;
                }
            }
        }
    }

    /// Routes a request; false if its submitter is not known yet, so it must wait for the mailbox.
    fn route(&mut self, entry: IngressRequest, cx: &mut Context<'_>) -> bool {
        let core = self.config.core;
        if !entry.steered {
            let loads = self.config.loads.to(usize::from(entry.target));
            let chosen = self.steering.steer(entry.class, core, &loads);
            if chosen != core {
                let steered = IngressRequest {
                    steered: true,
                    ..entry
                };
                let ingress = &self.config.ingresses[chosen];
                if ingress.put(steered).is_ok() {
                    ingress.sleeper.ring();
                    return true;
                }
            }
        }
        let lane = self.lane_class(entry.class);
        let known = self.submitters.known.get(entry.submitter as usize);
        let Some(known) = known.and_then(Option::as_ref) else {
            self.intake.early = Some(entry);
            self.intake.more = true;
            return false;
        };
        if known.submitter.has_given_up(entry.slot) {
            self.answer(entry.submitter, entry.slot, Err(BlockError::Aborted));
            return true;
        }
        if entry.class == Class::Latency {
            self.latency.watch.arrived(cx.now);
        }
        let bytes = u64::from(entry.data.map_or(0, |(_, length)| length));
        let target = usize::from(entry.target);
        self.config
            .loads
            .note_came(core, target, entry.class, bytes, cx.now);
        self.statistics.counters.requests[entry.class] += 1;
        self.statistics.counters.bytes[entry.class] += bytes;
        match self.egresses.reach(entry.target, lane) {
            None => self.answer(entry.submitter, entry.slot, Err(BlockError::Gone)),
            Some(egress) if !egress.backlog.is_empty() => egress.keep(entry),
            Some(egress) => {
                let memory = &known.memory;
                match egress.submit(entry, memory, cx) {
                    Outcome::Taken => {}
                    Outcome::Busy => egress.keep(entry),
                    Outcome::Done(result) => self.over(entry, result),
                }
            }
        }
        true
    }

    const fn lane_class(&self, class: Class) -> Class {
        match self.config.knobs.lanes {
            Lanes::PerClass => class,
            Lanes::Shared => Class::DEFAULT,
        }
    }

    /// Answers a request immediately.
    fn over(&mut self, entry: IngressRequest, result: Result<(), BlockError>) {
        let bytes = u64::from(entry.data.map_or(0, |(_, length)| length));
        let (core, target) = (self.config.core, usize::from(entry.target));
        self.config
            .loads
            .note_over(core, target, entry.class, bytes);
        self.answer(entry.submitter, entry.slot, result);
    }

    /// Publishes the counters.
    fn publish(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        self.statistics.unpublished = now < self.statistics.publish_at;
        if self.statistics.unpublished {
            return;
        }
        self.statistics.publish_at = now + COUNTERS_PERIOD;
        self.forget_closed();
        self.forget_gone(cx);
        let mut counters = self.statistics.counters.clone();
        counters.steering = *self.steering.counters();
        counters.load_bytes = self.config.loads.averages(self.config.core, now);
        counters.sparse_arrivals = self.latency.watch.sparse_arrivals();
        for egress in self.egresses.each() {
            let class = egress.class;
            egress
                .channel
                .add_doorbell_counters(&mut counters.caravans[class]);
        }
        self.config.published.publish(counters);
    }
}

impl EgressService {
    /// Removes lanes to controllers whose associations have ended for good.
    fn forget_gone(&mut self, cx: &mut Context<'_>) {
        let (loads, core) = (&self.config.loads, self.config.core);
        let caravans = &mut self.statistics.counters.caravans;
        self.egresses.retain(|egress| {
            if !egress.is_over(cx) {
                return true;
            }
            loads.forget(core, usize::from(egress.target));
            egress
                .channel
                .add_doorbell_counters(&mut caravans[egress.class]);
            false
        });
    }
}

impl Service for EgressService {
    type Message = DataplaneMessage;

    fn apply(&mut self, completion: Completion, cx: &mut Context<'_>) {
        if let Some(egress) = self.egresses.of_operation(completion.key.op_namespace) {
            egress.channel.complete(completion, cx);
        }
    }

    fn message(&mut self, DataplaneMessage(note): DataplaneMessage, cx: &mut Context<'_>) {
        match note {
            Update::Target(number, association) => self.add_target(&number, &association, cx),
            Update::Namespace {
                target,
                namespace,
                state,
                capabilities,
            } => {
                let egresses = self.egresses.each();
                for egress in egresses.filter(|egress| egress.target == target) {
                    let number = egress
                        .channel
                        .add_namespace(Arc::clone(&state), capabilities);
                    debug_assert_eq!(number, usize::from(namespace), "told in order");
                }
            }
            Update::Join(number, submitter) => {
                let index = number as usize;
                if self.submitters.known.len() <= index {
                    self.submitters.known.resize_with(index + 1, || None);
                }
                self.submitters.known[index] = Some(SubmitterState {
                    memory: submitter.region.handle(),
                    submitter,
                    closed: false,
                    held_completions: Coalescer::default(),
                });
            }
            Update::Leave(number) => {
                if let Some(known) = &mut self.submitters.known[number as usize] {
                    known.closed = true;
                }
                self.forget_closed();
            }
            Update::Knobs(knobs) => self.reconfigure(*knobs),
            Update::Close => {
                self.closing = true;
                self.egresses.close(cx);
            }
        }
    }

    fn took_work(&self) -> bool {
        self.intake.took
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.ingress().sleeper.awake();
        self.egresses.look();
        for nth in 0..self.egresses.busy_count() {
            self.egresses.busy(nth).channel.tick(cx);
        }
        self.give_up(cx);
        self.take_completions(cx.now);
        self.drain_backlogs(cx);
        self.take_in(cx);
        self.watch_latency(cx.now);
        self.send(cx);
        self.take_completions(cx.now);
        self.egresses.rest();
        self.publish(cx);
    }

    fn deadline(&self) -> Time {
        if self.intake.more || !self.ingress().is_empty() {
            return Time::ZERO;
        }
        let busy = self.egresses.each_busy();
        let lanes = busy.map(|egress| egress.channel.deadline().min(egress.backlog_limit));
        let held_completions = self.submitters.held.iter().map(|&submitter| {
            let known = self.submitters.known[submitter as usize].as_ref();
            known.map_or(Time::NEVER, |known| known.held_completions.until())
        });
        let first = lanes.chain(held_completions).min();
        first.unwrap_or(Time::NEVER).min(self.statistics.deadline())
    }

    fn may_sleep(&mut self) -> bool {
        // From now on a submitter with a request wakes this thread.
        self.ingress().may_sleep()
    }

    fn finished(&self) -> bool {
        // A submitter that was not notified would wait forever.
        self.closing && self.submitters.held.is_empty() && self.egresses.all_closed()
    }
}

impl EgressService {
    /// Submits requests that had no room before.
    fn drain_backlogs(&mut self, cx: &mut Context<'_>) {
        for nth in 0..self.egresses.busy_count() {
            while let Some(entry) = self.egresses.busy(nth).backlog.pop_front() {
                let known = &self.submitters.known[entry.submitter as usize];
                let memory = &known.as_ref().expect("it has requests outstanding").memory;
                match self.egresses.busy(nth).submit(entry, memory, cx) {
                    Outcome::Taken => {}
                    Outcome::Busy => {
                        self.egresses.busy(nth).backlog.push_front(entry);
                        break;
                    }
                    Outcome::Done(result) => self.over(entry, result),
                }
            }
        }
    }

    /// Answers the given-up requests that this core has.
    fn give_up(&mut self, cx: &mut Context<'_>) {
        if self.ingress().has_given_up() {
            self.give_up_cancelled(cx);
        }
        for nth in 0..self.egresses.busy_count() {
            let egress = self.egresses.busy(nth);
            if egress.backlog_limit <= cx.now {
                for entry in egress.take_kept(|entry| entry.limit <= cx.now) {
                    self.over(entry, Err(BlockError::TimedOut));
                }
            }
        }
    }

    fn give_up_cancelled(&mut self, cx: &mut Context<'_>) {
        let mut given_up = Vec::new();
        for (number, known) in (0..).zip(&self.submitters.known) {
            let slots = known
                .iter()
                .flat_map(|known| known.submitter.slots_given_up());
            given_up.extend(slots.map(|slot| (number, slot)));
        }
        for nth in 0..self.egresses.busy_count() {
            let egress = self.egresses.busy(nth);
            for &(submitter, slot) in &given_up {
                for class in Class::ALL {
                    egress.channel.cancel(pack(submitter, slot, class), cx);
                }
            }
            let is_one = |entry: &IngressRequest| given_up.contains(&(entry.submitter, entry.slot));
            for entry in egress.take_kept(is_one) {
                self.over(entry, Err(BlockError::Aborted));
            }
        }
    }
}
