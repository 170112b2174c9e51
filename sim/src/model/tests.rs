//! Invariants of whole runs, for any seed.

use super::*;
use base::{Nanos, Prng};
use switch::Knobs;
use switch::knobs::Preset;
use switch::limits::COMPLETION_HOLD;

const KIB: u32 = 1024;

/// Seeds per property.
const SEEDS: u64 = 12;

fn below(prng: &mut Prng, bound: u64) -> usize {
    usize::try_from(prng.below(bound)).expect("a small number")
}

fn pick<T: Copy>(prng: &mut Prng, of: &[T]) -> T {
    of[below(prng, of.len() as u64)]
}

/// Random machines and applications, with these knobs.
fn random_config(seed: u64, knobs: Knobs) -> Config {
    let mut prng = Prng::from_seed(seed);
    let topology = match prng.below(3) {
        0 => Topology::Split,
        1 => Topology::Shared {
            cores: 1 + below(&mut prng, 3),
        },
        _ => Topology::Network {
            host_cores: 1 + below(&mut prng, 5),
            target_cores: 1 + below(&mut prng, 5),
            link: Link::GBPS_100,
        },
    };
    let mut apps = vec![
        AppSpec::latency(1 + below(&mut prng, 6)),
        AppSpec::throughput(
            1 + below(&mut prng, 4),
            pick(&mut prng, &[4, 16, 64, 128]) * KIB,
            pick(&mut prng, &[1, 4, 16, 32]),
        ),
    ];
    apps[0].rate = prng.chance(1, 4).then_some(3_000);
    apps[1].write_permille = pick(&mut prng, &[0, 300, 1_000]);
    let mut config = Config::new(topology, knobs, apps);
    config.targets = 1 + below(&mut prng, 3);
    config.device = Nanos(pick(&mut prng, &[0, 0, 7_000, 80_000]));
    config.warmup = Nanos::from_millis(5);
    config.measured = Nanos::from_millis(40);
    config.seed = seed;
    config
}

fn run(config: &Config) -> ModelReport {
    simulate(config, &Costs::shipped()).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    for (preset, name) in Preset::ALL {
        let mut config = random_config(7, preset.knobs());
        let first = run(&config);
        assert_eq!(first, run(&config), "{name}");
        config.seed += 1;
        assert_ne!(first.counters, run(&config).counters, "{name}");
    }
}

#[test]
fn every_request_completes_exactly_once_under_every_preset() {
    for (preset, name) in Preset::ALL {
        for seed in 0..SEEDS {
            let config = random_config(seed, preset.knobs());
            // A request that is completed twice, or out of order, panics within.
            let counters = run(&config).counters;
            assert!(counters.issued > 0, "{name}, seed {seed}");
            assert_eq!(counters.issued, counters.completed, "{name}, seed {seed}");
            assert_eq!(
                counters.issued, counters.host.requests,
                "{name}, seed {seed}"
            );
            assert_eq!(
                counters.issued, counters.target.requests,
                "{name}, seed {seed}"
            );
        }
    }
}

#[test]
fn a_latency_request_waits_for_no_quantum_but_the_one_that_runs() {
    let mut seen = 0;
    for step in [
        Preset::Switchyard,
        Preset::Ablation(switch::knobs::Ablation::Prioritisation),
    ] {
        for seed in 0..SEEDS {
            let report = run(&random_config(seed, step.knobs()));
            assert_eq!(report.counters.quanta_waited_max, 0, "{step}, seed {seed}");
            seen += report.latency.requests;
        }
    }
    assert!(seen > 10_000, "{seen} requests prove little");
}

#[test]
fn without_prioritisation_the_same_requests_wait_for_more() {
    let mut knobs = Knobs::switchyard();
    knobs.prioritisation = false;
    let waited = (0..SEEDS)
        .map(|seed| run(&random_config(seed, knobs)).counters.quanta_waited_max)
        .max();
    assert!(waited > Some(0), "the check above can not fail");
}

#[test]
fn the_timer_of_a_fixed_doorbell_is_the_hosts() {
    let report = run(&Config::new(
        Topology::Split,
        Knobs::linux(),
        vec![AppSpec::latency(1)],
    ));
    let timers =
        |side: &report::Caravans| side.reasons.iter().any(|(reason, _)| *reason == "timer");
    assert!(timers(&report.counters.host), "{:?}", report.counters);
    assert!(!timers(&report.counters.target), "{:?}", report.counters);
}

