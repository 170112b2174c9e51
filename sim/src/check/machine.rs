//! Who lives in a run, and what happens to them.

use super::Survived;
use super::feature::Feature;
use super::plan::{Incident, Plan};
use crate::client::{Report, Workload};
use crate::disk::{Disk, DiskFaults};
use crate::driver::SimDriver;
use crate::host_core::{Application, HostCore};
use crate::network::NetworkFaults;
use crate::oracle::Oracle;
use crate::storage::{TargetCore, settle, target_cores};
use crate::turner::random_position;
use crate::world::{Actor, Outcome, Pace, World};
use crate::{Mix, client};
use base::{Nanos, Prng};
use block::Geometry;
use host::{ConnectOptions, HostIdentity, ReplayPolicy};
use reactor::{Core, Driver, PollPolicy, Service};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use target::{Change, NamespaceOptions, SubsystemOptions, Target};

const SUBSYSTEM: &str = "nqn.2026-11.io.switchyard:shared";
const LIARS: &str = "nqn.2026-11.io.switchyard:liars";

/// Versions of different volumes differ, so that nobody takes one's block for another's.
const VERSIONS_PER_VOLUME: u64 = 1 << 32;

/// A volume, and all that is known of its content.
#[derive(Debug)]
struct Volume {
    disk: Disk,
    oracle: Rc<RefCell<Oracle>>,
    uuid: [u8; 16],
}

/// The target's process.
#[derive(Debug)]
struct Process {
    shared: Arc<Target>,
    cores: Vec<TargetCore>,
    /// Free buffers of each core when it began.
    buffers: Vec<Vec<usize>>,
    turning: Option<Change>,
}

/// A host, and what its applications have to do.
#[derive(Debug)]
struct Host {
    core: Core<SimDriver, HostCore>,
    applications: Vec<Application>,
    buffers: Vec<usize>,
}

/// All of a run.
pub(super) struct Machine {
    pub(super) world: World,
    plan: Plan,
    prng: Prng,
    /// Those that are served, by NSID.
    volumes: Vec<Volume>,
    /// Those in whose place others came.
    replaced: Vec<Volume>,
    made: u64,
    /// Which life of the disks' caches it is.
    cache_life: u64,
    target: Option<Process>,
    address: SocketAddr,
    hosts: Vec<Host>,
    hosts_made: u64,
    liar: Option<Host>,
    liars_disk: Volume,
    /// What came of applications, of crashed hosts too.
    reports: Vec<Rc<RefCell<Report>>>,
    incidents: BTreeMap<Cow<'static, str>, u64>,
}

fn free_buffers(driver: &SimDriver) -> Vec<usize> {
    driver.buffers().usage().map(|(_, free, _)| free).collect()
}

impl Volume {
    /// The volume with this number.
    fn new(number: u64, plan: &Plan, prng: &mut Prng) -> Self {
        let geometry = Geometry {
            block_bytes: plan.block_bytes,
            blocks: plan.blocks,
        };
        let volatile = plan.features.contains(&Feature::Cache);
        let blocks = usize::try_from(plan.blocks).expect("a small disk");
        let oracle = Oracle::new(blocks).numbered_from(1 + number * VERSIONS_PER_VOLUME);
        let mut uuid = [0; 16];
        prng.fill(&mut uuid);
        Self {
            disk: Disk::new(geometry, volatile, plan.disk, prng.next_u64()),
            oracle: Rc::new(RefCell::new(if volatile {
                oracle.with_volatile_cache()
            } else {
                oracle
            })),
            uuid,
        }
    }

    fn lose_power(&self) {
        self.disk.lose_power();
        self.oracle.borrow_mut().power_lost();
    }

    /// Every block is what it may be.
    fn check(&self) {
        let mut oracle = self.oracle.borrow_mut();
        let began = oracle.begin_read();
        let blocks = usize::try_from(block::Device::geometry(&self.disk).blocks);
        for block in 0..blocks.expect("a small disk") {
            let bytes = self.disk.block(block);
            let version = client::version_of(block, &bytes);
            assert!(
                oracle.allows(block, began, version),
                "at the end block {block} holds version {version}; allowed were {:?}",
                oracle.allowed(block, began).collect::<Vec<_>>()
            );
        }
        oracle.end_read(began);
    }
}

