//! Tests of the model of I/O paths.

use super::{CacheSize, Load, Machine, Mix, Pattern, Report, Setup, run};
use crate::model::Costs;
use base::Nanos;
use switch::path::{Path, PathRules};

fn setup(path: Path, threads: usize) -> Setup {
    Setup {
        path,
        rules: PathRules::default(),
        device: "dram-ssd+5us".parse().unwrap(),
        device_pages: 1 << 22,
        machine: Machine::of(&Costs::shipped()),
        load: Load {
            threads,
            pages: 1,
            pattern: Pattern::Random,
            mix: Mix::OfRequests(1_000),
        },
        cache: None,
        warm_up: Nanos::from_millis(10),
        measured: Nanos::from_millis(40),
        seed: 1,
    }
}

/// Mean time per request of a thread at depth 1, in nanoseconds.
fn each(report: &Report, setup: &Setup) -> f64 {
    setup.measured.0 as f64 / report.requests as f64
}

#[test]
fn the_same_seed_is_the_same_run() {
    for path in Path::ALL {
        let mut setup = setup(path, 32);
        setup.cache = Some(CacheSize::of(4096));
        setup.load.mix = Mix::OfRequests(500);
        let first = run(&setup);
        assert_eq!(first, run(&setup), "{path}");
        setup.seed = 2;
        assert_ne!(first, run(&setup), "{path}");
    }
}

#[test]
fn every_request_completes_once_or_is_under_way() {
    let caches = [None, Some(CacheSize::of(4096))];
    let patterns = [Pattern::Sequential, Pattern::Random];
    for path in Path::ALL {
        for (cache, pattern) in caches.into_iter().zip(patterns) {
            let mixes = [(1, 1_000), (1, 0), (32, 0), (32, 500)];
            let mixes = mixes.map(|(threads, permille)| (threads, Mix::OfRequests(permille)));
            for (threads, mix) in mixes.into_iter().chain([(32, Mix::OfThreads)]) {
                let mut setup = setup(path, threads);
                setup.cache = cache;
                setup.load.pattern = pattern;
                setup.load.mix = mix;
                let report = run(&setup);
                let sum = report.completed + report.under_way;
                assert_eq!(report.submitted, sum, "{path}: {report:?}");
                // No thread starves: the rate is that of a busy device.
                assert!(report.requests > 400, "{path}, {setup:?}: {report:?}");
            }
        }
    }
}

#[test]
fn one_thread_that_polls_takes_the_device_and_the_costs() {
    for path in [Path::Sync, Path::Stm, Path::Htm] {
        let setup = setup(path, 1);
        let machine = &setup.machine;
        let costs = machine.app_ns + machine.call_ns + machine.copy_ns;
        let costs = costs + machine.submit_ns + machine.complete_ns;
        // Device time: 1.149 and 5 µs per command, 5.851 µs per page.
        let expected = 12_000.0 + costs as f64;
        let took = each(&run(&setup), &setup);
        assert!((took / expected - 1.0).abs() < 0.01, "{path}: {took} ns");
    }
}

#[test]
fn the_time_of_a_request_is_what_its_thread_waits_for_it() {
    for (path, threads) in [(Path::Interrupt, 1), (Path::Sync, 1), (Path::Sync, 8)] {
        let setup = setup(path, threads);
        let report = run(&setup);
        let counted = report.latencies.count();
        assert!(
            counted.abs_diff(report.requests) <= threads as u64,
            "{path}"
        );
        // Every thread has one outstanding request.
        let expected = each(&report, &setup) * threads as f64;
        let took = report.latencies.mean_us() * 1e3;
        assert!((took / expected - 1.0).abs() < 0.01, "{path}: {took} ns");
    }
}

#[test]
fn a_request_of_many_pages_is_one_command_that_takes_as_long_as_they_do() {
    for pattern in [Pattern::Random, Pattern::Sequential] {
        let mut setup = setup(Path::Sync, 1);
        setup.load.pages = 32;
        setup.load.pattern = pattern;
        // The last pages are less than a request.
        setup.device_pages = 100;
        let machine = &setup.machine;
        let costs = machine.app_ns + machine.call_ns + 32 * machine.copy_ns;
        let costs = costs + machine.submit_ns + machine.complete_ns;
        let expected = 1_149.0 + 5_000.0 + 32.0 * 5_851.0 + costs as f64;
        let report = run(&setup);
        let took = each(&report, &setup);
        assert!((took / expected - 1.0).abs() < 0.01, "{took} ns");
        assert!((report.merged() - 32.0).abs() < 1e-9);
        let bytes = report.requests as f64 * 32.0 * 4096.0;
        assert_eq!(report.bytes_per_second, bytes / 0.04);
    }
}

#[test]
#[should_panic(expected = "pages == 1")]
fn a_request_through_a_cache_is_of_one_page() {
    let mut setup = setup(Path::Sync, 1);
    setup.cache = Some(CacheSize::of(4096));
    setup.load.pages = 2;
    let _ = run(&setup);
}

