//! The world of one run: machines, threads, events and counters.

use super::app::App;
use super::config::Config;
use super::costs::{Costs, for_bytes};
use super::cpu::{Core, Role, Thread, ThreadStep};
use super::engine::Engine;
use super::event::Event;
use super::lane::{End, Packet, Request, Side, Stage, Wire};
use super::random::Random;
use super::report::{Caravans, ClassReport, Counters, ModelReport};
use crate::calendar::Calendar;
use base::{Latencies, Nanos};
use std::ops::Range;
use switch::load::ClassLoad;
use switch::{ApplicationSteering, Class, Knobs, PerClass, RequestSteering};

#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) config: &'a Config,
    pub(super) costs: &'a Costs,
    pub(super) knobs: Knobs,
    pub(super) now: u64,
    pub(super) calendar: Calendar<u64, Event>,
    pub(super) random: Random,
    /// The core between two steps.
    pub(super) executing: Option<usize>,
    pub(super) cores: Vec<Core>,
    pub(super) host_cores: Range<usize>,
    pub(super) target_cores: Range<usize>,
    pub(super) threads: Vec<Thread>,
    pub(super) engines: Vec<Engine>,
    pub(super) target_engines: Range<usize>,
    pub(super) apps: Vec<App>,
    pub(super) ends: Vec<End>,
    /// Host ends by engine, target and class.
    pub(super) lanes: Vec<PerClass<Option<usize>>>,
    /// Class of the lane that each class uses.
    pub(super) lane_class: PerClass<Class>,
    pub(super) wires: Option<[Wire; 2]>,
    pub(super) requests: Vec<Request>,
    pub(super) spare_requests: Vec<usize>,
    pub(super) packets: Vec<Packet>,
    pub(super) spare_packets: Vec<usize>,
    /// Outstanding bytes of the steered class in each host core's egress queue, per target.
    pub(super) egress_bytes: Vec<Vec<u64>>,
    /// Outstanding bytes in each host core's egress queues.
    pub(super) host_outstanding: Vec<PerClass<u64>>,
    /// Applications with `Latency` requests on each host core.
    pub(super) latency_apps: Vec<u32>,
    pub(super) host_loads: Vec<PerClass<ClassLoad>>,
    /// Request steering of each host core.
    pub(super) steering: Vec<RequestSteering>,
    /// Application steering of the host and of the target.
    pub(super) application_steering: [ApplicationSteering; 2],
    pub(super) closing: bool,
    pub(super) issued: u64,
    /// Requests sent through a direct lane.
    pub(super) direct: u64,
    pub(super) completed: u64,
    pub(super) measuring: bool,
    pub(super) histograms: PerClass<Latencies>,
    pub(super) bytes: PerClass<u64>,
    pub(super) utilisation: Vec<f64>,
}

