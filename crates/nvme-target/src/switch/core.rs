//! A core's part of the switch: its knobs, the connections with output, those held by a doorbell,
//! and counters.
//!
//! Owned by the core's state; the decisions are those of the crate `switch`. A connection with
//! output is *ready*, in the queue of its class; a connection whose output its doorbell holds is in
//! `held` until the doorbell rings. Invariants: an answer is held only if further output is certain
//! to follow, and every connection with output is in one of the two places.

use crate::switch::stats::{ServiceStats, SwitchStats};
use base::{SlabKey, Time, TimerQueue};
use std::collections::VecDeque;
use switch::{
    ApplicationSteering, CaravanLimits, Class, ClassScheduler, Knobs, LatencyWatch, LightHosts,
    PerClass, class_scheduler,
};

/// A core's part of the switch.
#[derive(Debug)]
pub(crate) struct CoreSwitch {
    knobs: Knobs,
    /// Number of I/O queues of each class.
    pub(crate) queues: PerClass<usize>,
    /// Activity of `Latency` work.
    latency: LatencyWatch,
    /// Hosts with little demand.
    pub(crate) light_hosts: LightHosts,
    /// Outstanding data of commands that take time, in bytes.
    pub(crate) outstanding: PerClass<u64>,
    /// Sum of the average loads of the core's queues.
    pub(crate) load: PerClass<u64>,
    /// Time at which loads of silent queues are cleared next.
    pub(crate) forget_at: Time,
    /// Connections with output, in the order in which they became ready.
    pub(crate) ready: PerClass<VecDeque<SlabKey>>,
    /// Connections whose doorbell holds output, and the latest time at which it rings.
    pub(crate) held: TimerQueue<SlabKey>,
    /// Scheduler of the ready connections by class.
    pub(crate) send: ClassScheduler,
    /// Selects the queues that are better placed on other cores.
    pub(crate) steering: ApplicationSteering,
    /// Events counted so far; [`stats`](Self::stats) adds values from elsewhere.
    pub(crate) counters: SwitchStats,
}

impl CoreSwitch {
    pub(crate) fn new(knobs: Knobs, connections: usize) -> Self {
        let capacity = connections.min(4096);
        Self {
            knobs,
            queues: PerClass::default(),
            latency: LatencyWatch::new(knobs.sparse_latency_bytes),
            light_hosts: LightHosts::default(),
            outstanding: PerClass::default(),
            load: PerClass::default(),
            forget_at: Time::ZERO,
            ready: PerClass::from_fn(|_| VecDeque::with_capacity(capacity)),
            held: TimerQueue::with_capacity(capacity),
            send: ClassScheduler::new(knobs.service()),
            steering: ApplicationSteering::new(knobs.application_steering),
            counters: SwitchStats::default(),
        }
    }

    pub(crate) const fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Sets new knobs. The caller reconfigures the connections' doorbells.
    pub(crate) fn set_knobs(&mut self, knobs: Knobs) {
        self.knobs = knobs;
        self.send.reconfigure(knobs.service());
        self.steering.reconfigure(knobs.application_steering);
        self.latency.reconfigure(knobs.sparse_latency_bytes);
    }

    /// Notes input on a queue that must not wait.
    #[inline]
    pub(crate) fn note_urgent(&mut self, now: Time) {
        self.latency.present(now);
    }

    /// Notes the arrival of one command, or of several at once, on a queue that must not wait.
    #[inline]
    pub(crate) fn note_urgent_commands(&mut self, now: Time) {
        self.latency.arrived(now);
    }

    /// Notes that `bytes` bytes were sent on queues that may wait.
    #[inline]
    pub(crate) fn note_bulk(&mut self, bytes: u64) {
        self.latency.sent(bytes);
    }

    /// Returns true if there was `Latency` work recently.
    #[inline]
    pub(crate) fn is_latency_near(&self, now: Time) -> bool {
        self.latency.is_active(now)
    }

    /// Returns true while `Latency` work is served strictly before `Throughput` work.
    #[inline]
    pub(crate) fn prioritises(&self, now: Time) -> bool {
        self.knobs.prioritisation && self.is_latency_near(now)
    }

    /// Returns the current limits of one send.
    #[inline]
    pub(crate) fn caravan_limits(&self, now: Time) -> CaravanLimits {
        self.knobs
            .caravan
            .limits(self.latency.latency_activity(now))
    }

    /// Returns true if any queue has or recently had load.
    pub(crate) fn is_loaded(&self) -> bool {
        self.load.iter().any(|(_, &bytes)| bytes > 0)
    }

    /// Returns the class by which output is queued. Without priorities, all output is in one class,
    /// in the order of arrival; with priorities, control output goes first, because it is rare.
    #[inline]
    pub(crate) fn order_of(&self, class: Option<Class>) -> Class {
        if self.knobs.prioritisation {
            class.unwrap_or(Class::ALL[0])
        } else {
            Class::DEFAULT
        }
    }

    /// Adds a connection with output to its ready queue.
    pub(crate) fn push_ready(&mut self, class: Option<Class>, connection: SlabKey) {
        let class = self.order_of(class);
        self.ready[class].push_back(connection);
    }

    /// Returns true if any connection is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.iter().any(|(_, queue)| !queue.is_empty())
    }

    /// Returns the current values of all counters of the switch.
    pub(crate) fn stats(&self, receive: &class_scheduler::ClassSchedulerCounters) -> SwitchStats {
        let mut stats = SwitchStats {
            steering_steps: self.steering.counters().steps,
            sparse_arrivals: self.latency.sparse_arrivals(),
            ..self.counters
        };
        for (class, stats) in stats.classes.iter_mut() {
            stats.queues = self.queues[class] as u64;
            stats.outstanding_bytes = self.outstanding[class];
            stats.load_bytes = self.load[class];
            stats.receive = ServiceStats::of(receive, class);
            stats.send = ServiceStats::of(self.send.counters(), class);
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switch::limits::LOAD_RESET;

    fn key(index: u32) -> SlabKey {
        SlabKey {
            index,
            generation: 0,
        }
    }

    #[test]
    fn latency_work_is_active_for_a_while_and_makes_sends_small() {
        let mut switch = CoreSwitch::new(Knobs::default(), 8);
        let now = Time(5_000_000_000);
        let knobs = Knobs::default();
        assert_eq!(switch.caravan_limits(now), knobs.caravan.alone);
        switch.note_urgent(now);
        assert!(switch.prioritises(now));
        assert_eq!(switch.caravan_limits(now), knobs.caravan.beside_latency);
        assert!(!switch.prioritises(now + LOAD_RESET));
        for _ in 0..64 {
            switch.note_bulk(2 * knobs.sparse_latency_bytes);
            switch.note_urgent_commands(now);
        }
        let twice = knobs.caravan.beside_latency.times(2);
        assert_eq!(switch.caravan_limits(now), twice, "for they are sparse");
        let stats = switch.stats(&class_scheduler::ClassSchedulerCounters::default());
        assert!(stats.sparse_arrivals > 0);
    }

    #[test]
    fn without_priorities_everybody_is_in_one_queue() {
        let mut switch = CoreSwitch::new(Knobs::linux(), 8);
        let now = Time(5_000_000_000);
        switch.note_urgent(now);
        assert!(!switch.prioritises(now));
        switch.push_ready(Some(Class::Throughput), key(1));
        switch.push_ready(Some(Class::Latency), key(2));
        assert_eq!(switch.ready[Class::DEFAULT], [key(1), key(2)]);
    }
}
