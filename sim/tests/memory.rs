//! Memory of whole runs, counted by the allocator: a run frees all its memory at its end, and a
//! target holds no more after many hosts than after a few.

#![cfg(test)]

use allocation_counter::{AllocationInfo, measure};
use base::Nanos;
use host::{ConnectOptions, HostIdentity};
use reactor::{Core, PollPolicy};
use sim::check::{Feature, Options, Plan, run};
use sim::storage::serve_memory;
use sim::{Actor, Application, HostCore, Mix, NetworkFaults, Outcome, SimDriver, Workload, World};
use std::net::SocketAddr;
use target::{PollGroup, Target};

const NQN: &str = "nqn.2026-11.io.switchyard:sim";

/// Hosts connected at the same time.
const HOSTS: u8 = 3;

/// Requests of each host.
const REQUESTS: u64 = 300;

/// Maximum bytes that a run holds at a time, per core of a target and application of a host: 1.5
/// times that of the most demanding seed. Buffers are mappings, which are not counted.
const CORE_BYTES_MAX: u64 = 6 << 20;

/// The same per encrypted volume: its header, in the disk's content and in its durable copy, and the
/// buffers of its channels.
const ENCRYPTED_BYTES_MAX: u64 = 4 << 20;

/// Visits until every table has its final capacity.
const WARM_UP: u8 = 3;

/// Counts the allocations of a run with all features.
fn counted(seed: u64) -> AllocationInfo {
    measure(|| {
        run(&Options {
            seed,
            ..Options::default()
        });
    })
}

fn plan(seed: u64) -> Plan {
    Plan::draw(&Options {
        seed,
        ..Options::default()
    })
}

/// Returns the maximum bytes that a run holds at a time.
fn most(seed: u64) -> u64 {
    let plan = plan(seed);
    // The process that takes a target over begins beside the other one.
    let processes = 1 + usize::from(plan.features.contains(&Feature::TakeOvers));
    let of_each = plan.target_cores * processes + plan.hosts * plan.applications;
    let is_encrypted = plan.features.contains(&Feature::Crypt);
    let encrypted = if is_encrypted {
        plan.targets * plan.volumes * processes
    } else {
        0
    };
    (plan.targets * of_each) as u64 * CORE_BYTES_MAX + encrypted as u64 * ENCRYPTED_BYTES_MAX
}

/// A cycle of `Arc`s, or a command whose memory is leaked, would remain: in targets, hosts,
/// devices, queues between threads.
#[test]
fn nothing_stays_of_a_run() {
    // State that is created once and kept for the next run.
    for feature in [Feature::Tls, Feature::Chap] {
        let has = |&seed: &u64| plan(seed).features.contains(&feature);
        counted((0..).find(has).expect("some seed draws it"));
    }
    for seed in 0..20 {
        let left = counted(seed);
        assert_eq!(
            (left.count_current, left.bytes_current),
            (0, 0),
            "seed {seed}: {left:?}"
        );
        let most = most(seed);
        assert!(
            left.bytes_max <= most,
            "seed {seed} holds {} bytes at a time, and may hold {most}",
            left.bytes_max
        );
    }
}

fn host(world: &World, address: SocketAddr, number: u8) -> Core<SimDriver, HostCore> {
    let name = format!("nqn.2026-11.io.switchyard:host{number}");
    let identity = HostIdentity {
        nqn: host::parse_nqn(&name).expect("a valid name"),
        id: [number; 16],
    };
    let subsystem = host::parse_nqn(NQN).expect("a valid name");
    let options = ConnectOptions {
        queues: 2,
        header_digest: true,
        data_digest: true,
        persistent: true,
        ..ConnectOptions::new(address, subsystem, identity)
    };
    let workload = Workload {
        requests: REQUESTS,
        depth: 16,
        blocks_max: 8,
        blocks_large: 64,
    };
    let mut driver = world.driver();
    let application = Application {
        mix: Mix::Everything,
        judged: false,
        ..Application::alone(workload, u64::from(number))
    };
    let service = HostCore::with(vec![options], vec![application], &mut driver);
    Core::new(driver, service, PollPolicy::Never)
}

/// Hosts connect, work and disappear without a shutdown.
fn visit(
    world: &World,
    (target, core): (&Target, &mut Core<SimDriver, PollGroup>),
    address: SocketAddr,
    round: u8,
) {
    let numbers = (1..=HOSTS).map(|number| round * HOSTS + number);
    let mut hosts: Vec<_> = numbers.map(|number| host(world, address, number)).collect();
    let reports: Vec<_> = hosts.iter().map(|host| host.service.report()).collect();
    let until = world.now() + Nanos::from_secs(1_000);
    let mut actors: Vec<&mut dyn Actor> = vec![&mut *core];
    actors.extend(hosts.iter_mut().map(|host| host as &mut dyn Actor));
    let answered = || reports.iter().all(|r| r.borrow().answered == REQUESTS);
    let outcome = world.run(&mut actors, until, answered);
    assert_eq!(outcome, Outcome::Done, "round {round}: {reports:?}");
    drop(hosts);
    let empty = || {
        let snapshot = target.snapshot();
        snapshot.controllers.is_empty() && snapshot.cores.iter().all(|c| c.connections == 0)
    };
    assert_eq!(world.run(&mut [core], until, empty), Outcome::Done);
}

/// State that a target keeps for disconnected hosts would grow with every host.
#[test]
fn a_target_holds_no_more_after_many_hosts() {
    let world = World::new(5, NetworkFaults::CALM);
    let (target, mut core, address) = serve_memory(&world, NQN);
    let mut left = 0;
    for round in 0..60 {
        let counted = measure(|| visit(&world, (&target, &mut core), address, round));
        if round >= WARM_UP {
            left += counted.count_current;
        }
    }
    // The world's own tables of connections grow; each is one allocation of any size.
    assert!(
        left <= 8,
        "{left} allocations are left of hosts that are gone"
    );
}
