//! The whole of a run: its actors, and the incidents that happen to them.

mod ending;
mod incidents;
mod orphans;

use super::Survived;
use super::audit::Audit;
use super::cast::{Cast, Host, Kind, Process, Switched, free_buffers};
use super::feature::Feature;
use super::plan::Plan;
use super::tenants::{Tenants, host_name};
use super::volume::{DispatcherCore, Volume};
use crate::Mix;
use crate::app::{App, Job};
use crate::application::{Application, ApplicationReport, Workload};
use crate::changing::Changes;
use crate::controlling::Controlling;
use crate::disk::DiskFaults;
use crate::driver::SimDriver;
use crate::host_core::HostCore;
use crate::knob_changes::random_position;
use crate::network::NetworkFaults;
use crate::rights::{Law, Rights};
use crate::shared::Pace;
use crate::storage::{TargetCore, settle, target_cores};
use crate::world::{Outcome, World};
use base::units::CoreId;
use base::{Nanos, Prng, Time};
use host::{ConnectOptions, HostIdentity, Phase, ReplayPolicy, Switchboard, SwitchboardOptions};
use reactor::{Core, PollPolicy, Service as _};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use switch::knobs::Lanes;
use switch::{Class, Knobs};
use target::{NamespaceOptions, SubsystemOptions, Target};

const SUBSYSTEM: &str = "nqn.2026-11.io.switchyard:shared";
const LIARS: &str = "nqn.2026-11.io.switchyard:liars";

/// Cores of a host that has a switchboard.
const SWITCHED_CORES: u32 = 2;

/// Interval between two looks at hosts that may have given up.
const REVIVAL: Nanos = Nanos::from_secs(30);

/// Longest that the connections of a host take to close: they have the memory of requests until then.
const CLOSES: Nanos = Nanos::from_secs(1);

/// The state of a target, whether it runs or not.
#[derive(Debug)]
struct Known {
    address: SocketAddr,
    /// Those that are served, by NSID.
    volumes: Vec<Volume>,
    /// Volumes that others replaced.
    replaced: Vec<Volume>,
    /// Which life of the disks' caches it is.
    cache_life: u64,
    /// Processes that served them.
    starts: u64,
    /// The last volume is no namespace now.
    removed: bool,
    /// The tenants of hosts.
    tenants: Tenants,
    /// By host, then by volume.
    rights: Vec<Vec<Rights>>,
}

