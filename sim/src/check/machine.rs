//! A complete run: its actors and incidents.

mod by_hand;
mod deaths;
mod ending;
mod hosts;
mod incidents;
mod keys;
mod orphans;
mod take_overs;

use super::Survived;
use super::audit::Audit;
use super::cast::{Cast, Host, LANES, Process};
use super::feature::Feature;
use super::plan::Plan;
use super::proofs::{KnownKeys, OwnKeys};
use super::tenants::{Tenants, host_name};
use super::volume::{DispatcherCore, Volume};
use crate::application::{Application, ApplicationReport};
use crate::disk::{Disk, DiskFaults};
use crate::network::NetworkFaults;
use crate::rights::Rights;
use crate::shared::Pace;
use crate::storage::{TargetCore, settle, silent_cores, target_cores};
use crate::world::{Outcome, World};
use base::{Nanos, Prng, Time};
use host::Phase;
use reactor::Service as _;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use take_overs::Serving;
use target::{Limits, Listener, NamespaceOptions, SubsystemOptions, Target};

const SUBSYSTEM: &str = "nqn.2026-11.io.switchyard:shared";
const LIARS: &str = "nqn.2026-11.io.switchyard:liars";

/// Interval between checks for hosts that have given up.
const REVIVAL: Nanos = Nanos::from_secs(30);

/// State of a target, whether it runs or not.
#[derive(Debug)]
struct Known {
    address: SocketAddr,
    /// Served volumes, by NSID.
    volumes: Vec<Volume>,
    /// Volumes that were replaced.
    replaced: Vec<Volume>,
    /// Number of the life of the disks' caches.
    cache_life: u64,
    /// Number of processes that have served the volumes.
    starts: u64,
    /// The last volume is currently not a namespace.
    removed: bool,
    /// The disk of the scripted host.
    by_hand: Disk,
    /// Tenants of the hosts.
    tenants: Tenants,
    /// Permissions by host, then by volume.
    rights: Vec<Vec<Rights>>,
    /// Keys of the hosts.
    keys: KnownKeys,
    /// Whether its process has all connections.
    serving: Cell<Serving>,
}

/// A complete run.
pub(super) struct Machine {
    pub(super) world: World,
    plan: Plan,
    prng: Prng,
    cast: Rc<RefCell<Cast>>,
    known: Vec<Known>,
    made: u64,
    hosts_made: u64,
    liars_disk: Volume,
    /// Reports of applications, including those of crashed hosts.
    reports: Vec<Rc<RefCell<ApplicationReport>>>,
    /// Requests answered to these applications.
    answered: Rc<Cell<u64>>,
    audits: Rc<RefCell<Vec<Audit>>>,
    /// Keys of the hosts, and the draws of others.
    keys: Vec<OwnKeys>,
    key_prng: Prng,
    /// Time at which the hosts were created.
    begun: Time,
    /// Runners of hosts' paths replaced by other submitters.
    deposed: Rc<Cell<u64>>,
    incidents: BTreeMap<Cow<'static, str>, u64>,
}