/// The kernel passes on single packets, so that both sides work during a send: one send of all
/// outstanding requests of an application performs about as well as four sends of a quarter each.
#[test]
fn a_large_send_is_received_while_it_leaves() {
    let requests = |at_most: u32| {
        let mut knobs = Knobs::switchyard();
        knobs.caravan.alone.requests = at_most;
        let mut config = Config::new(
            Topology::Split,
            knobs,
            vec![AppSpec::throughput(1, 4 * KIB, 128)],
        );
        config.warmup = Nanos::from_millis(5);
        config.measured = Nanos::from_millis(40);
        run(&config).throughput.requests
    };
    let (all, quarter) = (requests(128), requests(32));
    assert!(all * 10 > quarter * 9, "{all} of {quarter}");
}

/// Small requests, each in its own send, on a host of one core.
fn one_by_one(depth: u32, change: impl FnOnce(&mut Costs)) -> u64 {
    let apps = vec![AppSpec::throughput(1, 4 * KIB, depth)];
    let mut config = Config::new(Topology::Split, Preset::NvmeTcp.knobs(), apps);
    config.warmup = Nanos::from_millis(5);
    config.measured = Nanos::from_millis(40);
    let mut costs = Costs::shipped();
    change(&mut costs);
    simulate(&config, &costs).unwrap().throughput.requests
}

/// The production loop polls its sockets and its ingress between any two sends of a lane, so that
/// many outstanding requests do not mean many answers in a receive.
#[test]
fn a_lane_sends_once_a_turn() {
    let (few, many) = (one_by_one(8, |_| ()), one_by_one(128, |_| ()));
    assert!(many * 100 < few * 115, "{many}, and {few} of few");
}

/// An application that is woken for each answer costs two switches per answer.
#[test]
fn a_woken_thread_has_the_core_as_soon_as_the_kernel_lets_it() {
    let at_once = one_by_one(128, |costs| costs.core.keep_ns = 0);
    let slices = one_by_one(128, |costs| costs.core.keep_ns = costs.core.slice_ns);
    assert!(at_once * 10 < slices * 9, "{at_once} and {slices}");
}

#[test]
fn a_send_to_a_receiver_at_work_costs_more() {
    let alone = one_by_one(128, |costs| costs.socket.contended_ns = 0);
    let contended = one_by_one(128, |costs| costs.socket.contended_ns = 10_000);
    assert!(contended * 3 < alone * 2, "{contended} and {alone}");
}

/// A few milliseconds of applications on one core and their target on another core.
fn short_split(knobs: Knobs, apps: Vec<AppSpec>) -> Config {
    let mut config = Config::new(Topology::Split, knobs, apps);
    config.warmup = Nanos::from_millis(5);
    config.measured = Nanos::from_millis(40);
    config
}

#[test]
fn an_application_alone_with_its_core_sends_for_itself() {
    let report = |apps, direct_submitters| {
        let mut knobs = Knobs::switchyard();
        knobs.direct_submitters = direct_submitters;
        let mut costs = Costs::shipped();
        costs.core.context_switch_ns = 10_000;
        simulate(&short_split(knobs, apps), &costs).unwrap()
    };
    let (ingress, direct) = (
        report(vec![AppSpec::latency(1)], 0),
        report(vec![AppSpec::latency(1)], 1),
    );
    assert_eq!(ingress.counters.direct, 0);
    assert_eq!(direct.counters.direct, direct.counters.issued);
    // To the dataplane thread and back.
    let average = |report: &ModelReport| report.latency.latency_us.avg;
    assert!(
        average(&direct) + 15.0 < average(&ingress),
        "{direct} and {ingress}"
    );
    let two = report(vec![AppSpec::latency(2)], 1);
    assert_eq!(two.counters.direct, 0, "none is alone");
    let both = report(vec![AppSpec::latency(2)], 2).counters;
    assert_eq!(both.direct, both.issued);
}

/// Both ways are used alternately, and no request is lost between them.
#[test]
fn beside_throughput_work_no_request_takes_a_direct_lane() {
    let mut throughput = AppSpec::throughput(1, 64 * KIB, 1);
    throughput.rate = Some(2_000);
    let apps = vec![AppSpec::latency(1), throughput];
    let counters = run(&short_split(Knobs::switchyard(), apps)).counters;
    assert!(counters.direct > 0, "{counters:?}");
    assert!(counters.direct < counters.issued, "{counters:?}");
    assert_eq!(counters.issued, counters.completed);
    let apps = vec![AppSpec::latency(1), AppSpec::throughput(1, 64 * KIB, 16)];
    let counters = run(&short_split(Knobs::switchyard(), apps)).counters;
    // Before the other application starts.
    assert!(counters.direct * 20 < counters.issued, "{counters:?}");
}

