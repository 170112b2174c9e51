//! Builds a world.

use super::app::{App, Way};
use super::config::{AppSpec, Config, Hosting, Topology};
use super::costs::Costs;
use super::cpu::{Core, Role, Thread, WEIGHT_NICEST};
use super::engine::Engine;
use super::event::Event;
use super::lane::{End, Side, Wire};
use super::random::Random;
use super::world::World;
use crate::calendar::Calendar;
use base::Latencies;
use reactor::PollPolicy;
use std::collections::VecDeque;
use std::ops::Range;
use switch::knobs::{Lanes, Polling, ThreadPriority};
use switch::{
    ApplicationSteering, Class, ClassScheduler, Doorbell, Knobs, PerClass, RequestSteering,
};

/// Applications start at distinct random times within this time.
const START_NS: u64 = 200_000;

/// Builds a world at its start.
pub(super) fn world<'a>(config: &'a Config, costs: &'a Costs) -> World<'a> {
    let mut random = Random::new(config.seed);
    let (host_cores, target_cores) = places(config);
    let hosts = host_cores.len();
    let all = host_cores.end.max(target_cores.end);
    let knobs = config.knobs;
    let cores = (0..all)
        .map(|_| Core::new(&costs.core.noise, &knobs, &mut random))
        .collect();
    let steering = (0..hosts as u64)
        .map(|core| RequestSteering::new(knobs.request_steering, hosts, config.seed ^ core << 32))
        .collect();
    let wires = match config.topology {
        Topology::Network { link, .. } => Some([Wire::new(link), Wire::new(link)]),
        Topology::Split | Topology::Shared { .. } => None,
    };
    let mut world = World {
        config,
        costs,
        knobs,
        now: 0,
        calendar: Calendar::new(),
        random,
        executing: None,
        cores,
        host_cores,
        target_cores,
        threads: Vec::new(),
        engines: Vec::new(),
        target_engines: 0..0,
        apps: Vec::new(),
        ends: Vec::new(),
        lanes: Vec::new(),
        lane_class: PerClass::from_fn(|class| match knobs.lanes {
            Lanes::PerClass => class,
            Lanes::Shared => Class::Throughput,
        }),
        wires,
        requests: Vec::new(),
        spare_requests: Vec::new(),
        packets: Vec::new(),
        spare_packets: Vec::new(),
        egress_bytes: vec![vec![0; hosts]; config.targets],
        host_outstanding: vec![PerClass::default(); hosts],
        latency_apps: vec![0; hosts],
        host_loads: vec![PerClass::default(); hosts],
        steering,
        application_steering: [
            ApplicationSteering::new(knobs.application_steering),
            ApplicationSteering::new(knobs.application_steering),
        ],
        closing: false,
        issued: 0,
        direct: 0,
        completed: 0,
        measuring: false,
        histograms: PerClass::from_fn(|_| Latencies::new()),
        bytes: PerClass::default(),
        utilisation: Vec::new(),
    };
    world.populate();
    world.schedule_plan();
    world
}

/// Returns the cores of the host and of the target.
const fn places(config: &Config) -> (Range<usize>, Range<usize>) {
    match config.topology {
        Topology::Network {
            host_cores,
            target_cores,
            ..
        } => (0..host_cores, host_cores..host_cores + target_cores),
        Topology::Split => (1..2, 0..1),
        Topology::Shared { cores } => (0..cores, 0..cores),
    }
}

/// Gives a thread for `Latency` requests the priority that the knobs set.
fn raise(thread: &mut Thread, knobs: &Knobs) {
    match knobs.latency_threads {
        ThreadPriority::Default => {}
        ThreadPriority::Nice => thread.weight = WEIGHT_NICEST,
    }
}

/// Gives a dataplane thread that serves all classes the priority that the knobs set.
fn raise_shared(thread: &mut Thread, knobs: &Knobs) {
    if knobs.raises_dataplane() {
        thread.weight = WEIGHT_NICEST;
    }
}

