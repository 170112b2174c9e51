//! Isolation of classes if sending takes time: a `Latency` request waits at most for the quantum of
//! `Throughput` data in progress on each core of its path, and `Throughput` makes progress under
//! unlimited `Latency` load. With sparse `Latency` requests the bound is a larger send.

use base::Nanos;
use sim::switched::{Changes, Ending, Scenario, run};
use sim::{NetworkFaults, Pace, Workload};
use switch::limits::SPARSE_LATENCY_BYTES_MIN;
use switch::{Class, Knobs, PerClass};

/// Sending takes 1 µs per KiB, about 8 Gbit/s.
const PACE: Pace = Pace::of_sends(Nanos::from_micros(1));

const DELAY_MAX: Nanos = Nanos::from_micros(20);

/// A quantum of 64 KiB with its headers.
const QUANTUM: Nanos = Nanos::from_micros(66);

/// A request passes the host's core, the target's and the host's again; on each a quantum may be in
/// progress. It crosses the network twice, and takes some time itself.
const BOUND: Nanos = Nanos(3 * QUANTUM.0 + 2 * DELAY_MAX.0 + 20_000);

/// 4 KiB at depth 1.
const LATENCY: Workload = Workload {
    requests: 300,
    depth: 1,
    blocks_max: 8,
    blocks_large: 8,
};

/// 64 KiB at high depth, without an end.
const THROUGHPUT: Workload = Workload {
    requests: u64::MAX,
    depth: 16,
    blocks_max: 128,
    blocks_large: 128,
};

fn scenario(knobs: Knobs, targets: usize) -> Scenario {
    Scenario {
        targets,
        target_cores: 1,
        cores: 1,
        apps: PerClass::of([targets, 2 * targets]),
        workload: PerClass::of([LATENCY, THROUGHPUT]),
        move_one_in: 0,
        changes: Changes::Never,
        host: knobs,
        target: knobs,
        turn_every: Nanos::ZERO,
        cached: false,
        blocks: 16 * 1024,
        faults: NetworkFaults {
            delay_max: DELAY_MAX,
            send_stall_max: Nanos::ZERO,
            ..NetworkFaults::CALM
        },
        pace: PACE,
        until: PerClass::of([true, false]),
    }
}

fn slowest(ending: &Ending) -> Nanos {
    let reports = ending.reports[Class::Latency].iter();
    reports
        .map(|report| report.slowest)
        .max()
        .unwrap_or(Nanos::ZERO)
}

#[test]
fn a_latency_request_waits_for_one_quantum_on_each_core() {
    for seed in 0..8 {
        let ending = run(seed, &scenario(Knobs::switchyard(), 1));
        assert!(slowest(&ending) <= BOUND, "seed {seed}: {ending:?}");
    }
}

/// If `Latency` requests are sparse, the send in progress may be larger by the knob's factor.
#[test]
fn a_sparse_latency_request_waits_for_one_larger_send_on_each_core() {
    let mut knobs = Knobs::switchyard();
    // Any bulk between two requests makes these sparse.
    knobs.sparse_latency_bytes = SPARSE_LATENCY_BYTES_MIN;
    let larger = u64::from(knobs.caravan.sparse_factor) * QUANTUM.0;
    let bound = Nanos(BOUND.0 + 3 * (larger - QUANTUM.0));
    let slowest: Vec<_> = (0..8)
        .map(|seed| slowest(&run(seed, &scenario(knobs, 1))))
        .collect();
    assert!(
        slowest.iter().all(|&slowest| slowest <= bound),
        "{slowest:?}"
    );
    assert!(
        slowest.iter().any(|&slowest| slowest > BOUND),
        "{slowest:?}"
    );
}

/// A thread that changes to a higher class is treated accordingly from its next request on.
#[test]
fn a_thread_that_changes_its_class_waits_no_longer_from_then_on() {
    let few = Workload {
        requests: 60,
        ..LATENCY
    };
    let slowest_after = |after, seed| {
        let changes = Changes::Late(after);
        let scenario = Scenario {
            changes,
            workload: PerClass::of([few, THROUGHPUT]),
            // No other thread changes: those of the last class begin with it.
            ..scenario(Knobs::switchyard(), 1)
        };
        let ending = run(seed, &scenario);
        (slowest(&ending), ending.changed)
    };
    for seed in 0..4 {
        let (slowest, changed) = slowest_after(8, seed);
        assert_eq!(changed, 1);
        assert!(slowest <= BOUND, "seed {seed}: {slowest:?}");
        let (slowest, changed) = slowest_after(u64::MAX, seed);
        assert_eq!(changed, 0);
        assert!(slowest > Nanos(2 * BOUND.0), "seed {seed}: {slowest:?}");
    }
}

/// The same check fails without classes, which shows that it can fail.
#[test]
fn without_classes_the_same_requests_wait_for_more() {
    for seed in 0..4 {
        let ending = run(seed, &scenario(Knobs::linux(), 1));
        assert!(
            slowest(&ending) > Nanos(2 * BOUND.0),
            "seed {seed}: {ending:?}"
        );
    }
}

#[test]
fn several_targets_share_the_quantum() {
    for seed in 0..8 {
        let ending = run(seed, &scenario(Knobs::switchyard(), 3));
        // A caravan that begins within the quantum is sent to its end.
        let bound = Nanos(BOUND.0 + QUANTUM.0);
        assert!(slowest(&ending) <= bound, "seed {seed}: {ending:?}");
    }
}

/// The reverse: `Throughput` under `Latency` load.
#[test]
fn throughput_goes_on_beside_latency_work_that_never_ends() {
    let endless = Workload {
        requests: u64::MAX,
        depth: 32,
        ..LATENCY
    };
    let bulk = Workload {
        requests: 100,
        ..THROUGHPUT
    };
    for seed in 0..8 {
        let ending = run(
            seed,
            &Scenario {
                apps: PerClass::of([4, 1]),
                workload: PerClass::of([endless, bulk]),
                until: PerClass::of([false, true]),
                ..scenario(Knobs::switchyard(), 1)
            },
        );
        let bytes = |class: Class| -> u64 {
            ending.reports[class]
                .iter()
                .map(|report| report.bytes)
                .sum()
        };
        let (latency, throughput) = (bytes(Class::Latency), bytes(Class::Throughput));
        let promised = u64::from(Knobs::switchyard().floor_permille[Class::Throughput]);
        assert!(
            throughput * 1_000 >= promised * (latency + throughput),
            "seed {seed}: {throughput} bytes of {latency} in {:?}",
            ending.took
        );
    }
}

/// No other request rings the doorbell.
#[test]
fn a_lone_request_leaves_when_its_doorbell_says() {
    let alone = Workload {
        requests: 100,
        depth: 1,
        ..LATENCY
    };
    let wires = Nanos(2 * DELAY_MAX.0 + 20_000);
    for (knobs, held) in [
        (Knobs::linux(), Nanos::from_micros(50)),
        (Knobs::nvme_tcp(), Nanos::ZERO),
        (Knobs::switchyard(), Nanos::ZERO),
    ] {
        let scenario = Scenario {
            apps: PerClass::of([0, 1]),
            workload: PerClass::of([LATENCY, alone]),
            until: sim::switched::ALL_CLASSES,
            ..scenario(knobs, 1)
        };
        let ending = run(1, &scenario);
        let slowest = ending.reports[Class::Throughput][0].slowest;
        assert!(slowest <= Nanos(wires.0 + held.0), "{knobs:?}: {ending:?}");
    }
}
