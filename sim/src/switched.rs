//! A host with a switchboard, its application threads and its targets in one world.
//!
//! The whole path of a request is production code: ingress, request steering, egress, lanes with
//! doorbells, and the target with its moving queues. Everything below the drivers is simulated. In
//! addition, application threads move between cores, cores stall, connections break, and knobs of
//! both sides change.

use crate::app::{App, Job};
use crate::application::Application;
use crate::application::{ApplicationReport, Workload};
use crate::cache::{Cache, Medium};
pub use crate::changing::Changes;
use crate::controlling::Controlling;
use crate::driver::SimDriver;
use crate::knob_changes::{KnobChanger, Turns};
use crate::network::NetworkFaults;
use crate::oracle::Oracle;
use crate::shared::Pace;
use crate::storage::{TargetCore, add_namespace, serve, settle};
use crate::world::{Actor, Outcome, World};
use base::Nanos;
use base::units::CoreId;
use block::Device;
use block::device::Ram;
use block::layer::delay::{Delay, DelayOptions};
use host::switchboard::{CoreCounters, EgressService};
use host::{ConnectOptions, HostIdentity, Switchboard, SwitchboardOptions};
use reactor::{Core, PollPolicy, Service};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use switch::{Class, Knobs, PerClass};
use target::{Limits, SubsystemOptions, Target};

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Targets, each with a subsystem of two namespaces.
    pub targets: usize,
    /// Cores of each target.
    pub target_cores: usize,
    /// Cores of the host.
    pub cores: usize,
    /// Application threads of each class, assigned to targets and namespaces in turn.
    pub apps: PerClass<usize>,
    /// Workload of each thread, by class.
    pub workload: PerClass<Workload>,
    /// One query in this many for a thread's core finds it moved; 0 for never.
    pub move_one_in: u64,
    /// When application threads change the class of their requests.
    pub changes: Changes,
    /// Initial knobs of the host; they fix the number of lanes.
    pub host: Knobs,
    /// Initial knobs of the targets.
    pub target: Knobs,
    /// Average interval of knob changes; zero for never.
    pub turn_every: Nanos,
    /// Namespaces have a volatile cache and a service time.
    pub cached: bool,
    /// Blocks of each namespace, of 512 bytes.
    pub blocks: u64,
    /// Faults of the network.
    pub faults: NetworkFaults,
    /// Pace of the cores.
    pub pace: Pace,
    /// The run ends when the threads of these classes have completed their work, even if other
    /// threads have work left.
    pub until: PerClass<bool>,
}

impl Scenario {
    fn core_count(&self) -> u32 {
        u32::try_from(self.cores).expect("a few cores")
    }
}

/// The results of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Reports of each application thread, by class.
    pub reports: PerClass<Vec<ApplicationReport>>,
    /// Requests sent by another core than that of their submission.
    pub steered: u64,
    /// Notifications of completions to the host's applications.
    pub told: u64,
    /// Completions reported by these [`told`](Self::told) notifications.
    pub told_of: u64,
    /// Target queues that moved between cores.
    pub moved: u64,
    /// Numbers of knob changes.
    pub turns: Turns,
    /// Number of times that a thread changed the class of its requests.
    pub changed: u64,
    /// Connections that the network cut.
    pub cuts: u64,
    /// Duration in virtual time.
    pub took: Nanos,
}

/// Maximum virtual time of a simulation: far more than the slowest recovery.
const TIME_MAX: Nanos = Nanos::from_secs(3_600);

/// Maximum time for all actors to end.
const ENDING_MAX: Nanos = Nanos::from_secs(60);

/// Namespaces of each target.
const NAMESPACES: usize = 2;

/// A namespace with its oracle and its durable content.
#[derive(Debug)]
struct Store {
    oracle: Rc<RefCell<Oracle>>,
    medium: Option<Medium>,
}

#[derive(Debug)]
struct Remote {
    target: Arc<Target>,
    cores: Vec<TargetCore>,
    controlling: Core<SimDriver, Controlling>,
    stores: Vec<Store>,
}

/// All actors, in the order of their creation.
#[derive(Debug)]
struct Cast {
    remotes: Vec<Remote>,
    dataplane: Vec<Core<SimDriver, EgressService>>,
    apps: PerClass<Vec<Core<SimDriver, App>>>,
    knob_changer: Option<KnobChanger>,
}

impl Cast {
    fn actors(&mut self) -> Vec<&mut dyn Actor> {
        let mut actors: Vec<&mut dyn Actor> = Vec::new();
        for remote in &mut self.remotes {
            actors.extend(remote.cores.iter_mut().map(|core| core as &mut dyn Actor));
            actors.push(&mut remote.controlling);
        }
        actors.extend(self.dataplane.iter_mut().map(|c| c as &mut dyn Actor));
        for (_, apps) in self.apps.iter_mut() {
            actors.extend(apps.iter_mut().map(|core| core as &mut dyn Actor));
        }
        actors.extend(
            self.knob_changer
                .iter_mut()
                .map(|knob_changer| knob_changer as &mut dyn Actor),
        );
        actors
    }

