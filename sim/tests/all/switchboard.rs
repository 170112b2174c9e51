//! The host's switchboard in front of production targets, by seed: every request is answered once
//! with the correct data, under steering, moves, knob changes and losses.
//!
//! A failure names its seed; a test that calls `run(seed, …)` repeats it exactly.

use base::{Nanos, Prng};
use sim::switched::{ALL_CLASSES, Changes, Ending, Scenario, run};
use sim::{NetworkFaults, Pace, Workload};
use std::ops::Range;
use switch::application_steering::Hysteresis;
use switch::knobs::Preset;
use switch::limits::COMPLETION_HOLD;
use switch::{Knobs, PerClass};

/// Small requests at depth one or two.
const SMALL: Workload = Workload {
    requests: 60,
    depth: 2,
    blocks_max: 8,
    blocks_large: 8,
};

/// Many requests, some of them large enough for several transfers.
const BULK: Workload = Workload {
    requests: 120,
    depth: 16,
    blocks_max: 128,
    blocks_large: 700,
};

/// Requests are steered to other cores as early as possible.
fn eager() -> Knobs {
    let mut knobs = Knobs::switchyard();
    knobs.request_steering.threshold_bytes = switch::limits::STEERING_THRESHOLD_BYTES_MIN;
    knobs
}

/// Queues of the target move as often as possible.
fn restless() -> Knobs {
    let mut knobs = Knobs::switchyard();
    let steering = &mut knobs.application_steering;
    steering.hysteresis = Hysteresis::Paper;
    steering.period = Nanos::from_millis(1);
    steering.latency_load_max_bytes = 1;
    knobs
}

fn scenario(faults: NetworkFaults) -> Scenario {
    Scenario {
        targets: 2,
        target_cores: 2,
        cores: 3,
        apps: PerClass::of([2, 4]),
        workload: PerClass::of([SMALL, BULK]),
        move_one_in: 0,
        changes: Changes::Never,
        host: eager(),
        target: Knobs::switchyard(),
        turn_every: Nanos::ZERO,
        cached: false,
        blocks: 2048,
        faults,
        pace: Pace::default(),
        until: ALL_CLASSES,
    }
}

fn check(seeds: Range<u64>, scenario: impl Fn(u64) -> Scenario) -> Vec<Ending> {
    let endings: Vec<_> = seeds.map(|seed| run(seed, &scenario(seed))).collect();
    for ending in &endings {
        for (class, reports) in ending.reports.iter() {
            let clean = reports.iter().all(|report| report.failed == 0);
            assert!(clean, "{class}: {ending:?}");
        }
    }
    endings
}

fn total(endings: &[Ending], count: impl Fn(&Ending) -> u64) -> u64 {
    endings.iter().map(count).sum()
}

#[test]
fn requests_that_are_steered_are_answered_once_and_right() {
    let endings = check(1_000..1_008, |seed| Scenario {
        targets: 1 + usize::try_from(seed % 3).expect("small"),
        ..scenario(NetworkFaults::ROUGH)
    });
    assert!(total(&endings, |ending| ending.steered) > 200);
}

#[test]
fn threads_that_move_get_their_answers() {
    let endings = check(1_100..1_108, |seed| Scenario {
        targets: 1 + usize::try_from(seed % 3).expect("small"),
        move_one_in: 3,
        pace: HELD_UP,
        ..scenario(NetworkFaults::CALM)
    });
    assert!(total(&endings, |ending| ending.steered) > 50);
}

/// Cores that stall at times, so that queues fill and requests overtake each other.
const HELD_UP: Pace = Pace {
    stall_one_in: 6,
    stall_max: Nanos::from_micros(400),
    send_per_kib: Nanos::ZERO,
    poll_one_in: 0,
};

/// A host and targets of any kind, whose knobs change continuously.
fn turning(seed: u64, faults: NetworkFaults) -> Scenario {
    let mut prng = Prng::from_seed(seed);
    let below = |prng: &mut Prng, n| usize::try_from(prng.below(n)).expect("small");
    let preset = Preset::ALL[below(&mut prng, Preset::ALL.len() as u64)].0;
    let mut host = preset.knobs();
    host.request_steering = eager().request_steering;
    Scenario {
        targets: 1 + below(&mut prng, 3),
        target_cores: 1 + below(&mut prng, 3),
        cores: 1 + below(&mut prng, 4),
        move_one_in: 8,
        host,
        turn_every: Nanos::from_micros(500),
        cached: prng.chance(1, 2),
        pace: if prng.chance(1, 2) {
            HELD_UP
        } else {
            Pace::default()
        },
        ..scenario(faults)
    }
}

