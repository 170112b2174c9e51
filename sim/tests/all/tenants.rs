//! SLOs met by the production scheduler on emulated flash in virtual time.
//!
//! Devices are an eighth of the paper's, so that a test takes seconds; latencies are the same.

use base::Nanos;
use block::device::flash::Parts;
use qos::{Declaration, Percentile, Slo, TokenPoolRules, slo::Weight};
use sim::tenants::fig5::{self, Scenario};
use sim::tenants::{
    Calibrated, Change, Known, Load, Pace, Processor, Report, Setup, Tenant, calibrate,
    calibrate_parts, fig6, run,
};
use std::sync::LazyLock;

const DIVISOR: u32 = 8;
const SEEDS: std::ops::Range<u64> = 0..5;

static DEVICE: LazyLock<Calibrated> =
    LazyLock::new(|| calibrate("A/8".parse().expect("a profile"), 1));

fn scenario(scenario: Scenario, scheduled: bool, threads: u32, seed: u64) -> Setup {
    fig5::setup(&DEVICE, scenario, scheduled, DIVISOR, threads, seed)
}

fn p95(report: &Report, tenant: usize) -> Nanos {
    report.tenants[tenant].read_latency(Percentile::P95)
}

/// Returns true if a tenant has its latency and its request rate.
fn is_kept(report: &Report, tenant: usize, iops: u64) -> bool {
    let served = report.tenants[tenant].iops() >= iops as f64 * 0.99;
    served && p95(report, tenant) <= fig5::SLO
}

fn best_effort(load: Load, weight: u32) -> Tenant {
    Tenant {
        declaration: Declaration::BestEffort(Weight::new(weight).expect("a weight")),
        load,
        threads: vec![0],
    }
}

fn critical(iops: u64, read_permille: u16) -> Declaration {
    Declaration::LatencyCritical(Slo {
        percentile: Percentile::P95,
        latency: fig5::SLO,
        iops,
        read_permille,
        request_bytes: 4096,
    })
}

#[test]
fn promises_are_kept_with_the_scheduler_and_broken_without() {
    for seed in SEEDS {
        for threads in [1, 2] {
            let on = run(&scenario(Scenario::First, true, threads, seed)).expect("admitted");
            for (tenant, iops) in fig5::IOPS.into_iter().enumerate() {
                let iops = iops / u64::from(DIVISOR);
                assert!(
                    is_kept(&on, tenant, iops),
                    "{} of seed {seed} on {threads}: {} of {iops}, p95 {}",
                    fig5::NAMES[tenant],
                    on.tenants[tenant].iops(),
                    p95(&on, tenant)
                );
            }
            let [c, d] = [2, 3].map(|tenant: usize| on.tenants[tenant].tokens_per_second());
            assert!((c / d - 1.0).abs() <= 0.05, "best effort: {c} and {d}");
            assert!(on.tokens_per_second() <= on.rate as f64 * 1.01);
        }
        let off = run(&scenario(Scenario::First, false, 1, seed)).expect("admitted");
        assert!(p95(&off, 0) > fig5::SLO, "nobody needs a scheduler here");
    }
}

/// Why best effort advances tokens: B requests exactly its SLO's rate.
#[test]
fn the_papers_rules_to_the_letter_break_the_promise_to_b() {
    for threads in [1, 2] {
        let mut setup = scenario(Scenario::First, true, threads, 1);
        setup.rules = TokenPoolRules::reflex_paper();
        let report = run(&setup).expect("admitted");
        let latency = p95(&report, 1);
        println!("p95 of B on {threads} threads, by Algorithm 1 alone: {latency}");
        assert!(
            latency > fig5::SLO,
            "nothing needs to be advanced: {latency}"
        );
    }
}

#[test]
fn what_is_not_used_is_shared_and_next_to_nothing_is_lost() {
    for seed in SEEDS {
        let first = run(&scenario(Scenario::First, true, 2, seed)).expect("admitted");
        let second = run(&scenario(Scenario::Second, true, 2, seed)).expect("admitted");
        assert!(is_kept(&second, 0, fig5::IOPS[0] / u64::from(DIVISOR)));
        assert!(is_kept(&second, 1, fig5::IOPS_B_LESS / u64::from(DIVISOR)));
        let used = second.tokens_per_second() / second.rate as f64;
        assert!(used >= 0.95, "{used} of the rate");
        for tenant in [2, 3] {
            let more = |report: &Report| report.tenants[tenant].tokens_per_second();
            assert!(
                more(&second) > more(&first) * 1.3,
                "{tenant} of seed {seed}"
            );
        }
    }
}