    /// Returns the actors that have not ended although all work is complete.
    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for (class, apps) in self.apps.iter() {
            let busy = apps.iter().filter(|core| !core.service.finished()).count();
            if busy > 0 {
                left.push(format!("{busy} application threads of {class}"));
            }
        }
        let dataplane = self.dataplane.iter();
        let open = dataplane.filter(|core| !core.service.finished()).count();
        if open > 0 {
            left.push(format!("{open} dataplane cores"));
        }
        for (number, remote) in self.remotes.iter().enumerate() {
            if !remote.controlling.service.finished() {
                left.push(format!("the host's controller of target {number}"));
            }
            let controllers = remote.target.snapshot().controllers.len();
            if controllers > 0 {
                left.push(format!("{controllers} controllers of target {number}"));
            }
        }
        left
    }
}

/// Runs a scenario to its end.
///
/// # Panics
/// If any answer is wrong or missing, or if an actor hangs, spins, or does not end; the message has
/// the seed.
#[must_use]
pub fn run(seed: u64, scenario: &Scenario) -> Ending {
    let world = World::new(seed, NetworkFaults::CALM);
    let remotes: Vec<_> = (0..scenario.targets)
        .map(|number| remote(&world, scenario, seed, number))
        .collect();
    let options = SwitchboardOptions {
        cores: (0..scenario.core_count()).map(CoreId).collect(),
        knobs: scenario.host,
    };
    let host = &remotes[0].controlling.driver;
    let (board, dataplane) = switchboard(&world, host, &options);
    let turns = Rc::new(Cell::new(Turns::default()));
    let over = Rc::new(Cell::new(false));
    let knob_changer = (scenario.turn_every > Nanos::ZERO).then(|| {
        let targets: Vec<_> = remotes.iter().map(|r| Arc::clone(&r.target)).collect();
        let (turns, over) = (Rc::clone(&turns), Rc::clone(&over));
        let (board, every) = (board.clone(), scenario.turn_every);
        KnobChanger::new(&world, board, &targets, every, seed ^ 0x7E57, turns, over)
    });
    let changed = Rc::new(Cell::new(0));
    let apps = apps(&world, scenario, seed, &board, &remotes, &changed);
    let mut cast = Cast {
        remotes,
        dataplane,
        apps,
        knob_changer,
    };
    let reports = PerClass::from_fn(|class| {
        let apps = cast.apps[class].iter();
        apps.map(|core| core.service.report()).collect::<Vec<_>>()
    });
    world.set_faults(scenario.faults);
    world.set_pace(scenario.pace);
    let begun = world.now();
    let done = || {
        scenario.until.iter().all(|(class, &waits)| {
            let wanted = scenario.workload[class].requests;
            let mut reports = reports[class].iter();
            !waits || reports.all(|report| report.borrow().answered == wanted)
        })
    };
    let outcome = world.run(&mut cast.actors(), begun + TIME_MAX, done);
    assert_eq!(outcome, Outcome::Done, "seed {seed}: {reports:?}");
    let took = world.now().since(begun);
    over.set(true);
    let mut counters = CoreCounters::default();
    board
        .counters()
        .iter()
        .for_each(|core| counters.merge(core));
    let moved = moved(&cast);
    drop(board);
    if scenario.until.iter().all(|(_, &waits)| waits) {
        end(seed, &world, &mut cast);
    }
    let cuts = world.network_totals().cuts;
    let reports = PerClass::from_fn(|class| reports[class].iter().map(|r| *r.borrow()).collect());
    Ending {
        reports,
        steered: counters.steering.steered,
        told: counters.notifications,
        told_of: counters.notified_completions,
        moved,
        turns: turns.get(),
        changed: changed.get(),
        cuts,
        took,
    }
}

/// Ends all actors in order: submitters, the switchboard, the controllers.
fn end(seed: u64, world: &World, cast: &mut Cast) {
    // No request may be answered twice, so every actor reports its remaining requests.
    world.set_faults(NetworkFaults::CALM);
    for ends in 0..2 {
        if ends == 1 {
            cast.knob_changer = None;
            for (_, apps) in cast.apps.iter_mut() {
                apps.retain(|app| !app.service.finished());
            }
        }
        let _ = world.run(
            &mut cast.actors(),
            world.now() + Nanos::from_secs(1),
            || false,
        );
    }
    for remote in &cast.remotes {
        remote.controlling.service.association().close();
    }
    let _ = world.run(&mut cast.actors(), world.now() + ENDING_MAX, || false);
    assert_eq!(cast.left(), Vec::<String>::new(), "seed {seed}: never ends");
}