impl Machine {
    pub(super) fn new(seed: u64, plan: &Plan) -> Self {
        let world = World::new(seed, plan.network);
        world.set_pace(plan.pace);
        world.watch();
        let mut prng = Prng::from_seed(seed ^ 0x6D61_6368_696E_6573);
        let volumes = plan.volumes as u64;
        let mut machine = Self {
            world,
            volumes: (0..volumes)
                .map(|n| Volume::new(n, plan, &mut prng))
                .collect(),
            replaced: Vec::new(),
            made: volumes + 1,
            cache_life: 1,
            liars_disk: Volume::new(volumes, plan, &mut prng),
            plan: plan.clone(),
            prng,
            target: None,
            address: SocketAddr::from(([10, 0, 0, 1], 4420)),
            hosts: Vec::new(),
            hosts_made: 0,
            liar: None,
            reports: Vec::new(),
            incidents: BTreeMap::new(),
        };
        machine.start_target();
        for number in 0..plan.hosts {
            let applications = machine.applications(number);
            let host = machine.host(SUBSYSTEM, number as u64, applications);
            machine.hosts.push(host);
        }
        if plan.lie_one_in > 0 {
            let workload = Workload {
                requests: u64::MAX,
                ..plan.workload
            };
            let application = Application {
                mix: Mix::Everything,
                judged: false,
                ..Application::alone(workload, machine.prng.next_u64())
            };
            let host = machine.host(LIARS, 1_000, vec![application]);
            machine.world.tell_lies(&host.core.driver, plan.lie_one_in);
            machine.liar = Some(host);
        }
        machine
    }

    /// A process begins to serve the volumes.
    fn start_target(&mut self) {
        let count = self.plan.target_cores;
        let mut limits = self.plan.limits.clone();
        if !self.plan.features.contains(&Feature::Foreign) {
            limits.cache_life = self.cache_life;
        }
        let shared = Target::new(limits, count).expect("valid limits");
        for name in [SUBSYSTEM, LIARS] {
            let options = SubsystemOptions::open_to_all(name);
            shared.add_subsystem(options).expect("a new subsystem");
        }
        let served = (1..).zip(&self.volumes);
        let served = served.map(|(nsid, volume)| (SUBSYSTEM, nsid, volume));
        for (name, nsid, volume) in served.chain([(LIARS, 1, &self.liars_disk)]) {
            let options = NamespaceOptions {
                nsid,
                device: Arc::new(volume.disk.clone()),
                uuid: volume.uuid,
                nguid: [0; 16],
                eui64: [0; 8],
                read_only: false,
                qos: None,
            };
            shared
                .add_namespace(name, options)
                .expect("a new namespace");
        }
        let (mut cores, _) = target_cores(&self.world, &shared, count, self.address);
        let buffers = cores
            .iter()
            .map(|core| free_buffers(&core.driver))
            .collect();
        let attached = shared.attach(cores.iter().map(TargetCore::sender).collect());
        settle(&self.world, &mut cores, || attached.poll().is_some());
        self.target = Some(Process {
            shared,
            cores,
            buffers,
            turning: None,
        });
    }

    /// The applications of a host, on the volumes in turn.
    fn applications(&mut self, host: usize) -> Vec<Application> {
        self.hosts_made += 1;
        let make = |number: usize| {
            let place = (host + number) % self.volumes.len();
            Application {
                nsid: u32::try_from(place + 1).expect("a few"),
                mix: Mix::Everything,
                tolerance: self.plan.tolerance.on_volume(place),
                host: self.hosts_made,
                oracle: Some(Rc::clone(&self.volumes[place].oracle)),
                rest: Some((self.plan.workload.requests / 2, self.plan.rest)),
                ..Application::alone(self.plan.workload, self.prng.next_u64())
            }
        };
        (0..self.plan.applications).map(make).collect()
    }