/// All of a run.
pub(super) struct Machine {
    pub(super) world: World,
    plan: Plan,
    prng: Prng,
    cast: Rc<RefCell<Cast>>,
    known: Vec<Known>,
    made: u64,
    hosts_made: u64,
    liars_disk: Volume,
    /// Reports of applications, of crashed hosts too.
    reports: Vec<Rc<RefCell<ApplicationReport>>>,
    /// Requests that these applications were answered.
    answered: Rc<Cell<u64>>,
    audits: Rc<RefCell<Vec<Audit>>>,
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
        let known = (1..).take(plan.targets).map(|number| Known {
            address: SocketAddr::from(([10, 0, 0, number], 4420)),
            volumes: (0..plan.volumes).map(|_| volume(&mut prng)).collect(),
            replaced: Vec::new(),
            cache_life: 1,
            starts: 0,
            removed: false,
            tenants: Tenants::default(),
            rights: Vec::new(),
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
            incidents: BTreeMap::new(),
        };
        for target in 0..plan.targets {
            machine.cast.borrow_mut().targets.push(None);
            machine.start_target(target);
        }
        machine.world.set_memory(plan.memory.clone());
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

    /// A process begins to serve a target's volumes.
    fn start_target(&mut self, number: usize) {
        let count = self.plan.target_cores;
        let mut limits = self.plan.limits.clone();
        self.known[number].starts += 1;
        let known = &self.known[number];
        if !self.has(Feature::Foreign) {
            limits.cache_life = known.cache_life;
            limits.incarnation = known.starts;
        }
        let shared = Target::new(limits, count).expect("valid limits");
        for options in [self.subsystem(), SubsystemOptions::open_to_all(LIARS)] {
            shared.add_subsystem(options).expect("a new subsystem");
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
        // What the target has beside its hosts is enough for them.
        self.world.set_memory(self.plan.memory.clone());
        let (mut cores, _) = target_cores(&self.world, &shared, count, known.address);
        let buffers = cores
            .iter()
            .map(|core| free_buffers(&core.driver))
            .collect();
        let attached = shared.attach(cores.iter().map(TargetCore::sender).collect());
        settle(&self.world, &mut cores, || attached.poll().is_some());
        audit.watch(&shared);
        self.set_audit(number, audit);
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
        self.cast.borrow_mut().targets[number] = Some(process);
    }

    /// The subsystem of the hosts, without its namespaces.
    fn subsystem(&self) -> SubsystemOptions {
        SubsystemOptions {
            allow_any_host: !self.has(Feature::Denials),
            allowed_hosts: (0..self.plan.hosts).map(host_name).collect(),
            ..SubsystemOptions::open_to_all(SUBSYSTEM)
        }
    }

    /// The namespaces of that subsystem at a target, and the dispatchers of paths to their volumes.
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

    /// The applications of a host, on the volumes of each target in turn.
    fn applications(&mut self, host: usize) -> Vec<Application> {
        self.hosts_made += 1;
        let mut applications = Vec::new();
        for target in 0..self.plan.targets {
            for number in 0..self.plan.applications {
                let place = (host + number) % self.plan.volumes;
                let seed = self.prng.next_u64();
                let known = &self.known[target];
                let volume = &known.volumes[place];
                applications.push(Application {
                    target,
                    nsid: u32::try_from(place + 1).expect("a few"),
                    mix: Mix::Everything,
                    tolerance: self.plan.tolerance.of_volume(self.may_go(place)),
                    host: self.hosts_made,
                    oracle: Some(Rc::clone(&volume.oracle)),
                    law: Some(Law {
                        rights: known.rights[host][place].clone(),
                        extent: volume.extent.clone(),
                    }),
                    rest: Some((self.plan.workload.requests / 2, self.plan.rest)),
                    extents: self.has(Feature::Extents),
                    gives_up: self.has(Feature::GiveUps),
                    syncs: self.has(Feature::Syncs) && (host + target).is_multiple_of(2),
                    reopens: self.reopens(),
                    alone: self.plan.hosts == 1 && !self.has(Feature::HostCrashes),
                    waits: self.waits(),
                    answered: Rc::clone(&self.answered),
                    ..Application::alone(self.plan.workload, seed)
                });
            }
        }
        applications
    }

    /// Applications open other channels in the place of theirs. What was given up costs the association
    /// when its channel is closed, and blocks of lost writes are closed when their namespace comes back:
    /// errors that no checker expects of a channel that has just been opened.
    fn reopens(&self) -> bool {
        let others = [
            Feature::GiveUps,
            Feature::Removals,
            Feature::OtherVolume,
            Feature::Subsystems,
        ];
        self.has(Feature::Reopens) && !others.into_iter().any(|feature| self.has(feature))
    }

    /// Returns the longest that requests may wait for a connection; `None` if they wait for ever. A
    /// host that stands still fails none meanwhile.
    fn waits(&self) -> Option<Nanos> {
        let pauses = [Feature::Pauses, Feature::CorePauses, Feature::Jumps];
        let stands_still = pauses.into_iter().any(|feature| self.has(feature));
        let limit = self.plan.loss_timeout?;
        Some(if stands_still {
            Nanos(u64::MAX)
        } else {
            limit + CLOSES
        })
    }

    /// Another volume may come in the place of this one, or it may be no namespace for a while.
    fn may_go(&self, place: usize) -> bool {
        let replaced = place == 0 && self.has(Feature::OtherVolume);
        replaced
            || self.has(Feature::Subsystems)
            || place + 1 == self.plan.volumes && self.has(Feature::Removals)
    }

    fn options(&mut self, subsystem: &str, name: &str, address: SocketAddr) -> ConnectOptions {
        let mut id = [0; 16];
        self.prng.fill(&mut id);
        orphans::mark(&mut id, self.hosts_made);
        let identity = HostIdentity {
            nqn: host::parse_nqn(name).expect("a valid name"),
            id,
        };
        let digests = self.has(Feature::Digests);
        ConnectOptions {
            queues: self.plan.queues,
            header_digest: digests,
            data_digest: digests,
            sq_flow_control: self.has(Feature::FlowControl),
            persistent: true,
            keep_alive: self.plan.keep_alive,
            command_timeout: self.plan.command_timeout,
            loss_timeout: self.plan.loss_timeout.filter(|_| subsystem == SUBSYSTEM),
            keep_reconnecting: true,
            replay: ReplayPolicy::WhenSafe,
            seed: self.prng.next_u64(),
            ..ConnectOptions::new(
                address,
                host::parse_nqn(subsystem).expect("a valid name"),
                identity,
            )
        }
    }

    /// A host with these applications, which begins to connect to all targets.
    fn host(&mut self, number: usize, applications: Vec<Application>) -> Host {
        let addresses: Vec<_> = self.known.iter().map(|known| known.address).collect();
        let name = host_name(number);
        let options: Vec<_> = addresses
            .into_iter()
            .map(|address| self.options(SUBSYSTEM, &name, address))
            .collect();
        let reports = applications.iter().map(|app| Rc::clone(&app.report));
        self.reports.extend(reports);
        let kind = if self.plan.switched[number] {
            self.switched(options, &applications)
        } else {
            let mut driver = self.world.driver();
            let core = HostCore::with(options, applications.clone(), &mut driver);
            let core = core.expecting(self.plan.provoked);
            Kind::Plain(Box::new(Core::new(driver, core, PollPolicy::Never)))
        };
        let host = Host {
            kind,
            applications,
            buffers: Vec::new(),
        };
        host.noted()
    }

    /// Makes a host with applications that are threads which submit through a switchboard.
    fn switched(&mut self, options: Vec<ConnectOptions>, applications: &[Application]) -> Kind {
        let knobs = random_position(&mut self.prng, &Knobs::default());
        let mut controlling: Vec<Core<SimDriver, Controlling>> = Vec::new();
        for options in options {
            let mut driver = self.world.driver();
            if let Some(first) = controlling.first() {
                driver.belongs_to(&first.driver);
            }
            let options = ConnectOptions { knobs, ..options };
            let service = Controlling::new(options, &mut driver).expecting(self.plan.provoked);
            controlling.push(Core::new(driver, service, PollPolicy::Never));
        }
        let board = SwitchboardOptions {
            cores: (0..SWITCHED_CORES).map(CoreId).collect(),
            knobs,
        };
        let mut dataplane = Vec::new();
        // One thread for all classes may have a lane for each, and not the other way round.
        let apart = knobs.lanes == Lanes::PerClass && self.prng.chance(1, 2);
        let board = Switchboard::run_by(&board, apart, |place| {
            let mut driver = self.world.driver();
            driver.belongs_to(&controlling[0].driver);
            let service = place.service(&driver);
            let core = Core::new(driver, service, PollPolicy::Never);
            let sender = core.sender();
            dataplane.push(core);
            Ok(sender)
        });
        let board = board.expect("valid knobs");
        let apps = applications.iter().map(|application| {
            let class = Class::ALL[usize::from(self.prng.chance(1, 2))];
            let changes = if self.prng.chance(1, 3) {
                Changes::Often(8)
            } else {
                Changes::Never
            };
            let association = controlling[application.target].service.association();
            let job = Job {
                association: Arc::clone(association),
                application: application.clone(),
                medium: None,
                class,
                changes,
                changed: Rc::default(),
            };
            let mut driver = self.world.driver();
            driver.belongs_to(&controlling[0].driver);
            driver.wander(8, SWITCHED_CORES);
            let app = App::new(job, board.clone(), self.prng.next_u64());
            Core::new(driver, app, PollPolicy::Never)
        });
        Kind::Switched(Box::new(Switched {
            apps: apps.collect(),
            board: Some(board),
            dataplane,
            controlling,
        }))
    }

    /// Adds a host on a subsystem of its own, which no oracle judges.
    fn add_liar(&mut self) {
        self.hosts_made += 1;
        let workload = Workload {
            requests: u64::MAX,
            ..self.plan.workload
        };
        let application = Application {
            mix: Mix::Everything,
            judged: false,
            ..Application::alone(workload, self.prng.next_u64())
        };
        let address = self.known[0].address;
        let options = self.options(LIARS, "nqn.2026-11.io.switchyard:liar", address);
        let mut driver = self.world.driver();
        let core = HostCore::with(vec![options], vec![application.clone()], &mut driver);
        let (lies, one_in) = (self.plan.lies, self.plan.lie_one_in);
        self.world.tell_lies(&driver, lies, one_in);
        let liar = Host {
            kind: Kind::Plain(Box::new(Core::new(driver, core, PollPolicy::Never))),
            applications: vec![application],
            buffers: Vec::new(),
        };
        self.cast.borrow_mut().liar = Some(liar.noted());
    }

    /// Answers that applications must have in the end.
    pub(super) fn total(&self) -> u64 {
        let applications = self.plan.targets * self.plan.hosts * self.plan.applications;
        self.plan.workload.requests * applications as u64
    }

    /// Lets all live until so many answers are there.
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

    /// A host that was refused when it connected first has given up: it is started again. None gives
    /// up once it was connected.
    fn revive(&mut self) {
        for number in 0..self.plan.hosts {
            let given_up = self.cast.borrow().hosts[number].gave_up();
            if let Some(generation) = given_up {
                assert_eq!(generation, 0, "a host gives up, and nothing provokes that");
                self.replace_host(number);
            }
        }
    }

    /// Ends the writes that no controller of the targets that run can have any more.
    fn end_orphans(&self, running: &[Option<Arc<Target>>]) {
        for (known, target) in self.known.iter().zip(running) {
            let volumes = known.volumes.iter().chain(&known.replaced);
            orphans::end(volumes, target.as_deref(), SUBSYSTEM);
        }
    }

    fn run_until(&self, until: Time, mut done: impl FnMut() -> bool) -> Outcome {
        let cast = &mut *self.cast.borrow_mut();
        let mut next_look = Time::ZERO;
        let mut next_end = Time::ZERO;
        let running = cast.targets.iter();
        let running = running.map(|process| process.as_ref().map(|p| Arc::clone(&p.shared)));
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

    /// Nothing happens but what happens by itself.
    fn pass(&self, span: Nanos) {
        let until = self.world.now() + span;
        self.run_until(until, || false);
        self.world.wait_until(until);
    }

    /// Returns the state of all actors, for a message.
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

    /// From now on nothing goes wrong.
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

    /// Returns what all actors survived so far.
    pub(super) fn survived(&self) -> Survived {
        let mut survived = Survived {
            faults: self.incidents.clone(),
            ..Survived::default()
        };
        for report in &self.reports {
            let report = *report.borrow();
            survived.requests += report.answered;
            survived.failed += report.failed;
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
