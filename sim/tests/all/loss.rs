//! A target that never returns: its host gives up at the loss timeout, neither earlier nor at the
//! end of the connection step in progress.

use base::{Nanos, Time};
use host::{ConnectOptions, HostIdentity, Phase};
use reactor::{Core, PollPolicy};
use sim::storage::serve_memory;
use sim::{Actor, HostCore, NetworkFaults, Outcome, SimDriver, Workload, World};
use std::net::SocketAddr;
use std::sync::Arc;

const NQN: &str = "nqn.2026-11.io.switchyard:sim";

/// Much less than the maximum of a connection step.
const LOSS_TIMEOUT: Nanos = Nanos::from_secs(3);

fn host(world: &World, address: SocketAddr) -> Core<SimDriver, HostCore> {
    let identity = HostIdentity {
        nqn: host::parse_nqn(NQN).expect("a valid name"),
        id: [7; 16],
    };
    let subsystem = host::parse_nqn(NQN).expect("a valid name");
    let options = ConnectOptions {
        keep_alive: Nanos::from_secs(2),
        loss_timeout: Some(LOSS_TIMEOUT),
        ..ConnectOptions::new(address, subsystem, identity)
    };
    assert!(options.connect_timeout > LOSS_TIMEOUT);
    let workload = Workload {
        requests: 2_000,
        depth: 4,
        blocks_max: 8,
        blocks_large: 8,
    };
    let mut driver = world.driver();
    let service = HostCore::new(options, workload, 1, &mut driver);
    Core::new(driver, service, PollPolicy::Never)
}

/// Runs until the association is in this phase; returns the time.
fn reaches(
    world: &World,
    actors: &mut [&mut dyn Actor],
    host: &host::Association,
    phase: Phase,
) -> Time {
    let until = world.now() + Nanos::from_secs(100);
    let outcome = world.run(actors, until, || host.phase() == phase);
    assert_eq!(outcome, Outcome::Done, "{phase:?}");
    world.now()
}

fn check(seed: u64, dark: NetworkFaults) {
    let world = World::new(seed, NetworkFaults::CALM);
    let (_, mut target, address) = serve_memory(&world, NQN);
    let mut host = host(&world, address);
    let association = Arc::clone(host.service.association());
    let mut both: [&mut dyn Actor; 2] = [&mut target, &mut host];
    reaches(&world, &mut both, &association, Phase::Live);
    // From here on the target does nothing, and the host's data arrives nowhere.
    world.set_faults(dark);
    let mut alone: [&mut dyn Actor; 1] = [&mut host];
    let lost = reaches(&world, &mut alone, &association, Phase::Recovering);
    let gone = reaches(&world, &mut alone, &association, Phase::Gone);
    assert_eq!(gone.since(lost), LOSS_TIMEOUT, "seed {seed}");
    let report = host.service.report();
    let until = world.now() + Nanos::from_secs(1);
    let mut alone: [&mut dyn Actor; 1] = [&mut host];
    let all = || report.borrow().answered == 2_000;
    assert_eq!(world.run(&mut alone, until, all), Outcome::Done);
}

/// The limit passed while the host was stopped: the association was lost for good without one
/// attempt.
#[test]
fn a_host_that_stands_still_tries_again_after_that() {
    for seed in 0..8 {
        let world = World::new(seed, NetworkFaults::CALM);
        let (_, mut target, address) = serve_memory(&world, NQN);
        let mut host = host(&world, address);
        let association = Arc::clone(host.service.association());
        let mut both: [&mut dyn Actor; 2] = [&mut target, &mut host];
        reaches(&world, &mut both, &association, Phase::Live);
        let unreachable = NetworkFaults {
            unreachable: true,
            ..NetworkFaults::CALM
        };
        world.set_faults(unreachable);
        let mut alone: [&mut dyn Actor; 1] = [&mut host];
        reaches(&world, &mut alone, &association, Phase::Recovering);
        // With each seed it is stopped at another point of its attempts.
        let until = world.now() + Nanos::from_millis(300 * seed);
        world.run(&mut alone, until, || false);
        assert_eq!(association.phase(), Phase::Recovering);
        world.wait_until(world.now() + LOSS_TIMEOUT + Nanos::from_secs(1_000));
        world.set_faults(NetworkFaults::CALM);
        let mut both: [&mut dyn Actor; 2] = [&mut target, &mut host];
        reaches(&world, &mut both, &association, Phase::Live);
    }
}

#[test]
fn a_target_that_lets_everybody_in_and_says_nothing() {
    for seed in 0..8 {
        check(seed, NetworkFaults::CALM);
    }
}

#[test]
fn a_target_that_nobody_reaches() {
    for seed in 0..8 {
        let unreachable = NetworkFaults {
            unreachable: true,
            ..NetworkFaults::CALM
        };
        check(seed, unreachable);
    }
}
