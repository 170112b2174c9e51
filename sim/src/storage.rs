//! The whole stack in one world: a target on some cores, hosts on other cores, and an oracle above
//! each host.

use crate::application::{ApplicationReport, Workload};
use crate::driver::SimDriver;
use crate::host_core::HostCore;
use crate::network::NetworkFaults;
use crate::world::{Actor, Outcome, World};
use base::units::CoreId;
use base::{Nanos, Prng};
use block::Device;
use block::device::Ram;
use host::{ConnectOptions, HostIdentity, ReplayPolicy};
use qos::cost::Price;
use qos::curve::Point;
use qos::{CostModel, Curve, Percentile, TokenPoolRules, TokenRate};
use reactor::{Core, Driver, PollPolicy, SocketOptions};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use target::{DeviceQos, Limits, NamespaceOptions, PollGroup, SubsystemOptions, Target, TlsMode};

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Cores of the target.
    pub target_cores: usize,
    /// Hosts, each with its own core and subsystem.
    pub hosts: usize,
    /// I/O queues of each host.
    pub queues: u16,
    /// Header and data digests.
    pub digests: bool,
    /// Policy for lost writes.
    pub replay: ReplayPolicy,
    /// True if the target announces End Controller, which other implementations do not.
    pub end_controller: bool,
    /// Time after which a host aborts a command.
    pub command_timeout: Nanos,
    /// Time for which a host tries to reconnect; `None` for no limit.
    pub loss_timeout: Option<Nanos>,
    /// Network faults during the work.
    pub faults: NetworkFaults,
    /// Workload of each host.
    pub workload: Workload,
}

/// The results of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Reports of each host's application.
    pub reports: Vec<ApplicationReport>,
    /// Connections that the network cut.
    pub cuts: u64,
    /// Bytes that the network carried.
    pub bytes: u64,
    /// Duration in virtual time.
    pub took: Nanos,
}

/// Maximum virtual time of a simulation: far more than the slowest recovery.
const TIME_MAX: Nanos = Nanos::from_secs(3_600);

/// A core of the target.
pub type TargetCore = Core<SimDriver, PollGroup>;

/// Runs a scenario to its end, on RAM devices wrapped by `device`.
///
/// # Panics
/// If any answer is wrong, or if an actor hangs or spins; the message has the seed.
#[must_use]
pub fn run(
    seed: u64,
    scenario: &Scenario,
    mut device: impl FnMut(u64) -> Arc<dyn Device>,
) -> Ending {
    let world = World::new(seed, scenario.faults);
    let names: Vec<String> = (0..scenario.hosts)
        .map(|i| format!("nqn.2026-11.io.switchyard:sim{i}"))
        .collect();
    let limits = Limits {
        end_controller: scenario.end_controller,
        ..Limits::default()
    };
    let shared = Target::new(limits, scenario.target_cores).expect("valid limits");
    for (i, name) in (0u64..).zip(&names) {
        configure(&shared, name, device(seed ^ i));
    }
    let (mut cores, address) = serve(&world, &shared, scenario.target_cores);
    let mut hosts: Vec<_> = (0u64..)
        .zip(&names)
        .map(|(i, name)| host_core(&world, scenario, address, name, seed.wrapping_mul(31) ^ i))
        .collect();
    let reports: Vec<_> = hosts.iter().map(|core| core.service.report()).collect();
    let wanted = scenario.workload.requests;
    let begun = world.now();
    let outcome = {
        let mut actors: Vec<&mut dyn Actor> = Vec::new();
        actors.extend(cores.iter_mut().map(|core| core as &mut dyn Actor));
        actors.extend(hosts.iter_mut().map(|core| core as &mut dyn Actor));
        let done = || all_answered(&reports, wanted);
        world.run(&mut actors, begun + TIME_MAX, done)
    };
    assert_eq!(
        outcome,
        Outcome::Done,
        "seed {seed}: {reports:?} of {wanted} answered"
    );
    let totals = world.network_totals();
    let reports = reports.iter().map(|report| *report.borrow()).collect();
    Ending {
        reports,
        cuts: totals.cuts,
        bytes: totals.bytes,
        took: world.now().since(begun),
    }
}

fn all_answered(reports: &[Rc<RefCell<ApplicationReport>>], wanted: u64) -> bool {
    reports
        .iter()
        .all(|report| report.borrow().answered == wanted)
}

/// Listen address of a target, on a port that the world chooses.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 0);

/// Returns the cores of a target that listens on `address`, and its actual address. It uses
/// TLS in this mode.
pub(crate) fn target_cores(
    world: &World,
    shared: &Arc<Target>,
    count: usize,
    address: SocketAddr,
    tls: TlsMode,
) -> (Vec<TargetCore>, SocketAddr) {
    let mut cores = silent_cores(world, shared, count);
    let Core {
        driver, service, ..
    } = &mut cores[0];
    let options = SocketOptions {
        tls: shared.tls(tls),
        ..SocketOptions::default()
    };
    let (listener, bound) = driver.listen(address, &options).expect("a free address");
    service.add_listener(address, listener);
    (cores, bound)
}