#[test]
fn a_thread_that_polls_has_a_processor_and_one_that_waits_has_none() {
    let used = |path, threads| {
        let setup = setup(path, threads);
        run(&setup).busy_percent / 100.0 * setup.machine.processors as f64
    };
    for threads in [1, 4] {
        let used = used(Path::Sync, threads);
        assert!((used / threads as f64 - 1.0).abs() < 0.01, "{used}");
    }
    let (one, interrupt) = (used(Path::Stm, 32), used(Path::Interrupt, 1));
    assert!((1.0..8.0).contains(&one), "{one}");
    assert!(interrupt < 0.8, "{interrupt}");
}

#[test]
fn a_thread_that_is_woken_runs_after_both_halves_of_the_wake() {
    let setup = setup(Path::Poll, 1);
    let machine = &setup.machine;
    let costs = machine.app_ns + machine.call_ns + machine.copy_ns;
    let costs = costs + machine.submit_ns + machine.complete_ns + 2 * machine.scheduler_ns;
    // The dispatcher is woken, and it wakes the application.
    let wakes = 2 * (machine.wake_call_ns + machine.wake_ns);
    let expected = 12_000.0 + (costs + wakes) as f64;
    let took = each(&run(&setup), &setup);
    assert!((took / expected - 1.0).abs() < 0.03, "{took}, {expected}");
}

#[test]
fn a_runner_is_in_every_second_command_that_it_sends() {
    let mut setup = setup(Path::Stm, 8);
    setup.machine = Machine::of_thesis(&Costs::shipped());
    let merged = run(&setup).merged();
    assert!((7.4..7.6).contains(&merged), "{merged} of 8 threads");
}

#[test]
fn an_interrupt_and_three_switches_delay_a_request_of_the_baseline() {
    let mut setup = setup(Path::Interrupt, 1);
    setup.machine = Machine::of_thesis(&Costs::shipped());
    let took = each(&run(&setup), &setup);
    // Table 6 has 27 µs; this has a copy and two schedulers more.
    assert!((27_000.0..31_000.0).contains(&took), "{took} ns");
}

#[test]
fn concurrent_reads_become_one_command_as_far_as_the_path_merges() {
    let merged = |path| run(&setup(path, 32)).merged();
    assert!(merged(Path::Stm) > 8.0);
    assert!(merged(Path::TwoQueue) > 4.0);
    for path in [Path::Interrupt, Path::Sync, Path::Atm] {
        assert!(merged(path) < 1.05, "{path}");
    }
}

#[test]
fn a_plugged_queue_gathers_what_one_thread_writes_back() {
    let mut setup = setup(Path::Atm, 1);
    setup.cache = Some(CacheSize::of(4096));
    setup.load.mix = Mix::OfRequests(0);
    let atm = run(&setup);
    let sync = run(&Setup {
        path: Path::Sync,
        ..setup
    });
    assert!(atm.merged() > 8.0, "{}", atm.merged());
    assert!((sync.merged() - 1.0).abs() < 1e-9);
    assert!(atm.bytes_per_second > 1.3 * sync.bytes_per_second);
}

#[test]
fn a_sequential_reader_is_read_ahead_in_windows() {
    let mut setup = setup(Path::Sync, 1);
    setup.cache = Some(CacheSize::of(4096));
    setup.load.pattern = Pattern::Sequential;
    let report = run(&setup);
    assert!(report.merged() > 31.0, "{}", report.merged());
    assert!(report.bytes_per_second > 450e6);
}

#[test]
fn the_mix_of_one_thread_is_of_reads_alone() {
    for path in Path::ALL {
        let setup = setup(path, 1);
        let mut mixed = setup;
        mixed.load.mix = Mix::OfThreads;
        // Their pages are drawn differently.
        let ratio = run(&mixed).requests as f64 / run(&setup).requests as f64;
        assert!((ratio - 1.0).abs() < 0.02, "{path}: {ratio}");
    }
}

/// Writers above the limit of dirty pages bypassed the cache, each with its own page, so that the
/// baseline had no adjacent blocks to merge.
#[test]
fn writers_under_pressure_write_back_neighbours() {
    let mut setup = setup(Path::Interrupt, 32);
    setup.cache = Some(CacheSize::of(4096));
    setup.load.pattern = Pattern::Sequential;
    setup.load.mix = Mix::OfRequests(0);
    let merged = run(&setup).merged();
    assert!(merged > 3.0, "{merged}");
}

#[test]
fn one_writer_has_nothing_to_merge_where_each_page_is_waited_for() {
    let mut setup = setup(Path::Stm, 1);
    setup.cache = Some(CacheSize::of(4096));
    setup.load.mix = Mix::OfRequests(0);
    let merged = run(&setup).merged();
    assert!(merged < 1.05, "{merged}");
}
