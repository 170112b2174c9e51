//! The number of a target's threads follows its load, and all SLOs are met.

use sim::scaling::{PROMISE, run};

const THREADS: u32 = 4;

#[test]
fn threads_follow_the_load_and_a_promise_is_kept_meanwhile() {
    for seed in 0..3 {
        let ending = run(seed, THREADS, 2);
        assert_eq!(ending.calm, [1, 1, 1], "seed {seed}: {ending:?}");
        let all = THREADS as usize;
        assert_eq!(ending.most, [all, all], "seed {seed}: {ending:?}");
        let counters = ending.threads;
        // Up and down once per surge.
        assert_eq!((counters.grown, counters.shrunk), (6, 6), "seed {seed}");
        assert!(ending.moved >= 12, "seed {seed}: {ending:?}");
        let failed = ending.reports.iter().any(|report| report.failed > 0);
        assert!(!failed, "seed {seed}: {ending:?}");
        let slow = ending.critical_p95.iter().any(|&p95| p95 > PROMISE);
        assert!(!slow, "seed {seed}: {ending:?}");
        let windows = ending.windows;
        assert!(
            windows.met >= 2 && windows.missed == 0,
            "seed {seed}: {ending:?}"
        );
    }
}

/// The same check fails with one thread, which shows that it can fail.
#[test]
fn with_one_thread_the_promise_is_broken() {
    let ending = run(1, 1, 1);
    assert_eq!((ending.most, ending.threads.grown), (vec![1], 0));
    assert!(
        ending.critical_p95.iter().any(|&p95| p95 > PROMISE),
        "{:?}",
        ending.critical_p95
    );
}

#[test]
fn one_seed_is_one_run() {
    let seen = |seed| {
        let ending = run(seed, 2, 1);
        (ending.reports, ending.critical_p95, ending.threads)
    };
    assert_eq!(seen(5), seen(5));
}