/// Returns the cores of a target that does not listen.
pub(crate) fn silent_cores(world: &World, shared: &Arc<Target>, count: usize) -> Vec<TargetCore> {
    let mut cores = Vec::new();
    for index in 0..count {
        let mut driver = world.driver();
        if let Some(first) = cores.first() {
            let first: &TargetCore = first;
            driver.shares_clock_with(&first.driver);
        }
        let op_namespace = driver.op_namespace();
        let core = u32::try_from(index).expect("a few cores");
        shared.stays_on(index, CoreId(core));
        let service = shared.poll_group(index, op_namespace);
        cores.push(Core::new(driver, service, PollPolicy::Never));
    }
    cores
}

/// Returns the cores of a target that serves on a port that the world chooses, and its address.
///
/// # Panics
/// If it does not begin to serve.
#[must_use]
pub fn serve(world: &World, shared: &Arc<Target>, count: usize) -> (Vec<TargetCore>, SocketAddr) {
    let (mut cores, address) = target_cores(world, shared, count, ANY_PORT, TlsMode::Off);
    let attached = shared.attach(cores.iter().map(TargetCore::sender).collect());
    settle(world, &mut cores, || attached.poll().is_some());
    (cores, address)
}

/// Returns a target on one core that serves one namespace of 1 MiB of memory, and its address.
///
/// # Panics
/// If it does not begin to serve.
#[must_use]
pub fn serve_memory(world: &World, name: &str) -> (Arc<Target>, TargetCore, SocketAddr) {
    let shared = Target::new(Limits::default(), 1).expect("valid limits");
    let ram = Ram::new(1 << 20, 512).expect("a small device");
    configure(&shared, name, Arc::new(ram));
    let (mut cores, address) = serve(world, &shared, 1);
    (shared, cores.remove(0), address)
}

/// Runs the target's cores until `done` returns true.
pub(crate) fn settle(world: &World, cores: &mut [TargetCore], done: impl FnMut() -> bool) {
    let mut actors: Vec<&mut dyn Actor> = cores
        .iter_mut()
        .map(|core| core as &mut dyn Actor)
        .collect();
    let until = world.now() + Nanos::from_secs(10);
    assert_eq!(world.run(&mut actors, until, done), Outcome::Done);
}

/// Adds a subsystem with one namespace before there are cores to notify.
fn configure(shared: &Target, name: &str, device: Arc<dyn Device>) {
    shared
        .add_subsystem(SubsystemOptions::open_to_all(name))
        .expect("a new subsystem");
    add_namespace(shared, name, 1, device, None);
}

/// Adds a namespace to a subsystem before there are cores to notify.
pub(crate) fn add_namespace(
    shared: &Target,
    name: &str,
    nsid: u32,
    device: Arc<dyn Device>,
    qos: Option<Arc<DeviceQos>>,
) {
    let mut uuid = [0; 16];
    let seed = u64::from(name.as_bytes()[name.len() - 1]) | u64::from(nsid) << 8;
    Prng::from_seed(seed).fill(&mut uuid);
    let options = NamespaceOptions {
        qos,
        ..NamespaceOptions::new(nsid, device, uuid)
    };
    shared
        .add_namespace(name, options)
        .expect("a new namespace");
}

/// A device that completes reads and writes within `latency` at `rate` tokens per second.
pub(crate) fn flat_device(name: &str, rate: TokenRate, latency: Nanos) -> Arc<DeviceQos> {
    let latency = [latency; Percentile::COUNT];
    let curve = Curve::new(vec![Point { rate, latency }]).expect("a curve");
    let model = CostModel::new(Price::READ, Price::READ);
    DeviceQos::new(name, TokenPoolRules::default(), model, curve)
}

/// Connection options of a host of this name to a subsystem, with a random host identifier.
///
/// # Panics
/// If a name is not valid.
pub(crate) fn connects(
    address: SocketAddr,
    subsystem: &str,
    host: &str,
    prng: &mut Prng,
) -> ConnectOptions {
    let name = |text| host::parse_nqn(text).expect("a valid name");
    let mut id = [0; 16];
    prng.fill(&mut id);
    let identity = HostIdentity {
        nqn: name(host),
        id,
    };
    ConnectOptions::new(address, name(subsystem), identity)
}

fn host_core(
    world: &World,
    scenario: &Scenario,
    address: SocketAddr,
    name: &str,
    seed: u64,
) -> Core<SimDriver, HostCore> {
    let mut driver = world.driver();
    let options = ConnectOptions {
        queues: scenario.queues,
        header_digest: scenario.digests,
        data_digest: scenario.digests,
        persistent: true,
        command_timeout: scenario.command_timeout,
        loss_timeout: scenario.loss_timeout,
        replay: scenario.replay,
        seed,
        ..connects(address, name, name, &mut Prng::from_seed(seed))
    };
    let service = HostCore::new(options, scenario.workload, seed, &mut driver);
    Core::new(driver, service, PollPolicy::Never)
}
