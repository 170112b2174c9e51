//! Production target and production host over a simulated network, with a data oracle, by seed.
//!
//! A failure names its seed; a test that calls `run(seed, …)` repeats it exactly.

use base::Nanos;
use block::Device;
use block::device::Ram;
use block::layer::delay::{Delay, DelayOptions};
use host::ReplayPolicy;
use sim::storage::{Ending, Scenario, run};
use sim::{NetworkFaults, Workload};
use std::sync::Arc;

fn ram(_seed: u64) -> Arc<dyn Device> {
    Arc::new(Ram::new(1 << 20, 512).expect("a small device"))
}

fn scenario(faults: NetworkFaults, digests: bool) -> Scenario {
    let workload = Workload {
        requests: 400,
        depth: 16,
        blocks_max: 8,
        blocks_large: 700,
    };
    Scenario {
        target_cores: 2,
        hosts: 2,
        queues: 2,
        digests,
        replay: ReplayPolicy::WhenSafe,
        end_controller: true,
        command_timeout: Nanos::from_secs(30),
        loss_timeout: None,
        faults,
        workload,
    }
}

fn check(seeds: std::ops::Range<u64>, scenario: &Scenario) -> Vec<Ending> {
    let endings: Vec<_> = seeds.map(|seed| run(seed, scenario, ram)).collect();
    for ending in &endings {
        assert!(
            ending.reports.iter().all(|report| report.failed == 0),
            "{ending:?}"
        );
    }
    endings
}

/// A device with a service time, so that requests are outstanding when connections are cut.
fn slow(_seed: u64) -> Arc<dyn Device> {
    let options = DelayOptions {
        read: Nanos::from_micros(80),
        write: Nanos::from_micros(900),
        ..DelayOptions::default()
    };
    Arc::new(Delay::new(ram(0), options))
}

#[test]
fn a_slow_device_behind_a_network_that_cuts() {
    for seed in 500..508 {
        let ending = run(seed, &scenario(NetworkFaults::HOSTILE, seed % 2 == 0), slow);
        assert!(
            ending.reports.iter().all(|report| report.failed == 0),
            "{ending:?}"
        );
    }
}

#[test]
fn a_calm_network() {
    check(0..10, &scenario(NetworkFaults::CALM, false));
}

#[test]
fn a_rough_network() {
    check(100..112, &scenario(NetworkFaults::ROUGH, false));
}

#[test]
fn a_rough_network_with_digests() {
    check(200..212, &scenario(NetworkFaults::ROUGH, true));
}

#[test]
fn a_network_that_cuts() {
    let endings = check(300..310, &scenario(NetworkFaults::HOSTILE, false));
    let cuts: u64 = endings.iter().map(|ending| ending.cuts).sum();
    assert!(
        cuts > 10,
        "only {cuts} connections were cut: the scenario proves nothing"
    );
}

#[test]
fn a_network_that_cuts_with_digests() {
    let endings = check(400..410, &scenario(NetworkFaults::HOSTILE, true));
    let cuts: u64 = endings.iter().map(|ending| ending.cuts).sum();
    assert!(
        cuts > 10,
        "only {cuts} connections were cut: the scenario proves nothing"
    );
}

#[test]
fn a_seed_is_a_run() {
    let scenario = scenario(NetworkFaults::HOSTILE, false);
    assert_eq!(run(7, &scenario, ram), run(7, &scenario, ram));
    assert_ne!(run(7, &scenario, ram), run(8, &scenario, ram));
}

/// So small that most writes overlap with other writes.
fn crowded(_seed: u64) -> Arc<dyn Device> {
    Arc::new(Ram::new(16 * 1024, 512).expect("a small device"))
}

fn crowded_scenario() -> Scenario {
    let workload = Workload {
        requests: 800,
        depth: 8,
        blocks_max: 8,
        blocks_large: 32,
    };
    Scenario {
        workload,
        ..scenario(NetworkFaults::HOSTILE, false)
    }
}

#[test]
fn overlapping_writes_and_a_network_that_cuts() {
    for seed in 600..606 {
        let ending = run(seed, &crowded_scenario(), crowded);
        assert!(
            ending.reports.iter().all(|report| report.failed == 0),
            "{ending:?}"
        );
    }
}
