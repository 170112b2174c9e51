//! Shows that the oracle can fail: it catches a host that replays unsafely, and passes a host that
//! replays safely, on the same networks and with a target that cannot end an old controller
//! immediately. See `docs/design/decisions/0004-replay.md`.

use base::Nanos;
use block::Device;
use block::device::Ram;
use host::ReplayPolicy;
use sim::storage::{Scenario, run};
use sim::{NetworkFaults, Workload};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// One in six seeds shows the failure, so that other random draws do not hide it.
const SEEDS: Range<u64> = 700..748;

/// Few blocks, so that most writes overlap with other writes, and a network that delivers data in
/// flight long after the host has given its connections up.
fn scenario(replay: ReplayPolicy) -> Scenario {
    Scenario {
        target_cores: 2,
        hosts: 1,
        queues: 2,
        digests: false,
        replay,
        end_controller: false,
        command_timeout: Nanos::from_secs(30),
        loss_timeout: None,
        faults: NetworkFaults {
            linger_max: Nanos::from_secs(4),
            cut_one_in: 400,
            delay_max: Nanos::from_millis(5),
            ..NetworkFaults::HOSTILE
        },
        workload: Workload {
            requests: 3_000,
            depth: 24,
            blocks_max: 4,
            blocks_large: 16,
        },
    }
}

fn crowded(_seed: u64) -> Arc<dyn Device> {
    Arc::new(Ram::new(8 * 1024, 512).expect("a small device"))
}

/// Returns the oracle's message; `None` for a run without a failure.
fn complaint(seed: u64, replay: ReplayPolicy) -> Option<String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, &scenario(replay), crowded)));
    let panic = match outcome {
        Ok(ending) => {
            assert!(
                ending.cuts > 0,
                "seed {seed} cuts nothing and proves nothing"
            );
            return None;
        }
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<String>().cloned();
    Some(text.unwrap_or_else(|| "a panic without a text".to_owned()))
}

#[test]
fn careless_replay_is_caught() {
    let complaints: Vec<_> = SEEDS
        .filter_map(|seed| complaint(seed, ReplayPolicy::Immediate))
        .collect();
    assert!(
        complaints.iter().any(|text| text.contains("holds version")),
        "no seed of {SEEDS:?} showed an old write over a newer one: {complaints:?}"
    );
}

#[test]
fn careful_replay_is_clean_on_the_same_networks() {
    for seed in SEEDS {
        assert_eq!(complaint(seed, ReplayPolicy::WhenSafe), None, "seed {seed}");
    }
}