fn moved(cast: &Cast) -> u64 {
    let moved = cast.remotes.iter().flat_map(|remote| {
        let cores = remote.target.snapshot().switch;
        cores.into_iter().map(|core| {
            let moved = core.classes.iter().map(|(_, class)| class.moved_in);
            moved.sum::<u64>()
        })
    });
    moved.sum()
}

/// Creates a target with its namespaces, and the host's controller for it.
fn remote(world: &World, scenario: &Scenario, seed: u64, number: usize) -> Remote {
    let name = format!("nqn.2026-11.io.switchyard:sim{number}");
    let limits = Limits {
        // Connections are lost, but the target never restarts.
        cache_life: 1,
        ..Limits::default()
    };
    let target = Target::new(limits, scenario.target_cores).expect("valid limits");
    target
        .add_subsystem(SubsystemOptions::open_to_all(&name))
        .expect("a new subsystem");
    let stores = (1..=NAMESPACES)
        .map(|nsid| {
            let ram = Ram::new(scenario.blocks * 512, 512).expect("a small device");
            let (device, medium) = device(ram, scenario.cached);
            let blocks = usize::try_from(scenario.blocks).expect("a small device");
            let nsid = u32::try_from(nsid).expect("a few");
            add_namespace(&target, &name, nsid, device, None);
            Store {
                oracle: Rc::new(RefCell::new(Oracle::new(blocks))),
                medium,
            }
        })
        .collect();
    let (mut cores, address) = serve(world, &target, scenario.target_cores);
    let turned = target.begin_knobs(scenario.target).expect("valid knobs");
    settle(world, &mut cores, || turned.poll().is_some());
    let nqn = host::parse_nqn(&name).expect("a valid name");
    let identity = HostIdentity { nqn, id: [7; 16] };
    let options = ConnectOptions {
        persistent: true,
        loss_timeout: None,
        seed: seed.wrapping_mul(31) ^ number as u64,
        knobs: scenario.host,
        ..ConnectOptions::new(address, nqn, identity)
    };
    let mut driver = world.driver();
    let controlling = Controlling::new(options, &mut driver);
    Remote {
        target,
        cores,
        controlling: Core::new(driver, controlling, PollPolicy::Never),
        stores,
    }
}

fn device(ram: Ram, cached: bool) -> (Arc<dyn Device>, Option<Medium>) {
    if !cached {
        return (Arc::new(ram), None);
    }
    let cache = Cache::new(ram);
    let medium = cache.medium();
    let options = DelayOptions {
        read: Nanos::from_micros(80),
        write: Nanos::from_micros(20),
        flush: Nanos::from_micros(300),
        ..DelayOptions::default()
    };
    (Arc::new(Delay::new(Arc::new(cache), options)), Some(medium))
}

/// Creates a switchboard and its cores in the host of this driver: a partition affects all lanes to
/// all targets.
pub(crate) fn switchboard(
    world: &World,
    host: &SimDriver,
    options: &SwitchboardOptions,
) -> (Switchboard, Vec<Core<SimDriver, EgressService>>) {
    let mut dataplane = Vec::new();
    let board = Switchboard::run_by(options, |place| {
        let mut driver = world.driver();
        driver.belongs_to(host);
        let service = place.service(&driver);
        let core = Core::new(driver, service, PollPolicy::Never);
        let sender = core.sender();
        dataplane.push(core);
        Ok(sender)
    });
    (board.expect("valid knobs"), dataplane)
}

fn apps(
    world: &World,
    scenario: &Scenario,
    seed: u64,
    board: &Switchboard,
    remotes: &[Remote],
    changed: &Rc<Cell<u64>>,
) -> PerClass<Vec<Core<SimDriver, App>>> {
    PerClass::from_fn(|class| {
        let apps = 0..scenario.apps[class];
        apps.map(|number| {
            let remote = &remotes[number % remotes.len()];
            let namespace = number / remotes.len() % NAMESPACES;
            let store = &remote.stores[namespace];
            let cores = scenario.core_count();
            let own = seed ^ (class.index() as u64) << 32 ^ (number as u64) << 40;
            let job = Job {
                association: Arc::clone(remote.controlling.service.association()),
                application: Application {
                    nsid: u32::try_from(namespace + 1).expect("a few"),
                    oracle: Some(Rc::clone(&store.oracle)),
                    ..Application::alone(scenario.workload[class], own ^ 0xA99)
                },
                medium: store.medium.clone(),
                class,
                changes: scenario.changes,
                changed: Rc::clone(changed),
            };
            let mut driver = world.driver();
            let here = u32::try_from(number).expect("a few") % cores;
            driver.begin_on(CoreId(here));
            driver.wander(scenario.move_one_in, cores);
            let app = App::new(job, board.clone(), own);
            Core::new(driver, app, PollPolicy::Never)
        })
        .collect()
    })
}

/// All classes must complete their work.
pub const ALL_CLASSES: PerClass<bool> = PerClass::of([true; Class::COUNT]);