#[test]
fn knobs_that_turn_in_flight_lose_nothing() {
    let endings = check(1_200..1_216, |seed| turning(seed, NetworkFaults::ROUGH));
    assert!(total(&endings, |ending| ending.turns.host) > 100);
    assert!(total(&endings, |ending| ending.turns.targets) > 100);
    assert!(total(&endings, |ending| ending.steered) > 50);
}

#[test]
fn knobs_that_turn_on_a_network_that_cuts_lose_nothing() {
    // Recovery takes long in virtual time.
    let turn_every = Nanos::from_millis(20);
    let endings = check(1_300..1_308, |seed| Scenario {
        turn_every,
        ..turning(seed, NetworkFaults::HOSTILE)
    });
    assert!(total(&endings, |ending| ending.turns.host) > 100);
    assert!(total(&endings, |ending| ending.cuts) > 10);
}

#[test]
fn lost_connections_lose_no_request_behind_a_switchboard() {
    let endings = check(1_400..1_410, |_| Scenario {
        move_one_in: 8,
        ..scenario(NetworkFaults::HOSTILE)
    });
    assert!(total(&endings, |ending| ending.cuts) > 10);
    assert!(total(&endings, |ending| ending.steered) > 50);
}

/// Most writes overlap with other writes, by other threads, through other lanes.
#[test]
fn flush_and_durable_writes_keep_their_promise_across_lanes() {
    let crowd = Workload {
        requests: 150,
        depth: 6,
        blocks_max: 4,
        blocks_large: 16,
    };
    let endings = check(1_500..1_510, |seed| Scenario {
        workload: PerClass::of([crowd; 2]),
        cached: true,
        blocks: 64,
        move_one_in: 4,
        pace: HELD_UP,
        ..scenario(if seed < 1_505 {
            NetworkFaults::ROUGH
        } else {
            NetworkFaults::HOSTILE
        })
    });
    assert!(total(&endings, |ending| ending.cuts) > 5);
}

#[test]
fn queues_of_the_target_move_under_a_switchboard() {
    let endings = check(1_600..1_610, |seed| Scenario {
        target: restless(),
        target_cores: 2 + usize::try_from(seed % 3).expect("small"),
        cores: 4,
        move_one_in: 16,
        ..scenario(if seed < 1_605 {
            NetworkFaults::ROUGH
        } else {
            NetworkFaults::HOSTILE
        })
    });
    assert!(total(&endings, |ending| ending.moved) > 20, "{endings:?}");
    assert!(total(&endings, |ending| ending.cuts) > 5);
}

#[test]
fn threads_that_change_their_class_in_flight_lose_nothing() {
    let endings = check(1_700..1_712, |seed| {
        let (faults, caching) = match seed % 3 {
            0 => (NetworkFaults::ROUGH, false),
            1 => (NetworkFaults::HOSTILE, false),
            // Flush and durable writes keep their guarantees across the lanes of all classes.
            _ => (NetworkFaults::ROUGH, true),
        };
        Scenario {
            changes: Changes::Often(3),
            cached: caching,
            blocks: if caching { 256 } else { 2048 },
            workload: PerClass::of([SMALL, if caching { SMALL } else { BULK }]),
            ..turning(seed, faults)
        }
    });
    assert!(total(&endings, |ending| ending.changed) > 300);
    assert!(total(&endings, |ending| ending.turns.targets) > 100);
}

#[test]
fn completions_beside_latency_work_are_told_in_groups() {
    let told = |hold: Nanos| {
        let mut knobs = Knobs::switchyard();
        knobs.completion_hold = hold;
        // There is always recent `Latency` activity.
        knobs.direct_submitters = 0;
        let endings = check(1_700..1_704, |_| Scenario {
            targets: 1,
            cores: 1,
            apps: PerClass::of([1, 1]),
            workload: PerClass::of([
                Workload {
                    requests: 4_000,
                    ..SMALL
                },
                // Enough that several complete within the hold.
                Workload {
                    requests: 2_000,
                    depth: 64,
                    ..BULK
                },
            ]),
            host: knobs,
            ..scenario(NetworkFaults::CALM)
        });
        // Completions counted since the last query are not included.
        let of = total(&endings, |ending| ending.told_of);
        assert!(of > 4 * 5_000, "{endings:?}");
        of as f64 / total(&endings, |ending| ending.told) as f64
    };
    let (each, groups) = (told(Nanos::ZERO), told(COMPLETION_HOLD));
    assert!(each * 1.1 < groups, "{each} and {groups}");
}

#[test]
fn a_seed_is_a_run() {
    let of = |seed| run(seed, &turning(3, NetworkFaults::ROUGH));
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
}
