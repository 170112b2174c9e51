//! Runs with all features, by seed.

use sim::Tolerance;
use sim::check::{Feature, Options, Plan, kept, run, run_plan};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Also with TLS and DH-HMAC-CHAP, whose messages have random bytes of the kernel.
#[test]
fn a_seed_is_a_run() {
    let options = |seed| Options {
        seed,
        ..Options::default()
    };
    for feature in [Feature::Tls, Feature::Chap] {
        let has = |&seed: &u64| Plan::draw(&options(seed)).features.contains(&feature);
        let seed = (11..).find(has).expect("some seed draws it");
        let first = run(&options(seed));
        assert!(first.requests > 0);
        assert_eq!(run(&options(seed)), first, "seed {seed}");
    }
}

/// Their lines in `sim/seeds.txt` name the bug that each seed found.
#[test]
fn what_was_found_once_is_not_found_again() {
    for options in kept() {
        println!("{options:?}");
        run(&options);
    }
}

/// With digests, flipped bits do not reach read data. Without them, only TCP's checksum protects:
/// the oracle detects a flip that passes it.
#[test]
fn without_digests_the_oracle_sees_flipped_bits() {
    let mut seen = 0;
    for seed in 0..12 {
        let mut plan = Plan::draw(&Options {
            seed,
            without: Feature::ALL.into_iter().collect(),
            requests: Some(300),
        });
        plan.network.flip_one_in = 100;
        plan.provoked.losses = true;
        plan.provoked.violations = true;
        plan.tolerance = Tolerance::Only {
            device: true,
            gone: true,
            late: true,
            unconnected: true,
            forgets: true,
            changes: true,
        };
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| run_plan(seed, &plan))) else {
            continue;
        };
        let message = panic.downcast_ref::<String>().map_or("", String::as_str);
        seen += u32::from(message.starts_with("block "));
    }
    assert!(seen > 0, "no flipped bit was read");
}

/// Commands over extents, in runs with all other features, too: the effect of each extent is
/// checked as a separate request.
#[test]
fn extents_survive_whatever_a_run_has() {
    for seed in 0..16 {
        let mut plan = Plan::draw(&Options {
            seed,
            requests: Some(200),
            ..Options::default()
        });
        plan.features.insert(Feature::Extents);
        println!("seed {seed}: {:?}", plan.features);
        assert!(run_plan(seed, &plan).requests > 0);
    }
}

/// Commands over extents at targets that restart with other limits: commands beyond the new limits
/// were refused, which no check noticed.
#[test]
fn extents_survive_other_limits() {
    let options = |seed| Options {
        seed,
        requests: Some(200),
        ..Options::default()
    };
    let has_both = |&seed: &u64| {
        let features = Plan::draw(&options(seed)).features;
        features.contains(&Feature::Extents) && features.contains(&Feature::OtherLimits)
    };
    for seed in (0..).filter(has_both).take(16) {
        println!("seed {seed}");
        run(&options(seed));
    }
}

/// Threads of a host that share an I/O path, in runs with all other features, too: the report has
/// the requests of each path.
#[test]
fn paths_of_hosts_survive_whatever_a_run_has() {
    let options = |seed| Options {
        seed,
        requests: Some(200),
        ..Options::default()
    };
    let seeds = (0..).filter(|&seed| Plan::draw(&options(seed)).paths.iter().any(Option::is_some));
    for seed in seeds.take(16) {
        let plan = Plan::draw(&options(seed));
        println!("seed {seed}: {:?}", plan.features);
        let survived = run_plan(seed, &plan);
        for path in plan.paths.iter().flatten() {
            assert!(survived.by_path[path.drawn.path.name()] > 0, "{path}");
        }
    }
}