#[test]
fn beside_bulk_the_caches_are_others() {
    let average = |throughput_apps, cold_ns| {
        let apps = vec![
            AppSpec::latency(1),
            AppSpec::throughput(throughput_apps, 64 * KIB, 16),
        ];
        let config = short_split(Knobs::switchyard(), apps);
        let mut costs = Costs::shipped();
        costs.core.switch_cold_ns = cold_ns;
        costs.socket.send_cold_ns = cold_ns;
        costs.socket.receive_cold_ns = cold_ns;
        simulate(&config, &costs).unwrap().latency.latency_us.avg
    };
    // Two sends, two receives, and the switches between them.
    let (warm, cold) = (average(1, 0), average(1, 5_000));
    assert!(warm + 20.0 < cold, "{warm} and {cold}");
    let (warm, cold) = (average(0, 0), average(0, 5_000));
    assert!((warm - cold).abs() < f64::EPSILON, "{warm} and {cold}");
}

#[test]
fn bulk_that_is_told_of_in_groups_leaves_more_of_a_core() {
    let report = |hold: Nanos| {
        let apps = vec![AppSpec::latency(1), AppSpec::throughput(1, 64 * KIB, 16)];
        let mut knobs = Knobs::switchyard();
        knobs.completion_hold = hold;
        let config = short_split(knobs, apps);
        let mut costs = Costs::shipped();
        // The cost that completions share.
        costs.core.context_switch_ns = 10_000;
        simulate(&config, &costs).unwrap()
    };
    let (each, groups) = (report(Nanos::ZERO), report(COMPLETION_HOLD));
    let iops = |report: &ModelReport| report.throughput.iops + report.latency.iops;
    assert!(iops(&each) * 1.1 < iops(&groups), "{each:?} and {groups:?}");
}

/// The fixed cost of a send is paid half as often if an L-app with sparse requests shares the core.
#[test]
fn sends_are_larger_beside_latency_work_that_is_sparse() {
    let report = |rate, factor| {
        let mut latency = AppSpec::latency(1);
        latency.rate = Some(rate);
        let mut knobs = Knobs::switchyard();
        knobs.caravan.sparse_factor = factor;
        let apps = vec![latency, AppSpec::throughput(1, 64 * KIB, 16)];
        let config = short_split(knobs, apps);
        let mut costs = Costs::shipped();
        costs.socket.send_call_ns = 20_000;
        simulate(&config, &costs).unwrap()
    };
    let (small, large) = (report(2_500, 1), report(2_500, 2));
    let iops = |report: &ModelReport| report.throughput.iops;
    assert!(iops(&small) * 1.1 < iops(&large), "{small:?} and {large:?}");
    let (small, large) = (report(20_000, 1), report(20_000, 2));
    assert_eq!(small, large, "they come close on each other");
}

/// Counted like the production target: data without headers.
#[test]
fn sixteen_answers_of_4_kib_fit_into_64_kib() {
    let apps = vec![AppSpec::throughput(1, 4 * KIB, 128)];
    let config = short_split(Knobs::linux(), apps);
    let report = simulate(&config, &Costs::shipped()).unwrap();
    let sizes = &report.counters.target.sizes;
    assert!(sizes[4] > 0, "{sizes:?}");
    assert_eq!(sizes[5..].iter().sum::<u64>(), 0, "{sizes:?}");
}

/// A busy core learns by an interrupt that a thread was woken there.
#[test]
fn a_busy_core_does_not_know_at_once_that_another_one_woke_a_thread() {
    let average = |wake_busy_ns| {
        let apps = vec![AppSpec::latency(1), AppSpec::throughput(1, 64 * KIB, 16)];
        // The target wakes the application's own thread, which does not poll.
        let mut knobs = Knobs::switchyard();
        knobs.polling = switch::knobs::Polling::Never;
        let mut config = short_split(knobs, apps);
        config.hosting = Hosting::Inline;
        let mut costs = Costs::shipped();
        costs.core.wake_busy_ns = wake_busy_ns;
        simulate(&config, &costs).unwrap().latency.latency_us.avg
    };
    let (soon, late) = (average(0), average(100_000));
    assert!(soon + 20.0 < late, "{soon} and {late}");
}

/// Average latency with this cost of waking a thread, at either end.
fn where_waking_takes(ns: u64, apps: Vec<AppSpec>) -> f64 {
    let mut costs = Costs::shipped();
    let core = &mut costs.core;
    (core.wake_call_ns, core.wake_busy_call_ns) = (ns, ns);
    (core.wake_idle_p50_ns, core.wake_idle_p99_ns) = (ns, 2 * ns);
    core.wake_busy_ns = ns;
    let report = simulate(&short_split(Knobs::switchyard(), apps), &costs).unwrap();
    report.latency.latency_us.avg
}

