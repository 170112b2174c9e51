//! A target whose thread count follows its load, while a latency-critical tenant reads
//! continuously.
//!
//! The target, its thread scaling, its token scheduler and the hosts are production code. The
//! network is simulated, and sending takes time: a few hosts with unlimited demand can saturate a
//! thread.

use crate::application::{ApplicationReport, Workload};
use crate::client::ReadLog;
use crate::driver::SimDriver;
use crate::host_core::HostCore;
use crate::network::NetworkFaults;
use crate::shared::Pace;
use crate::storage::{TargetCore, add_namespace, connects, flat_device, serve};
use crate::world::{Actor, Outcome, World};
use base::{Nanos, Prng, Time};
use block::device::Ram;
use block::layer::delay::{Delay, DelayOptions};
use host::ConnectOptions;
use qos::{Declaration, Percentile, Slo, TokenRate};
use reactor::{Core, PollPolicy};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use switch::Knobs;
use switch::thread_scaling::ThreadBounds;
use target::{Limits, SubsystemOptions, Target, Tenancy, TenantOptions, ThreadsSnapshot, Windows};

/// SLO of the latency-critical tenant: 95 % of reads within this time.
pub const PROMISE: Nanos = Nanos::from_micros(1500);

/// Sending takes 100 µs per KiB, on the target and on hosts.
const PACE: Pace = Pace::of_sends(Nanos::from_micros(100));

/// Device time per request.
const DEVICE: Nanos = Nanos::from_micros(50);

/// Blocks of each namespace, of 512 bytes.
const BLOCKS: u64 = 4096;

/// Small requests at depth one, until the end.
const CRITICAL: Workload = Workload {
    requests: u64::MAX,
    depth: 1,
    blocks_max: 2,
    blocks_large: 2,
};

/// More requests than one thread can serve in 1.5 s, for each host.
const GREEDY: Workload = Workload {
    requests: 4_000,
    depth: 4,
    blocks_max: 8,
    blocks_large: 8,
};

/// Number of hosts with unlimited demand.
const GREEDY_HOSTS: usize = 6;

/// Time for which the latency-critical tenant runs alone at first, and at most at the end.
const ALONE: Nanos = Nanos::from_millis(200);
const CALM_MAX: Nanos = Nanos::from_secs(10);

/// Window in which the SLO is evaluated.
const WINDOW: Nanos = Nanos::from_secs(1);

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Ending {
    /// Maximum number of threads in use in each surge.
    pub most: Vec<usize>,
    /// Threads in use before the first surge, and after the load fell again after each surge.
    pub calm: Vec<u64>,
    /// Threads at the end.
    pub threads: ThreadsSnapshot,
    /// Queues moved by thread scaling.
    pub moved: u64,
    /// Reports of all hosts.
    pub reports: Vec<ApplicationReport>,
    /// 95th percentile of the latency-critical tenant's reads, for each second.
    pub critical_p95: Vec<Nanos>,
    /// SLO windows that the target reports for this tenant.
    pub windows: Windows,
}

/// Runs the latency-critical tenant while load comes and goes `surges` times, on a target with at
/// most `threads_max` threads.
///
/// # Panics
/// If any answer is wrong, or if an actor hangs or spins.
#[must_use]
pub fn run(seed: u64, threads_max: u32, surges: usize) -> Ending {
    let stage = Stage::new(seed, threads_max, surges);
    Play::new(stage).run(surges)
}

/// The target and its world.
#[derive(Debug)]
struct Stage {
    seed: u64,
    world: World,
    target: Arc<Target>,
    cores: Vec<TargetCore>,
    address: SocketAddr,
}

impl Stage {
    fn new(seed: u64, threads_max: u32, surges: usize) -> Self {
        let faults = NetworkFaults {
            delay_max: Nanos::from_micros(20),
            send_stall_max: Nanos::ZERO,
            ..NetworkFaults::CALM
        };
        let world = World::new(seed, faults);
        world.set_pace(PACE);
        let count = usize::try_from(threads_max).expect("a few");
        let target = Target::new(Limits::default(), count).expect("valid limits");
        // Token rate above the demand of all tenants: threads are the bottleneck.
        let device = flat_device("memory", TokenRate(1_000_000), DEVICE);
        for number in 0..=GREEDY_HOSTS * surges {
            let name = name(number);
            target
                .add_subsystem(SubsystemOptions::open_to_all(&name))
                .expect("a new subsystem");
            let ram = Arc::new(Ram::new(BLOCKS * 512, 512).expect("a small device"));
            let options = DelayOptions {
                read: DEVICE,
                write: DEVICE,
                ..DelayOptions::default()
            };
            let slow = Arc::new(Delay::new(ram, options));
            add_namespace(&target, &name, 1, slow, Some(Arc::clone(&device)));
        }
        target.set_tenants(&tenancy()).expect("admitted");
        let bounds = ThreadBounds {
            min: 1,
            max: threads_max,
        };
        let knobs = Knobs {
            target_threads: bounds,
            ..Knobs::default()
        };
        let _ = target.begin_knobs(knobs).expect("valid knobs");
        let (cores, address) = serve(&world, &target, count);
        Self {
            seed,
            world,
            target,
            cores,
            address,
        }
    }