    fn host(&mut self, subsystem: &str, number: u64, applications: Vec<Application>) -> Host {
        let mut driver = self.world.driver();
        let buffers = free_buffers(&driver);
        let mut id = [0; 16];
        self.prng.fill(&mut id);
        let name = format!("nqn.2026-11.io.switchyard:host{number}");
        let identity = HostIdentity {
            nqn: host::parse_nqn(&name).expect("a valid name"),
            id,
        };
        let digests = self.plan.features.contains(&Feature::Digests);
        let options = ConnectOptions {
            queues: self.plan.queues,
            header_digest: digests,
            data_digest: digests,
            persistent: true,
            keep_alive: self.plan.keep_alive,
            command_timeout: self.plan.command_timeout,
            loss_timeout: None,
            replay: ReplayPolicy::WhenSafe,
            seed: self.prng.next_u64(),
            ..ConnectOptions::new(
                self.address,
                host::parse_nqn(subsystem).expect("a valid name"),
                identity,
            )
        };
        let mut core = HostCore::with(options, applications.clone(), &mut driver);
        if subsystem == SUBSYSTEM {
            core = core.expecting(self.plan.provoked);
            let reports = applications.iter().map(|app| Rc::clone(&app.report));
            self.reports.extend(reports);
        }
        Host {
            core: Core::new(driver, core, PollPolicy::Never),
            applications,
            buffers,
        }
    }

    /// Answers that applications must have in the end.
    pub(super) fn total(&self) -> u64 {
        let applications = self.plan.hosts * self.plan.applications;
        self.plan.workload.requests * applications as u64
    }

    /// Lets all live until so many answers are there.
    pub(super) fn run(&mut self, at_most: Nanos, done: impl Fn(u64) -> bool) -> Outcome {
        let until = self.world.now() + at_most;
        let reports = self.reports.clone();
        self.run_until(until, || {
            let answered = reports.iter().map(|report| report.borrow().answered);
            done(answered.sum())
        })
    }

    fn run_until(&mut self, until: base::Time, done: impl FnMut() -> bool) -> Outcome {
        let mut actors: Vec<&mut dyn Actor> = Vec::new();
        if let Some(target) = &mut self.target {
            actors.extend(target.cores.iter_mut().map(|core| core as &mut dyn Actor));
        }
        let hosts = self.hosts.iter_mut().chain(&mut self.liar);
        actors.extend(hosts.map(|host| &mut host.core as &mut dyn Actor));
        self.world.run(&mut actors, until, done)
    }

    /// Where everybody stands, for a message.
    pub(super) fn standing(&self) -> String {
        let reports: Vec<_> = self.reports.iter().map(|report| *report.borrow()).collect();
        let phases: Vec<_> = self
            .hosts
            .iter()
            .map(|host| {
                let association = host.core.service.association();
                (association.phase(), association.last_error())
            })
            .collect();
        format!("{:?}: {reports:?} {phases:?}", self.world.now())
    }

    /// Something happens.
    pub(super) fn meets(&mut self, incident: Incident) {
        match incident {
            Incident::CrashTarget { down, power, other } => self.crash_target(down, power, other),
            Incident::CrashHost(number) => self.crash_host(number),
            Incident::PauseTarget(core, pause) => {
                let until = self.world.now() + pause;
                let target = self.target.as_mut().expect("the target runs");
                target.cores[core].hold(until);
                self.count("pauses");
            }
            Incident::PauseHost(number, pause) => {
                let until = self.world.now() + pause;
                self.hosts[number].core.hold(until);
                self.count("pauses");
            }
            Incident::TurnKnobs => self.turn_knobs(),
        }
    }

    fn count(&mut self, kind: &'static str) {
        *self.incidents.entry(Cow::Borrowed(kind)).or_default() += 1;
    }

    fn crash_target(&mut self, down: Nanos, power: bool, other: bool) {
        self.target = None;
        self.count("target crashes");
        if power {
            self.count("power losses");
            self.cache_life += 1;
            let volumes = self.volumes.iter().chain([&self.liars_disk]);
            volumes.for_each(Volume::lose_power);
        }
        let until = self.world.now() + down;
        self.run_until(until, || false);
        self.world.wait_until(until);
        if other {
            self.count("other volumes");
            let volume = Volume::new(self.made, &self.plan, &mut self.prng);
            self.made += 1;
            for host in &mut self.hosts {
                host.core.service.is_replaced(1, &volume.oracle);
            }
            self.replaced
                .push(std::mem::replace(&mut self.volumes[0], volume));
        }
        self.start_target();
    }