impl Machine {
    pub(super) fn new(seed: u64, plan: &Plan) -> Self {
        let world = World::new(seed, plan.network);
        world.set_pace(plan.pace);
        world.watch();
        let mut prng = Prng::from_seed(seed ^ 0x6D61_6368_696E_6573);
        let mut made = 0;
        let mut volume = |prng: &mut Prng| {
            made += 1;
            Volume::new(made - 1, plan, prng)
        };
        let mut key_prng = Prng::from_seed(seed ^ 0x6B65_7973);
        let draw = |_| OwnKeys::draw(&mut key_prng);
        let keys: Vec<_> = (0..plan.hosts).map(draw).collect();
        let known = (1..).take(plan.targets).map(|number| Known {
            address: SocketAddr::from(([10, 0, 0, number], 4420)),
            volumes: (0..plan.volumes).map(|_| volume(&mut prng)).collect(),
            replaced: Vec::new(),
            cache_life: 1,
            starts: 0,
            removed: false,
            by_hand: crate::by_hand::disk(number.into()),
            tenants: Tenants::default(),
            rights: Vec::new(),
            keys: KnownKeys::new(&keys, &plan.proofs),
            serving: Cell::default(),
        });
        let mut known: Vec<_> = known.collect();
        for target in &mut known {
            let of_host = |_| (0..plan.volumes).map(|_| Rights::default()).collect();
            target.rights = (0..plan.hosts).map(of_host).collect();
        }
        let liars_disk = volume(&mut prng).shared();
        let mut machine = Self {
            world,
            cast: Rc::default(),
            known,
            made,
            liars_disk,
            plan: plan.clone(),
            prng,
            hosts_made: 0,
            reports: Vec::new(),
            answered: Rc::default(),
            audits: Rc::default(),
            keys,
            key_prng,
            begun: Time::ZERO,
            deposed: Rc::default(),
            incidents: BTreeMap::new(),
        };
        for target in 0..plan.targets {
            machine.cast.borrow_mut().targets.push(None);
            machine.start_target(target);
        }
        machine.world.set_memory(plan.memory.clone());
        machine.begun = machine.world.now();
        for number in 0..plan.hosts {
            let applications = machine.applications(number);
            let host = machine.host(number, applications);
            machine.cast.borrow_mut().hosts.push(host);
        }
        if plan.lie_one_in > 0 {
            machine.add_liar();
        }
        machine
    }

    fn has(&self, feature: Feature) -> bool {
        self.plan.features.contains(&feature)
    }

    /// Starts a process that serves a target's volumes.
    fn start_target(&mut self, number: usize) {
        let limits = if self.known[number].starts > 0 && self.has(Feature::OtherLimits) {
            let least = self.queues_min();
            self.plan.limits_anew(least, &mut self.prng)
        } else {
            self.plan.limits.clone()
        };
        self.known[number].starts += 1;
        self.known[number].serving.set(Serving::All);
        let (process, audit) = self.process(number, limits, false);
        self.set_audit(number, audit);
        self.cast.borrow_mut().targets[number] = Some(process);
    }

    /// Starts a process with these limits. It listens, unless it takes the target over.
    fn process(&mut self, number: usize, mut limits: Limits, takes_over: bool) -> (Process, Audit) {
        let count = self.plan.target_cores;
        let known = &self.known[number];
        if !self.has(Feature::Foreign) {
            limits.cache_life = known.cache_life;
            // A target that restarts with another life of its caches is another machine with the
            // same storage.
            limits.incarnation = (known.cache_life << 32) | known.starts;
        }
        let shared = Target::new(limits, count).expect("valid limits");
        for options in [self.subsystem(), SubsystemOptions::open_to_all(LIARS)] {
            shared.add_subsystem(options).expect("a new subsystem");
        }
        if self.has(Feature::ByHand) {
            crate::by_hand::serve(&shared, &known.by_hand);
        }
        let mut audit = Audit::new(self.world.now(), self.plan.tokens_per_second);
        let (namespaces, mut dispatchers) = self.namespaces(number, &mut audit);
        for options in namespaces {
            shared
                .add_namespace(SUBSYSTEM, options)
                .expect("a new namespace");
        }
        let (liars, dispatcher) = self.liars_disk.as_namespace(1, || self.world.driver());
        dispatchers.extend(dispatcher);
        shared.add_namespace(LIARS, liars).expect("a new namespace");
        shared
            .set_tenants(&known.tenants.tenancy())
            .expect("a good tenancy");
        shared.set_keys(known.keys.ring());
        // The target's memory in addition to that of its hosts suffices for them.
        self.world.set_memory(self.plan.memory.clone());
        let tls = self.plan.proofs.mode();
        let address = known.address;
        shared.set_listeners(&[Listener { address, tls }]);
        let mut cores = if takes_over {
            silent_cores(&self.world, &shared, count)
        } else {
            target_cores(&self.world, &shared, count, address, tls).0
        };
        if let (true, Some(other)) = (takes_over, &self.cast.borrow().targets[number]) {
            let clock = &other.cores[0].driver;
            let cores = cores.iter_mut();
            cores.for_each(|core| core.driver.shares_clock_with(clock));
        }
        let buffers = cores
            .iter()
            .map(|core| core.driver.free_buffers())
            .collect();
        let attached = shared.attach(cores.iter().map(TargetCore::sender).collect());
        settle(&self.world, &mut cores, || attached.poll().is_some());
        audit.watch(&shared);
        let mut process = Process {
            shared,
            cores,
            dispatchers: Vec::new(),
            buffers,
            turning: None,
        };
        for dispatcher in dispatchers {
            process.add_dispatcher(dispatcher);
        }
        (process, audit)
    }

