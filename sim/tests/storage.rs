//! Production target and production host over a simulated network, with a data oracle, by seed.
//!
//! A failure names its seed; `run(seed, …)` in a test of its own repeats it exactly.

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

/// A device that takes its time, so that requests are under way when connections are cut.
fn slow(_seed: u64) -> Arc<dyn Device> {
    let options = DelayOptions {
        read: Nanos::from_micros(80),
        write: Nanos::from_micros(900),
        ..DelayOptions::default()
    };
    Arc::new(Delay::new(ram(0), options))
}

/// A device that may still work on a request when its host is back.
fn very_slow(_seed: u64) -> Arc<dyn Device> {
    let options = DelayOptions {
        write: Nanos::from_millis(40),
        ..DelayOptions::default()
    };
    Arc::new(Delay::new(ram(0), options))
}

#[test]
fn a_slow_device_behind_a_network_that_cuts() {
    for seed in 500..515 {
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
    let endings = check(300..315, &scenario(NetworkFaults::HOSTILE, false));
    let cuts: u64 = endings.iter().map(|ending| ending.cuts).sum();
    assert!(
        cuts > 30,
        "only {cuts} connections were cut: the scenario proves nothing"
    );
}

#[test]
fn a_network_that_cuts_with_digests() {
    let endings = check(400..415, &scenario(NetworkFaults::HOSTILE, true));
    let cuts: u64 = endings.iter().map(|ending| ending.cuts).sum();
    assert!(
        cuts > 30,
        "only {cuts} connections were cut: the scenario proves nothing"
    );
}

#[test]
fn a_seed_is_a_run() {
    let scenario = scenario(NetworkFaults::HOSTILE, false);
    assert_eq!(run(7, &scenario, ram), run(7, &scenario, ram));
    assert_ne!(run(7, &scenario, ram), run(8, &scenario, ram));
}

/// Sending lost writes again at once, as other hosts do, is not safe: an old copy of a write that
/// was sent again may land after a newer one. That the oracle sees it shows that the runs above
/// mean something.
#[test]
fn the_oracle_sees_what_careless_replay_does() {
    let careless = Scenario {
        replay: ReplayPolicy::Immediate,
        ..scenario(NetworkFaults::HOSTILE, false)
    };
    let caught = (600..700)
        .any(|seed| std::panic::catch_unwind(|| run(seed, &careless, very_slow)).is_err());
    assert!(
        caught,
        "a hundred runs of careless replay, and no wrong answer was seen"
    );
}