impl World<'_> {
    fn populate(&mut self) {
        if self.config.hosting == Hosting::Worker {
            for core in self.host_cores.clone() {
                self.add_loop(Side::Host, core, true);
            }
        }
        let config = self.config;
        for spec in &config.apps {
            for place in 0..spec.count {
                self.add_app(spec, place);
            }
        }
        let first = self.engines.len();
        for core in self.target_cores.clone() {
            self.add_loop(Side::Target, core, true);
        }
        self.target_engines = first..self.engines.len();
        for engine in 0..first {
            for _ in 0..self.config.targets {
                let classes = PerClass::from_fn(|class| self.add_lane(engine, class));
                self.lanes.push(classes);
            }
        }
    }

    /// Adds a loop with its own thread.
    fn add_loop(&mut self, side: Side, core: usize, latency: bool) -> usize {
        let mut thread = Thread::new(Role::Engine(self.engines.len()), core);
        let own = self.config.hosting == Hosting::Inline;
        if side == Side::Target || !own {
            raise_shared(&mut thread, &self.knobs);
        } else if latency {
            raise(&mut thread, &self.knobs);
        }
        self.threads.push(thread);
        let way = match self.config.hosting {
            Hosting::Worker => Way::Ingress,
            Hosting::Inline => Way::Direct,
        };
        let engine = self.add_engine(side, self.threads.len() - 1, way);
        let it = &mut self.cores[core];
        if self.knobs.polling == Polling::Adaptive {
            it.idle.set_policy(PollPolicy::Auto);
        }
        it.keeps |= side == Side::Host && self.config.hosting == Hosting::Worker;
        engine
    }

    /// Adds a loop of this thread.
    fn add_engine(&mut self, side: Side, thread: usize, way: Way) -> usize {
        let scheduler = ClassScheduler::new(self.knobs.service());
        self.engines.push(Engine::new(side, thread, way, scheduler));
        self.engines.len() - 1
    }

    fn add_app(&mut self, spec: &AppSpec, place: usize) {
        let number = self.apps.len();
        let core = self.host_cores.start + (spec.first_core + place) % self.host_cores.len();
        let latency = spec.class == Class::Latency;
        let (thread, engine) = match self.config.hosting {
            Hosting::Inline => {
                let engine = self.add_loop(Side::Host, core, latency);
                (self.engines[engine].thread, Some(engine))
            }
            Hosting::Worker => {
                let mut thread = Thread::new(Role::App(number), core);
                if latency {
                    raise(&mut thread, &self.knobs);
                }
                self.threads.push(thread);
                let thread = self.threads.len() - 1;
                let direct = latency && self.enters(core);
                let engine = direct.then(|| self.add_engine(Side::Host, thread, Way::Direct));
                (thread, engine)
            }
        };
        self.apps.push(App {
            class: spec.class,
            bytes: spec.bytes,
            depth: spec.depth,
            write_permille: spec.write_permille,
            interval: spec.rate.map(|rate| 1_000_000_000 / rate.max(1)),
            thread,
            engine,
            direct_outstanding: 0,
            target: place % self.config.targets,
            outstanding: 0,
            outstanding_bytes: 0,
            load: switch::load::ClassLoad::default(),
            completed: Vec::new(),
            unnotified: switch::Coalescer::default(),
            intended: VecDeque::new(),
        });
        let begin = self.random.below(START_NS);
        self.calendar.push(begin, Event::Start { app: number });
    }

    /// Counts an application with `Latency` requests on a core. Returns true if few are there, so
    /// that it opens its own lane.
    fn enters(&mut self, core: usize) -> bool {
        let core = self.host_index(core);
        self.latency_apps[core] += 1;
        self.latency_apps[core] <= self.knobs.direct_submitters
    }

    /// Adds the lane of a host engine for a class to the next target: a pair of ends, served on the
    /// target by the core with the same number, modulo the number of cores.
    fn add_lane(&mut self, engine: usize, class: Class) -> Option<usize> {
        let it = &self.engines[engine];
        let served = match (self.config.hosting, it.way) {
            (Hosting::Worker, Way::Direct) => class == Class::Latency,
            _ => self.lane_class[class] == class,
        };
        if !served {
            return None;
        }
        let thread = it.thread;
        let turn = match self.config.hosting {
            Hosting::Worker => self.host_index(self.threads[thread].core),
            Hosting::Inline => engine,
        };
        let served_by = self.target_engines.start + turn % self.target_engines.len();
        let (host, target) = (self.ends.len(), self.ends.len() + 1);
        for (side, owner, peer) in [
            (Side::Host, engine, target),
            (Side::Target, served_by, host),
        ] {
            let doorbell = Doorbell::new(side.doorbell(&self.knobs));
            let mut end = End::new(side, class, owner, doorbell);
            end.peer = peer;
            self.ends.push(end);
        }
        Some(host)
    }

    /// Schedules the events that are known at the start.
    fn schedule_plan(&mut self) {
        let measure = self.config.warmup.0;
        self.calendar.push(measure, Event::Measure);
        self.calendar
            .push(measure + self.config.measured.0, Event::Close);
        for (index, turn) in self.config.turns.iter().enumerate() {
            self.calendar.push(turn.at.0, Event::Turn { index });
        }
        for side in [Side::Host, Side::Target] {
            let period = self.knobs.application_steering.period.0;
            self.calendar.push(period, Event::Steer { side });
        }
    }
}