    fn crash_host(&mut self, number: usize) {
        self.count("host crashes");
        let crashed = self.hosts.remove(number);
        drop(crashed.core);
        let mut applications = crashed.applications;
        self.hosts_made += 1;
        for application in &mut applications {
            let answered = application.report.borrow().answered;
            application.workload.requests -= answered;
            application.report = Rc::default();
            let place = application.nsid as usize - 1;
            application.oracle = Some(Rc::clone(&self.volumes[place].oracle));
            application.seed = self.prng.next_u64();
            application.host = self.hosts_made;
        }
        let host = self.host(SUBSYSTEM, number as u64, applications);
        self.hosts.insert(number, host);
    }

    fn turn_knobs(&mut self) {
        let Some(target) = &mut self.target else {
            return;
        };
        let turning = target.turning.as_ref();
        if turning.is_some_and(|turning| turning.poll().is_none()) {
            return;
        }
        let knobs = random_position(&mut self.prng, &target.shared.knobs());
        let change = target.shared.begin_knobs(knobs);
        target.turning = Some(change.expect("the position is valid"));
        self.count("knobs turned");
    }

    /// From now on nothing goes wrong.
    pub(super) fn calm(&mut self) {
        self.world.set_faults(NetworkFaults::CALM);
        self.world.set_pace(Pace::default());
        for volume in &self.volumes {
            volume.disk.set_faults(DiskFaults {
                delay_max: self.plan.disk.delay_max,
                ..DiskFaults::default()
            });
        }
    }

    /// Everybody leaves; nothing is left over, and every block is what it may be.
    pub(super) fn end(&mut self, at_most: Nanos) {
        let until = self.world.now() + at_most;
        while !self.hosts.iter().all(|host| host.core.service.finished()) {
            let next = self.world.now() + Nanos::from_secs(1);
            assert!(next < until, "a host does not end: {}", self.standing());
            self.run_until(next, || false);
            self.world.wait_until(next);
        }
        for host in self.hosts.drain(..) {
            assert_eq!(
                free_buffers(&host.core.driver),
                host.buffers,
                "a host keeps buffers"
            );
            assert_eq!(host.core.driver.open_sockets(), 0, "a host keeps sockets");
        }
        self.liar = None;
        let mut target = self.target.take().expect("the target runs");
        let shared = Arc::clone(&target.shared);
        let empty = move || {
            let snapshot = shared.snapshot();
            snapshot.controllers.is_empty() && snapshot.cores.iter().all(|c| c.connections == 0)
        };
        let outcome = self.run_target(&mut target, until, empty);
        let left = target.shared.snapshot();
        assert_eq!(
            outcome,
            Outcome::Done,
            "left over: {:?} {:?}",
            left.controllers,
            left.cores
        );
        for (core, buffers) in target.cores.iter().zip(&target.buffers) {
            assert_eq!(
                &free_buffers(&core.driver),
                buffers,
                "the target keeps buffers"
            );
        }
        target.shared.shutdown();
        while !target.cores.iter().all(|core| core.service.finished()) {
            let next = self.world.now() + Nanos::from_millis(100);
            assert!(next < until, "the target does not end");
            self.run_target(&mut target, next, || false);
            self.world.wait_until(next);
        }
        drop(target);
        let volumes = self.volumes.iter().chain(&self.replaced);
        for volume in volumes {
            volume.check();
            volume.lose_power();
            volume.check();
        }
    }

    fn run_target(
        &self,
        target: &mut Process,
        until: base::Time,
        done: impl FnMut() -> bool,
    ) -> Outcome {
        let cores = target.cores.iter_mut();
        let mut actors: Vec<_> = cores.map(|core| core as &mut dyn Actor).collect();
        self.world.run(&mut actors, until, done)
    }

    /// What everybody survived so far.
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
        let network = self.world.network_totals();
        let mut add = |kind: &'static str, count: u64| {
            if count > 0 {
                *survived.faults.entry(Cow::Borrowed(kind)).or_default() += count;
            }
        };
        add("cuts", network.cuts);
        add("severed connections", network.severed);
        add("refused connects", network.refusals);
        add("flipped bits", network.flips);
        add("lies", network.lies);
        let volumes = self.volumes.iter().chain(&self.replaced);
        for disk in volumes
            .chain([&self.liars_disk])
            .map(|volume| volume.disk.totals())
        {
            add("failed disk requests", disk.failed);
            add("late disk requests", disk.late);
            add("torn disk requests", disk.torn);
            add("lost blocks", disk.lost);
        }
        survived.fingerprint ^= self.world.now().0;
        survived
    }
}