#[test]
fn best_effort_shares_by_weight() {
    let mut setup = scenario(Scenario::First, true, 2, 3);
    for (tenant, weight) in [(2, 100), (3, 300)] {
        let weight = Weight::new(weight).expect("a weight");
        setup.tenants[tenant].declaration = Declaration::BestEffort(weight);
    }
    let report = run(&setup).expect("admitted");
    let [c, d] = [2, 3].map(|tenant: usize| report.tenants[tenant].tokens_per_second());
    assert!((d / c / 3.0 - 1.0).abs() <= 0.05, "{c} and {d}");
}

/// Without SLOs the device is as busy as without a scheduler.
#[test]
fn a_device_without_promises_loses_next_to_nothing() {
    for read_permille in [1000, 900, 500] {
        let load = Load {
            pace: Pace::Depth(64),
            read_permille,
            bytes: 4096,
        };
        let setup = |scheduled| Setup {
            tenants: vec![best_effort(load, 100), best_effort(load, 100)],
            ..scenario(Scenario::First, scheduled, 1, 9)
        };
        let [off, on] = [false, true].map(|scheduled| {
            let report = run(&setup(scheduled)).expect("best effort");
            report
                .tenants
                .iter()
                .map(|tenant| tenant.iops())
                .sum::<f64>()
        });
        assert!(on >= off * 0.97, "{on} of {off} at {read_permille}");
    }
}

/// Tenants register, change, burst and are removed; tenants within their SLOs are not affected.
#[test]
fn churn_and_bursts_break_no_promise() {
    for seed in SEEDS {
        let mut setup = scenario(Scenario::First, true, 2, seed);
        let part = |iops: u64| iops / u64::from(DIVISOR);
        setup.tenants[1].declaration = critical(part(30_000), 800);
        setup.tenants[1].load.pace = Pace::Random(part(27_000));
        setup.tenants.push(Tenant {
            declaration: critical(part(10_000), 900),
            load: Load {
                pace: Pace::Even(part(10_000)),
                read_permille: 900,
                bytes: 4096,
            },
            threads: vec![1],
        });
        let at = Nanos::from_millis;
        setup.changes = vec![
            (at(300), Change::Declare(4, critical(part(20_000), 900))),
            (at(350), Change::Pace(4, Pace::Even(part(20_000)))),
            // Three times its SLO's rate, for a while.
            (at(500), Change::Pace(1, Pace::Random(part(90_000)))),
            (at(600), Change::Pace(1, Pace::Random(part(27_000)))),
            (at(650), Change::Remove(4)),
            (at(700), Change::Pace(4, Pace::Even(part(10_000)))),
            (at(750), Change::Remove(2)),
            (at(800), Change::Declare(4, critical(part(10_000), 900))),
            (at(900), Change::Declare(2, Declaration::default())),
        ];
        let report = run(&setup).expect("admitted");
        assert!(
            is_kept(&report, 0, fig5::IOPS[0] / u64::from(DIVISOR)),
            "seed {seed}: {} p95 {}",
            report.tenants[0].iops(),
            p95(&report, 0)
        );
        assert!(
            p95(&report, 4) <= fig5::SLO,
            "seed {seed}: {}",
            p95(&report, 4)
        );
        assert!(
            report.tenants[4].refused > 0,
            "it asked while it was removed"
        );
    }
}