/// Two polling ends wake each other no more than production ends do: neither a wake-up nor a switch
/// delays a request.
#[test]
fn ends_that_poll_wake_nobody() {
    let alone = || vec![AppSpec::latency(1)];
    let (cheap, dear) = (
        where_waking_takes(1_000, alone()),
        where_waking_takes(100_000, alone()),
    );
    assert!(dear < cheap + 2.0, "{cheap} and {dear}");
    let switches = |ns| {
        let mut costs = Costs::shipped();
        costs.core.context_switch_ns = ns;
        let config = short_split(Knobs::switchyard(), alone());
        simulate(&config, &costs).unwrap().latency.latency_us.avg
    };
    let (cheap, dear) = (switches(100), switches(100_000));
    assert!(dear < cheap + 2.0, "{cheap} and {dear}");
}

/// A polling loop yields to the applications of its core: it is ready while they run, so the other
/// end neither wakes nor interrupts it.
#[test]
fn a_loop_that_yielded_is_not_woken() {
    let both = || vec![AppSpec::latency(1), AppSpec::throughput(1, 64 * KIB, 16)];
    let (cheap, dear) = (
        where_waking_takes(1_000, both()),
        where_waking_takes(100_000, both()),
    );
    assert!(dear < cheap * 1.2, "{cheap} and {dear}");
}

/// Unlimited L load for the target's only core, and T-apps in addition.
fn crowded(floor_permille: u16) -> ModelReport {
    let mut knobs = Knobs::switchyard();
    knobs.application_steering.enabled = false;
    knobs.request_steering.enabled = false;
    knobs.floor_permille[switch::Class::Throughput] = floor_permille;
    let mut latency = AppSpec::latency(16);
    latency.depth = 16;
    let apps = vec![latency, AppSpec::throughput(4, 64 * KIB, 16)];
    let topology = Topology::Network {
        host_cores: 8,
        target_cores: 1,
        link: Link::GBPS_100,
    };
    let mut config = Config::new(topology, knobs, apps);
    config.measured = Nanos::from_millis(200);
    run(&config)
}

#[test]
fn the_floor_keeps_throughput_from_starving() {
    let (strict, floor, higher) = (crowded(0), crowded(100), crowded(400));
    let of = |report: &ModelReport| report.throughput.bytes_per_second;
    assert!(floor.counters.floor_quanta > 0 && strict.counters.floor_quanta == 0);
    assert!(floor.throughput.requests > 0);
    assert!(of(&strict) < of(&floor), "{} {}", of(&strict), of(&floor));
    assert!(of(&floor) < of(&higher), "{} {}", of(&floor), of(&higher));
}

#[test]
fn a_crowded_core_sheds_requests_and_threads_and_loses_none() {
    let apps = vec![AppSpec::latency(4), AppSpec::throughput(4, 64 * KIB, 32)];
    let topology = Topology::Network {
        host_cores: 4,
        target_cores: 4,
        link: Link::GBPS_100,
    };
    let mut config = Config::new(topology, Knobs::switchyard(), apps);
    // All applications start on the same core.
    config.apps = config
        .apps
        .iter()
        .flat_map(|spec| (0..spec.count).map(|_| AppSpec { count: 1, ..*spec }))
        .collect();
    let counters = run(&config).counters;
    assert!(counters.steered > 0, "{counters:?}");
    assert!(counters.moved_threads[1] > 0, "{counters:?}");
    assert_eq!(counters.issued, counters.completed);
}

#[test]
fn knobs_that_turn_in_flight_lose_nothing() {
    for seed in 0..SEEDS {
        let mut config = random_config(seed, Knobs::switchyard());
        let mut prng = Prng::from_seed(seed ^ 0xA5);
        for number in 1..=8 {
            let mut knobs = pick(&mut prng, Preset::ALL).0.knobs();
            // Polling and sleeping threads are created differently.
            knobs.polling = config.knobs.polling;
            config.turns.push(Turn {
                at: Nanos::from_micros(number * 4_500 + prng.below(1_000)),
                knobs,
            });
        }
        let counters = run(&config).counters;
        assert_eq!(counters.issued, counters.completed, "seed {seed}");
        assert!(counters.host.reasons.len() > 1, "seed {seed}: {counters:?}");
    }
}

#[test]
fn a_run_that_can_not_be_is_refused_by_name() {
    let mut config = random_config(1, Knobs::linux());
    config.apps.clear();
    let error = simulate(&config, &Costs::shipped()).unwrap_err();
    assert!(
        error.to_string().contains("number of applications is 0"),
        "{error}"
    );
}
