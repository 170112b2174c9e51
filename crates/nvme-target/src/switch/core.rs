//! A core's part of the switch: its knobs, the connections with something to send, those that a
//! doorbell holds, and counters.
//!
//! Owned by the core's state; the decisions are those of the crate `switch`. A connection that has
//! something to send is *ready*, in the queue of its class. What its doorbell holds is in `held`
//! instead, until its time has come. Must never: hold an answer with which nothing else is
//! certain to come, or let a connection that has something to send be in neither place.

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
    /// I/O queues of each class.
    pub(crate) queues: PerClass<usize>,
    /// Activity of `Latency` work.
    latency: LatencyWatch,
    /// Hosts that ask for little.
    pub(crate) light_hosts: LightHosts,
    /// Bytes of data of commands that take their time.
    pub(crate) outstanding: PerClass<u64>,
    /// Load that the queues here ask for on average, together.
    pub(crate) load: PerClass<u64>,
    /// Time at which loads of silent queues are forgotten next.
    pub(crate) forget_at: Time,
    /// Connections with something to send, in the order in which they became so.
    pub(crate) ready: PerClass<VecDeque<SlabKey>>,
    /// Connections with a doorbell that holds something, and the latest time at which it rings.
    pub(crate) held: TimerQueue<SlabKey>,
    /// The order in which the ready ones are served.
    pub(crate) send: ClassScheduler,
    /// Which queues are better off on another core.
    pub(crate) steering: ApplicationSteering,
    /// Events counted so far; [`stats`](Self::stats) adds what is known elsewhere.
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

    /// Takes other knobs. The caller tells the connections' doorbells.
    pub(crate) fn set_knobs(&mut self, knobs: Knobs) {
        self.knobs = knobs;
        self.send.reconfigure(knobs.service());
        self.steering.reconfigure(knobs.application_steering);
        self.latency.reconfigure(knobs.sparse_latency_bytes);
    }

    /// Something came on a queue that must not wait.
    #[inline]
    pub(crate) fn note_urgent(&mut self, now: Time) {
        self.latency.present(now);
    }

    /// It was one command, or some that came together.
    #[inline]
    pub(crate) fn note_urgent_commands(&mut self, now: Time) {
        self.latency.arrived(now);
    }

    /// So many bytes of queues that may wait are sent.
    #[inline]
    pub(crate) fn note_bulk(&mut self, bytes: u64) {
        self.latency.sent(bytes);
    }

    /// Returns true if there was `Latency` work lately.
    #[inline]
    pub(crate) fn is_latency_near(&self, now: Time) -> bool {
        self.latency.is_active(now)
    }

    /// Returns true while `Latency` work is served strictly before `Throughput` work.
    #[inline]
    pub(crate) fn prioritises(&self, now: Time) -> bool {
        self.knobs.prioritisation && self.is_latency_near(now)
    }

    /// Returns the limits of one send now.
    #[inline]
    pub(crate) fn caravan_limits(&self, now: Time) -> CaravanLimits {
        self.knobs
            .caravan
            .limits(self.latency.latency_activity(now))
    }

    /// Returns true if any queue asks for anything, or did lately.
    pub(crate) fn is_loaded(&self) -> bool {
        self.load.iter().any(|(_, &bytes)| bytes > 0)
    }

    /// Returns the class by which something is queued. Without priorities
    /// everything is in one, in the order of arrival; with them, control goes first: there is
    /// little of it.
    #[inline]
    pub(crate) fn order_of(&self, class: Option<Class>) -> Class {
        if self.knobs.prioritisation {
            class.unwrap_or(Class::ALL[0])
        } else {
            Class::DEFAULT
        }
    }

    /// A connection has something to send.
    pub(crate) fn push_ready(&mut self, class: Option<Class>, connection: SlabKey) {
        let class = self.order_of(class);
        self.ready[class].push_back(connection);
    }

    /// Returns true if any connection has something to send.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.iter().any(|(_, queue)| !queue.is_empty())
    }

    /// Returns all counters of the switch at this moment.
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