    /// Returns the minimum I/O queues of a target with which every application makes progress,
    /// possibly with errors or after other applications. Dispatchers of paths keep one queue per
    /// volume until the end, and a host's switchboard opens only with a queue for each lane.
    fn queues_min(&self) -> u16 {
        let hosts = 0..self.plan.hosts;
        let has_board = hosts.clone().any(|host| self.plan.has_board(host));
        let cast = self.cast.borrow();
        let opened = cast.hosts.iter().all(Host::has_opened);
        if has_board && (self.has(Feature::HostCrashes) || !opened) {
            return LANES;
        }
        let by_path = self.plan.paths.iter().any(Option::is_some);
        1 + if by_path { 2 } else { 0 }
    }

    /// Returns the subsystem of the hosts, without its namespaces.
    fn subsystem(&self) -> SubsystemOptions {
        SubsystemOptions {
            allow_any_host: !self.has(Feature::Denials),
            allowed_hosts: (0..self.plan.hosts).map(host_name).collect(),
            authentication: self.plan.proofs.authentication(),
            ..SubsystemOptions::open_to_all(SUBSYSTEM)
        }
    }

    /// Returns the namespaces of that subsystem at a target, and the dispatchers of paths to their
    /// volumes.
    fn namespaces(
        &self,
        target: usize,
        audit: &mut Audit,
    ) -> (Vec<NamespaceOptions>, Vec<DispatcherCore>) {
        let known = &self.known[target];
        let served = known.volumes.len() - usize::from(known.removed);
        let mut dispatchers = Vec::new();
        let namespaces = (1..).zip(&known.volumes[..served]).map(|(nsid, volume)| {
            let (mut options, dispatcher) = volume.as_namespace(nsid, || self.world.driver());
            dispatchers.extend(dispatcher);
            options.qos = audit.device(nsid);
            options
        });
        (namespaces.collect(), dispatchers)
    }

    fn set_audit(&self, target: usize, audit: Audit) {
        let mut audits = self.audits.borrow_mut();
        if target == audits.len() {
            audits.push(audit);
        } else {
            audits[target] = audit;
        }
    }

    /// Total number of answers that applications must have in the end.
    pub(super) fn total(&self) -> u64 {
        let applications = self.plan.targets * self.plan.hosts * self.plan.applications;
        self.plan.workload.requests * applications as u64
    }

    /// Runs all actors until `done`, called with the number of answers, returns true.
    pub(super) fn run(&mut self, at_most: Nanos, done: impl Fn(u64) -> bool) -> Outcome {
        let until = self.world.now() + at_most;
        loop {
            let next = until.min(self.world.now() + REVIVAL);
            let outcome = self.run_until(next, || done(self.answered.get()));
            if outcome == Outcome::Done || next == until {
                return outcome;
            }
            self.world.wait_until(next);
            self.revive();
        }
    }

    /// Restarts a host that gave up because its first connection was refused. A host that was
    /// connected once never gives up.
    fn revive(&mut self) {
        for number in 0..self.plan.hosts {
            let given_up = self.cast.borrow().hosts[number].gave_up();
            if let Some(generation) = given_up {
                assert_eq!(generation, 0, "a host gives up, and nothing provokes that");
                self.replace_host(number);
            }
        }
    }

