//! Barriers in the simulated world: what was written before one is there before what follows, over
//! queues, cores and hosts, and over connections that break.
//!
//! A failure names its seed; `run(seed, …)` in a test of its own repeats it exactly.

use base::Nanos;
use block::Device;
use block::device::Ram;
use block::layer::delay::{Delay, DelayOptions};
use sim::NetworkFaults;
use sim::journal::{Ending, Scenario, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn ram() -> Arc<dyn Device> {
    Arc::new(Ram::new(1 << 20, 512).expect("a small device"))
}

/// A device that takes its time, so that writes are under way when the barrier comes.
fn slow() -> Arc<dyn Device> {
    let options = DelayOptions {
        read: Nanos::from_micros(40),
        write: Nanos::from_micros(300),
        ..DelayOptions::default()
    };
    Arc::new(Delay::new(ram(), options))
}

fn scenario(faults: NetworkFaults) -> Scenario {
    Scenario {
        target_cores: 3,
        writers: 2,
        readers: 2,
        queues: 2,
        entries: 12,
        barriers: true,
        rounds: 40,
        faults,
    }
}

fn check(
    seeds: std::ops::Range<u64>,
    scenario: &Scenario,
    device: fn() -> Arc<dyn Device>,
) -> Vec<Ending> {
    let endings: Vec<_> = seeds.map(|seed| run(seed, scenario, device())).collect();
    let moved: u64 = endings.iter().map(|ending| ending.moved).sum();
    assert!(
        moved > endings.len() as u64,
        "too little was seen: {endings:?}"
    );
    endings
}

#[test]
fn marks_come_after_their_entries() {
    check(0..6, &scenario(NetworkFaults::CALM), ram);
    check(10..16, &scenario(NetworkFaults::ROUGH), slow);
}

#[test]
fn marks_come_after_their_entries_when_connections_break() {
    for device in [ram, slow] {
        let endings = check(20..24, &scenario(NetworkFaults::HOSTILE), device);
        let cuts: u64 = endings.iter().map(|ending| ending.cuts).sum();
        assert!(cuts > 5, "only {cuts} connections were cut");
    }
}

#[test]
fn one_queue_on_one_core_is_no_different() {
    let scenario = Scenario {
        target_cores: 1,
        queues: 1,
        ..scenario(NetworkFaults::ROUGH)
    };
    check(30..34, &scenario, slow);
}

#[test]
fn without_barriers_somebody_finds_a_mark_too_early() {
    let scenario = Scenario {
        barriers: false,
        ..scenario(NetworkFaults::ROUGH)
    };
    // About one seed in eleven shows it.
    let found = (40..200)
        .any(|seed| catch_unwind(AssertUnwindSafe(|| run(seed, &scenario, slow()))).is_err());
    assert!(found, "the oracle sees nothing");
}