/// A tenant has its rate on one thread of twelve or on all of them, together with ten thousand
/// mostly idle tenants.
#[test]
fn a_rate_does_not_depend_on_threads_or_on_how_many_are_registered() {
    const THREADS: u32 = 12;
    const SILENT: u32 = 10_000;
    let load = |pace| Load {
        pace,
        read_permille: 1000,
        bytes: 4096,
    };
    let tenant = |threads: Vec<u32>| Tenant {
        declaration: critical(4_000, 1000),
        load: load(Pace::Even(4_000)),
        threads,
    };
    let mut tenants = vec![tenant(vec![7]), tenant((0..THREADS).collect())];
    for thread in 0..THREADS {
        let greedy = best_effort(load(Pace::Depth(32)), 100);
        tenants.push(Tenant {
            threads: vec![thread],
            ..greedy
        });
    }
    for number in 0..SILENT {
        let rare = best_effort(load(Pace::Even(1)), 1);
        tenants.push(Tenant {
            threads: vec![number % THREADS],
            ..rare
        });
    }
    let setup = Setup {
        threads: THREADS,
        tenants,
        ..scenario(Scenario::First, true, THREADS, 4)
    };
    let report = run(&setup).expect("admitted");
    for number in [0, 1] {
        assert!(
            is_kept(&report, number, 4_000),
            "{}: {} p95 {}",
            number,
            report.tenants[number].iops(),
            p95(&report, number)
        );
    }
    let shares: Vec<_> = (2..2 + THREADS as usize)
        .map(|number| report.tenants[number].tokens_per_second())
        .collect();
    let [least, most] = [f64::min, f64::max]
        .map(|of: fn(f64, f64) -> f64| shares.iter().copied().reduce(of).expect("twelve of them"));
    assert!(least / most >= 0.9, "{shares:?}");
    let served: u64 = report.tenants[14..]
        .iter()
        .map(|tenant| tenant.requests)
        .sum();
    assert!(served >= u64::from(SILENT) * 9 / 10, "{served}");
}

/// The model that calibration would find if the device took `percent` of its original service time.
fn slowed(percent: u64) -> Known {
    let Parts {
        transfer,
        read,
        read_alone,
        program,
        erase,
        ..
    } = DEVICE.parts;
    let longer = |span: Nanos| Nanos(span.0 * percent / 100);
    let parts = Parts {
        transfer: longer(transfer),
        read: longer(read),
        read_alone: longer(read_alone),
        program: longer(program),
        erase: longer(erase),
        ..DEVICE.parts
    };
    let Calibrated { costs, curve, .. } = calibrate_parts(parts, 1);
    Known { costs, curve }
}

/// A and B of the first scenario, B with a lower rate, so that a device that is a fifth slower can
/// meet both SLOs; and with a margin, because its requests come at random.
fn modest(seed: u64) -> Setup {
    let mut setup = scenario(Scenario::First, true, 2, seed);
    let part = |iops: u64| iops / u64::from(DIVISOR);
    setup.tenants[1].declaration = critical(part(30_000), 800);
    setup.tenants[1].load.pace = Pace::Random(part(22_000));
    setup
}

/// Once the model is updated, best effort gives way, and SLOs are met while they fit.
#[test]
fn promises_are_kept_on_a_device_that_became_slower_as_far_as_it_goes() {
    let known = slowed(120);
    for seed in SEEDS {
        let mut setup = modest(seed);
        setup.changes = vec![
            (Nanos::from_millis(100), Change::SlowDown(120)),
            (Nanos::from_millis(110), Change::Recalibrate(known.clone())),
        ];
        let slow = run(&setup).expect("admitted");
        assert!(slow.unkept.is_empty(), "all of it still fits");
        assert!(
            is_kept(&slow, 0, fig5::IOPS[0] / u64::from(DIVISOR)),
            "seed {seed}: {} p95 {}",
            slow.tenants[0].iops(),
            p95(&slow, 0)
        );
        assert!(p95(&slow, 1) <= fig5::SLO, "seed {seed}: {}", p95(&slow, 1));
        let fast = run(&modest(seed)).expect("admitted");
        assert!(slow.rate < fast.rate);
        for tenant in [2, 3] {
            let [slow, fast] =
                [&slow, &fast].map(|report| report.tenants[tenant].tokens_per_second());
            assert!(slow > 0.0 && slow < fast, "{tenant}: {slow} of {fast}");
        }
    }
}