    /// Ends the writes that no controller of the running targets can have any more; each target is
    /// known to have all its controllers from a time on.
    fn end_orphans(&self, running: &[(Option<Arc<Target>>, Time)]) {
        let now = self.world.now();
        let complete = |&(_, &(_, from)): &(_, &(_, Time))| from <= now;
        for (known, (target, _)) in self.known.iter().zip(running).filter(complete) {
            let volumes = known.volumes.iter().chain(&known.replaced);
            orphans::end(volumes, target.as_deref(), SUBSYSTEM);
        }
    }

    fn run_until(&self, until: Time, mut done: impl FnMut() -> bool) -> Outcome {
        let cast = &mut *self.cast.borrow_mut();
        let mut next_look = Time::ZERO;
        let mut next_end = Time::ZERO;
        let running = cast.targets.iter().enumerate().map(|(target, process)| {
            let shared = process.as_ref().map(|process| Arc::clone(&process.shared));
            (
                shared,
                self.serves_all_from(target, cast.stands_until(target)),
            )
        });
        let running: Vec<_> = running.collect();
        self.world.run(&mut cast.actors(), until, || {
            let now = self.world.now();
            if now >= next_end {
                self.end_orphans(&running);
                next_end = now + orphans::INTERVAL;
            }
            if now >= next_look {
                let audits = &mut *self.audits.borrow_mut();
                audits.iter_mut().for_each(|audit| audit.look(now));
                let next = audits.iter().map(Audit::next_look).min();
                next_look = next.unwrap_or(Time::NEVER);
            }
            done()
        })
    }

    /// Advances time by `span` without incidents.
    fn pass(&self, span: Nanos) {
        let until = self.world.now() + span;
        self.run_until(until, || false);
        self.world.wait_until(until);
    }

    /// Returns the state of all actors, for an error message.
    pub(super) fn standing(&self) -> String {
        let reports: Vec<_> = self.reports.iter().map(|report| *report.borrow()).collect();
        let cast = self.cast.borrow();
        let associations = cast.hosts.iter().flat_map(|host| host.associations());
        let phases: Vec<_> = associations
            .map(|association| (association.phase(), association.last_error()))
            .collect();
        let buffers = cast.hosts.iter().map(Host::free_buffers);
        let buffers: Vec<_> = buffers.collect();
        format!("{:?}: {phases:?} {buffers:?} {reports:?}", self.world.now())
    }

    /// Ends all faults.
    pub(super) fn calm(&mut self) {
        self.world.set_faults(NetworkFaults::CALM);
        self.world.set_pace(Pace::default());
        for volume in self.known.iter().flat_map(|known| &known.volumes) {
            volume.disk.set_faults(DiskFaults {
                delay_max: self.plan.disk.delay_max,
                ..DiskFaults::default()
            });
        }
    }

    /// Returns the counts of all actors so far.
    pub(super) fn survived(&self) -> Survived {
        let mut survived = Survived {
            faults: self.incidents.clone(),
            deposed: self.deposed.get(),
            ..Survived::default()
        };
        for report in &self.reports {
            let report = *report.borrow();
            survived.requests += report.answered;
            survived.failed += report.failed;
            if let Some(path) = report.path {
                let by_path = survived.by_path.entry(Cow::Borrowed(path.name()));
                *by_path.or_default() += report.answered;
            }
            let mixed = survived.fingerprint ^ report.fingerprint;
            survived.fingerprint = mixed.wrapping_mul(0x0100_0000_01B3);
        }
        let mut add = |kind: &'static str, count: u64| {
            if count > 0 {
                *survived.faults.entry(Cow::Borrowed(kind)).or_default() += count;
            }
        };
        for (kind, count) in self.world.network_totals().faults() {
            add(kind, count);
        }
        let volumes = self.known.iter();
        let volumes = volumes.flat_map(|known| known.volumes.iter().chain(&known.replaced));
        for volume in volumes.chain([&self.liars_disk]) {
            let disk = volume.disk.totals();
            add("failed disk requests", disk.failed);
            add("late disk requests", disk.late);
            add("torn disk requests", disk.torn);
            add("lost blocks", disk.lost);
        }
        survived.fingerprint ^= self.world.fingerprint();
        survived
    }
}