    fn host(&self, number: usize, workload: Workload) -> Core<SimDriver, HostCore> {
        let name = name(number);
        let seed = self.seed.wrapping_mul(31) ^ number as u64;
        let mut driver = self.world.driver();
        let options = ConnectOptions {
            queues: 1,
            seed,
            ..connects(self.address, &name, &name, &mut Prng::from_seed(seed))
        };
        let service = HostCore::new(options, workload, seed, &mut driver);
        Core::new(driver, service, PollPolicy::Never)
    }

    fn threads(&self) -> ThreadsSnapshot {
        self.target.snapshot().threads
    }
}

/// All actors, and their observations.
#[derive(Debug)]
struct Play {
    stage: Stage,
    critical: Core<SimDriver, HostCore>,
    log: ReadLog,
    began: Time,
    most: Vec<usize>,
    calm: Vec<u64>,
    reports: Vec<Rc<RefCell<ApplicationReport>>>,
    judged_at: Time,
}

impl Play {
    fn new(stage: Stage) -> Self {
        let log = ReadLog::default();
        let mut critical = stage.host(0, CRITICAL);
        let reports = vec![critical.service.report()];
        critical.service = critical.service.noted_in(Rc::clone(&log));
        let now = stage.world.now();
        Self {
            stage,
            critical,
            log,
            began: now,
            most: Vec::new(),
            calm: Vec::new(),
            reports,
            judged_at: now,
        }
    }

    fn run(mut self, surges: usize) -> Ending {
        let until = self.stage.world.now() + ALONE;
        self.act(&mut [], until, |_| false);
        self.calm.push(self.stage.threads().active);
        for surge in 0..surges {
            self.surge(1 + surge * GREEDY_HOSTS);
        }
        let snapshot = self.stage.target.snapshot();
        let tenants = snapshot.devices.iter().flat_map(|device| &device.tenants);
        let critical = tenants.into_iter().find(|tenant| tenant.name == "critical");
        Ending {
            critical_p95: self.critical_p95(),
            most: self.most,
            calm: self.calm,
            threads: snapshot.threads,
            moved: snapshot.switch.iter().map(|core| core.scaled_in).sum(),
            reports: self.reports.iter().map(|report| *report.borrow()).collect(),
            windows: critical.expect("it is a tenant").windows,
        }
    }

    /// Adds hosts with unlimited demand, lets them do their work, and removes them.
    fn surge(&mut self, first: usize) {
        let hosts = first..first + GREEDY_HOSTS;
        let mut greedy: Vec<_> = hosts
            .map(|number| self.stage.host(number, GREEDY))
            .collect();
        let reports: Vec<_> = greedy.iter().map(|core| core.service.report()).collect();
        self.reports.extend(reports.iter().cloned());
        let until = self.stage.world.now() + CALM_MAX + CALM_MAX;
        let mut most = 0;
        let outcome = self.act(&mut greedy, until, |threads| {
            most = most.max(threads);
            let answered = |report: &Rc<RefCell<ApplicationReport>>| report.borrow().answered;
            reports
                .iter()
                .map(answered)
                .all(|count| count == GREEDY.requests)
        });
        assert_eq!(outcome, Outcome::Done, "{reports:?}");
        self.most.push(most);
        let until = self.stage.world.now() + CALM_MAX;
        self.act(&mut greedy, until, |threads| threads == 1);
        self.calm.push(self.stage.threads().active);
    }

    /// Runs all actors until `done`, called with the threads in use, returns true; the target's
    /// SLOs are evaluated once a second.
    fn act(
        &mut self,
        greedy: &mut [Core<SimDriver, HostCore>],
        until: Time,
        mut done: impl FnMut(usize) -> bool,
    ) -> Outcome {
        let Stage {
            world,
            target,
            cores,
            ..
        } = &mut self.stage;
        let mut actors: Vec<&mut dyn Actor> = Vec::new();
        actors.extend(cores.iter_mut().map(|core| core as &mut dyn Actor));
        actors.push(&mut self.critical);
        actors.extend(greedy.iter_mut().map(|core| core as &mut dyn Actor));
        let (clock, judged_at) = (world.clone(), &mut self.judged_at);
        world.run(&mut actors, until, || {
            if clock.now().since(*judged_at) >= WINDOW {
                *judged_at = clock.now();
                target.look_at_tenants(true);
            }
            done(target.threads_in_use())
        })
    }

    fn critical_p95(&self) -> Vec<Nanos> {
        let log = self.log.borrow();
        let second = |at: Time| at.since(self.began).0 / WINDOW.0;
        let windows = log.chunk_by(|a, b| second(a.0) == second(b.0));
        let p95 = |window: &[(Time, Nanos)]| {
            let mut took: Vec<_> = window.iter().map(|&(_, took)| took).collect();
            took.sort_unstable();
            took[(took.len() * 95).div_ceil(100) - 1]
        };
        windows.map(p95).collect()
    }
}

fn name(number: usize) -> String {
    format!("nqn.2026-11.io.switchyard:sim{number}")
}

/// Gives the first host an SLO.
fn tenancy() -> Tenancy {
    Tenancy {
        tenants: vec![TenantOptions {
            name: "critical".to_owned(),
            hosts: vec![name(0)],
            declaration: Declaration::LatencyCritical(Slo {
                percentile: Percentile::P95,
                latency: PROMISE,
                iops: 10_000,
                read_permille: 500,
                request_bytes: 4096,
            }),
            ..TenantOptions::default()
        }],
        ..Tenancy::default()
    }
}