/// SLOs that cannot be met any more are reported by name, no tenant with a rate starves, and once
/// the device has recovered, all SLOs are met again.
#[test]
fn a_promise_that_a_slow_device_cannot_keep_is_told_and_comes_back_with_the_device() {
    let known = slowed(300);
    let back = Known {
        costs: DEVICE.costs,
        curve: DEVICE.curve.clone(),
    };
    for seed in SEEDS {
        let mut setup = modest(seed);
        setup.changes = vec![
            (Nanos::from_millis(100), Change::SlowDown(300)),
            (Nanos::from_millis(110), Change::Recalibrate(known.clone())),
        ];
        let slow = run(&setup).expect("admitted");
        assert!(slow.unkept.contains(&1), "seed {seed}: {:?}", slow.unkept);
        for tenant in [0, 1] {
            let iops = slow.tenants[tenant].iops();
            assert!(iops > 1_000.0, "{tenant} of seed {seed}: {iops}");
        }
        setup.changes.extend([
            (Nanos::from_millis(150), Change::SlowDown(100)),
            (Nanos::from_millis(150), Change::Recalibrate(back.clone())),
        ]);
        setup.warm_up = Nanos::from_millis(600);
        let again = run(&setup).expect("admitted");
        assert!(again.unkept.is_empty());
        assert!(
            is_kept(&again, 0, fig5::IOPS[0] / u64::from(DIVISOR)),
            "seed {seed}: {} p95 {}",
            again.tenants[0].iops(),
            p95(&again, 0)
        );
        assert!(
            p95(&again, 1) <= fig5::SLO,
            "seed {seed}: {}",
            p95(&again, 1)
        );
    }
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let mut setup = scenario(Scenario::First, true, 1, 1);
    setup.tenants[1].declaration = critical(1_000_000, 500);
    let error = run(&setup).expect_err("more than the device has");
    assert!(
        error.to_string().starts_with("tenant 1 is not admitted"),
        "{error}"
    );
}

#[test]
fn one_seed_is_one_run() {
    let numbers = |seed| {
        let report = run(&scenario(Scenario::Second, true, 2, seed)).expect("admitted");
        let of = |tenant: usize| (report.tenants[tenant].requests, p95(&report, tenant));
        [0, 1, 2, 3].map(of)
    };
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
}

/// A thread whose work takes time is limited by that: at half load no request queues, and beyond
/// its capacity it delivers its capacity.
#[test]
fn a_thread_does_as_much_as_its_work_allows() {
    let processor = Processor {
        turn: Nanos(0),
        receive: Nanos(1_500),
        request: Nanos(1_000),
        send: Nanos(2_500),
        answer: Nanos(0),
        receive_byte_ps: 0,
        send_byte_ps: 0,
    };
    let device = calibrate("A".parse().expect("a profile"), 1);
    let measure = |connections: u32, iops: u64| {
        let mut setup = fig6::connections(&device, connections, iops, processor, 5);
        setup.measured = Nanos::from_millis(300);
        run(&setup).expect("best effort")
    };
    // 5 µs each, because a turn seldom finds two requests of one connection: 200 K/s.
    let half = measure(1_000, 100);
    let iops = half.tenants[0].iops();
    assert!((iops / 100_000.0 - 1.0).abs() < 0.02, "{iops}");
    let busy = half.busy[0].0 as f64 / 3e8;
    assert!((0.45..0.55).contains(&busy), "{busy}");
    let over = measure(4_000, 100);
    let most = over.tenants[0].iops();
    assert!((150_000.0..210_000.0).contains(&most), "{most}");
    assert!(p95(&over, 0) > Nanos(p95(&half, 0).0 * 10));
    // With two connections a turn under load finds many requests: 1 µs each.
    let few = measure(2, 200_000);
    let few = few.tenants[0].iops();
    assert!(few > most * 1.5, "{few} of two, {most} of many");
}

/// Threads with an SLO each, and two tenants that take the rest.
#[test]
fn promises_add_up_over_threads() {
    let device = calibrate("A".parse().expect("a profile"), 1);
    let processor = Processor::of_the_paper();
    let mut setup = fig6::cores(&device, 4, processor, 1);
    setup.measured = Nanos::from_millis(600);
    let report = run(&setup).expect("admitted");
    for tenant in fig6::BEST_EFFORT..fig6::BEST_EFFORT + 4 {
        let late = p95(&report, tenant);
        assert!(
            late <= fig6::SLO,
            "{late} at {} of {}",
            report.tokens_per_second(),
            report.rate
        );
        let iops = report.tenants[tenant].iops();
        assert!(iops >= fig6::IOPS as f64 * 0.99, "{iops}");
    }
    assert!(report.tokens_per_second() >= report.rate as f64 * 0.95);
}