impl World<'_> {
    /// Processes events until every request has completed.
    pub(super) fn run(mut self) -> ModelReport {
        while let Some((at, event)) = self.calendar.pop() {
            debug_assert!(at >= self.now);
            self.now = at;
            self.happen(event);
            if self.closing && self.completed == self.issued {
                break;
            }
        }
        self.report()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Step { core, generation } => self.on_step(core, generation),
            Event::Dispatch { core } => self.on_dispatch(core),
            Event::Reschedule { core } => self.on_reschedule(core),
            Event::Left { core, packet } => {
                // The sender of the packet wakes its receiver.
                let nested = self.executing.replace(core);
                self.send(packet);
                self.executing = nested;
            }
            Event::Arrived { packet } => self.on_arrived(packet),
            Event::Received { packet } => self.deliver(packet),
            Event::LinkFree { direction } => self.on_link_free(direction),
            Event::Doorbell { end } => self.on_doorbell(end),
            Event::Device { end, request } => self.answer(end, request),
            Event::Start { app } => self.on_start(app),
            Event::Intended { app } => self.on_intended(app),
            Event::Tell { app } => self.on_tell(app),
            Event::Steer { side } => self.on_steer(side),
            Event::Turn { index } => self.turn(index),
            Event::Measure => {
                self.measuring = true;
                self.reset_idle();
            }
            Event::Close => self.close(),
        }
    }

    /// Returns the next step of a thread and its cost.
    pub(super) fn next_step(&mut self, thread: usize) -> Option<(ThreadStep, u64)> {
        match self.threads[thread].role {
            Role::App(app) => {
                let lane = self.apps[app].engine;
                let step = lane.and_then(|engine| self.engine_step(engine));
                step.or_else(|| self.app_step(app))
            }
            Role::Engine(engine) => self.engine_step(engine),
        }
    }

    /// Applies the effect of a thread's step.
    pub(super) fn finish(&mut self, thread: usize, step: ThreadStep) {
        match (self.threads[thread].role, step) {
            (Role::App(app), ThreadStep::App { completions, way }) => {
                self.app_finish(app, completions, way);
            }
            (Role::App(app), step) => {
                let engine = self.apps[app]
                    .engine
                    .expect("it works on a lane of its own");
                self.engine_finish(engine, step);
            }
            (Role::Engine(engine), step) => self.engine_finish(engine, step),
        }
    }

    /// Advances a request from one stage to the next.
    ///
    /// # Panics
    /// If it is in another stage: it would be completed twice, or never.
    #[inline]
    pub(super) fn advance(&mut self, request: usize, from: Stage, to: Stage) {
        let stage = &mut self.requests[request].stage;
        assert_eq!(*stage, from, "request {request} goes to {to:?}");
        *stage = to;
    }

    /// Accounts a completed request.
    pub(super) fn account_request(&mut self, class: Class, bytes: u32, since: u64) {
        self.completed += 1;
        if self.measuring {
            self.histograms[class].record(Nanos((self.now - since).max(1)));
            self.bytes[class] += u64::from(bytes);
        }
    }

    /// Returns a core's index among the host's cores.
    #[inline]
    pub(super) fn host_index(&self, core: usize) -> usize {
        core - self.host_cores.start
    }

    /// Returns the host end of an engine's lane.
    #[inline]
    pub(super) fn lane_of(&self, engine: usize, target: usize, class: Class) -> usize {
        self.lanes[engine * self.config.targets + target][class].expect("every lane is made")
    }

    /// Queues a packet at the network card.
    pub(super) fn transmit(&mut self, packet: usize) {
        let end = self.packets[packet].from;
        let direction = direction(self.ends[end].side);
        let waiting = &mut self.ends[end].wire;
        waiting.push_back(packet);
        let first = waiting.len() == 1;
        let wire = &mut self.wires.as_mut().expect("there is a network")[direction];
        if first {
            wire.turns.push_back(end);
        }
        if !wire.busy {
            self.on_link_free(direction);
        }
    }

    fn on_link_free(&mut self, direction: usize) {
        let wire = &mut self.wires.as_mut().expect("there is a network")[direction];
        let Some(end) = wire.turns.pop_front() else {
            wire.busy = false;
            return;
        };
        let waiting = &mut self.ends[end].wire;
        let packet = waiting.pop_front().expect("it takes turns");
        if !waiting.is_empty() {
            wire.turns.push_back(end);
        }
        wire.busy = true;
        let sent = self.now + wire.nanos(self.packets[packet].bytes);
        let there = sent + wire.link.propagation.0;
        self.calendar.push(sent, Event::LinkFree { direction });
        self.calendar.push(there, Event::Arrived { packet });
    }

    fn on_arrived(&mut self, packet: usize) {
        let it = &self.packets[packet];
        let socket = &self.costs.socket;
        let cost = it.pieces() * socket.packet_ns + for_bytes(it.bytes, socket.packet_byte_ps);
        let engine = self.ends[self.ends[it.from].peer].engine;
        let core = self.threads[self.engines[engine].thread].core;
        let done = self.softirq(core, cost);
        self.calendar.push(done, Event::Received { packet });
    }

    fn turn(&mut self, index: usize) {
        let knobs = self.config.turns[index].knobs;
        self.knobs = knobs;
        for end in 0..self.ends.len() {
            let it = &mut self.ends[end];
            let decision = it.doorbell.reconfigure(it.side.doorbell(&knobs));
            self.obey(end, decision);
        }
        for engine in &mut self.engines {
            engine.scheduler.reconfigure(knobs.service());
        }
        for watch in self.cores.iter_mut().flat_map(|core| &mut core.latency) {
            watch.reconfigure(knobs.sparse_latency_bytes);
        }
        for steering in &mut self.steering {
            steering.reconfigure(knobs.request_steering);
        }
        for steering in &mut self.application_steering {
            steering.reconfigure(knobs.application_steering);
        }
    }

    fn close(&mut self) {
        self.closing = true;
        self.measuring = false;
        let measured = self.config.measured.0 as f64;
        let now = self.now;
        self.utilisation = self
            .cores
            .iter()
            .map(|core| (1.0 - core.idle_ns(now) as f64 / measured).clamp(0.0, 1.0))
            .collect();
    }

    fn report(self) -> ModelReport {
        let seconds = self.config.measured.0 as f64 / 1e9;
        let class = |class| ClassReport::of(&self.histograms[class], self.bytes[class], seconds);
        let (latency, throughput) = (class(Class::Latency), class(Class::Throughput));
        let bytes_per_second = latency.bytes_per_second + throughput.bytes_per_second;
        let host_utilisation = self.utilisation[self.host_cores.clone()].to_vec();
        let target_utilisation = self.utilisation[self.target_cores.clone()].to_vec();
        let busier = host_utilisation
            .iter()
            .sum::<f64>()
            .max(target_utilisation.iter().sum());
        ModelReport {
            seconds,
            latency,
            throughput,
            bytes_per_second,
            bytes_per_second_per_core: bytes_per_second / busier.max(1e-9),
            host_utilisation,
            target_utilisation,
            counters: self.counters(),
        }
    }

    fn counters(&self) -> Counters {
        let caravans = |side| {
            let mut sum = switch::doorbell::DoorbellCounters::default();
            for end in self.ends.iter().filter(|end| end.side == side) {
                sum.merge(&end.caravans);
            }
            Caravans::of(&sum)
        };
        let moved = |side: usize| {
            let moved = self.application_steering[side].counters().moved;
            [moved[Class::Latency], moved[Class::Throughput]]
        };
        let hosts = self.ends.iter().filter(|end| end.side == Side::Host);
        let floor = |engine: &Engine| {
            let grants = &engine.scheduler.counters().floor_grants;
            grants.iter().map(|(_, &count)| count).sum::<u64>()
        };
        Counters {
            issued: self.issued,
            completed: self.completed,
            direct: self.direct,
            host: caravans(Side::Host),
            target: caravans(Side::Target),
            steered: self.steering.iter().map(|s| s.counters().steered).sum(),
            nowhere: self.steering.iter().map(|s| s.counters().nowhere).sum(),
            moved_threads: moved(0),
            moved_lanes: moved(1),
            lane_packets: hosts
                .map(|end| (end.packets, self.ends[end.peer].packets))
                .collect(),
            floor_quanta: self.engines.iter().map(floor).sum(),
            quanta_waited_max: self
                .engines
                .iter()
                .map(|engine| engine.quanta_waited_max)
                .max()
                .unwrap_or(0),
            events: self.calendar.pushed(),
        }
    }
}

const fn direction(side: Side) -> usize {
    match side {
        Side::Host => 0,
        Side::Target => 1,
    }
}
