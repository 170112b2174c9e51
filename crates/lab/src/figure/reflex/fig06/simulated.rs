//! Scaling with threads, tenants and connections, on the emulated device A at full scale in virtual
//! time. `[ReFlex §5.5, Fig. 6]`
//!
//! The registry, the schedulers and the device are production code. The cost of a thread's work is
//! either that of the paper's dataplane with its own TCP, or that of the costs model for this stack
//! over the kernel's TCP.

use crate::figure::Figure;
use crate::figure::claim::Bound;
use crate::figure::plan::{Panel, Plan, cell, claims};
use crate::figure::sample::Metric;
use crate::figure::simulation::{Lines, READ_TAIL as LATENCY, REQUESTS, Simulation, TOKENS};
use base::Nanos;
use qos::Percentile;
use sim::model::Costs;
use sim::model::figures::Series;
use sim::tenants::{Calibrated, Processor, Report, Setup, TenantReport, calibrate, fig6, run};

/// The device's seed: the same in every repetition, because a device is calibrated once.
const DEVICE_SEED: u64 = 1;

/// Lines of Fig. 6(a).
const CRITICAL: &str = "latency-critical";
const BEST_EFFORT: &str = "best effort";
const RATE: &str = "all";
const PROMISED: &str = "promised";

/// Threads of Fig. 6(b), and the names of their lines.
const THREADS: [(u32, &str, &str); 3] = [
    (1, "1 thread", "1 thread, kernel TCP"),
    (2, "2 threads", "2 threads, kernel TCP"),
    (4, "4 threads", "4 threads, kernel TCP"),
];

/// Rates of each connection of Fig. 6(c), and the names of their lines.
const RATES: [(u64, &str, &str); 2] = [
    (100, "100/s each", "100/s each, kernel TCP"),
    (1_000, "1000/s each", "1000/s each, kernel TCP"),
];

/// Lines end at this read latency: the thread does not keep up, and from there on the latency only
/// reflects the length of the measurement.
const LATE: Nanos = Nanos::from_millis(20);

/// Measured time of a quick run; near the device's limit, queues take long to settle.
const QUICK: Nanos = Nanos::from_millis(100);
const QUICK_LATE: Nanos = Nanos::from_millis(600);

const SMALL: &[Panel] = &[
    Panel::lines(Metric::Requests),
    Panel::lines(Metric::ReadTail).logarithmic(),
];

/// Fig. 6(a): threads.
pub(in crate::figure) const THREADS_FIGURE: Figure = Figure {
    name: "sim-reflex-6a",
    title: "Up to twelve threads, each with a promise to keep (emulated, in virtual time)",
    paper: "ReFlex §5.5, Fig. 6(a)",
    workload: "emulated device A in virtual time: on each thread a tenant with 20 K/s of 4 KiB (90 % \
               reads) and an SLO of p95 2 ms; two best-effort tenants (80 % reads, depth 512) on \
               two threads; processing costs of the paper",
    work: Simulation::of(
        cores,
        &[
            Panel::lines(Metric::Requests),
            Panel::lines(Metric::Tokens),
            Panel::lines(Metric::ReadTail).logarithmic(),
        ],
        cores_claims,
    ),
};

/// Fig. 6(b): tenants.
pub(in crate::figure) const TENANTS_FIGURE: Figure = Figure {
    name: "sim-reflex-6b",
    title: "Up to ten thousand tenants (emulated, in virtual time)",
    paper: "ReFlex §5.5, Fig. 6(b)",
    workload: "emulated device A in virtual time: tenants with one connection each and 100 reads of \
               1 KiB per second; processing costs of the paper, or of the kernel's TCP",
    work: Simulation::of(tenants, SMALL, tenants_claims),
};

/// Fig. 6(c): connections.
pub(in crate::figure) const CONNECTIONS_FIGURE: Figure = Figure {
    name: "sim-reflex-6c",
    title: "Thousands of connections on one thread (emulated, in virtual time)",
    paper: "ReFlex §5.5, Fig. 6(c)",
    workload: "emulated device A in virtual time: one tenant on one thread, with connections of \
               100 or 1000 reads of 1 KiB per second each; processing costs of the paper, or of \
               the kernel's TCP",
    work: Simulation::of(connections, SMALL, connections_claims),
};

fn device() -> Calibrated {
    calibrate("A".parse().expect("a profile of ours"), DEVICE_SEED)
}

fn measure(mut setup: Setup, quick: bool, span: Nanos) -> Report {
    if quick {
        setup.measured = span;
    }
    run(&setup).expect("the paper's tenants are admitted")
}

fn micros(span: Nanos) -> f64 {
    span.0 as f64 / 1e3
}

fn thousands(tenants: &[TenantReport]) -> f64 {
    tenants.iter().map(TenantReport::iops).sum::<f64>() / 1e3
}

fn latest(tenants: &[TenantReport]) -> Nanos {
    let tails = tenants
        .iter()
        .map(|tenant| tenant.read_latency(Percentile::P95));
    tails.max().unwrap_or(Nanos::ZERO)
}

fn cores(quick: bool, seed: u64, _: &Costs) -> Vec<Series> {
    let ticks: &[u32] = if quick {
        &[0, 1, 4, 12]
    } else {
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    };
    let device = device();
    let mut lines = Lines::over("Latency-critical tenants, a thread for each");
    for &critical in ticks {
        let setup = fig6::cores(&device, critical, Processor::of_the_paper(), seed);
        let report = measure(setup, quick, QUICK_LATE);
        let (best_effort, promised) = report.tenants.split_at(fig6::BEST_EFFORT);
        lines.add(REQUESTS, BEST_EFFORT, critical, thousands(best_effort));
        lines.add(TOKENS, RATE, critical, report.tokens_per_second() / 1e3);
        if critical == 0 {
            continue;
        }
        lines.add(REQUESTS, CRITICAL, critical, thousands(promised));
        lines.add(LATENCY, CRITICAL, critical, micros(latest(promised)));
        let asked = f64::from(critical) * fig6::IOPS as f64 / 1e3;
        lines.add(REQUESTS, PROMISED, critical, asked);
        lines.add(LATENCY, PROMISED, critical, micros(fig6::SLO));
        lines.add(TOKENS, PROMISED, critical, report.rate as f64 / 1e3);
    }
    lines.finish()
}

fn cores_claims(plan: &mut Plan) {
    let ticks = |plan: &Plan| plan.x.ticks[1..].to_vec();
    let critical = ticks(plan);
    claims! { plan;
        "linear"
            "the requests of the latency-critical tenants grow with their threads, without a bottleneck":
            Metric::Requests, CRITICAL / PROMISED >= 0.99, at &critical;
        "latency" "the p95 of the reads of each of them stays below the 2 ms that were promised":
            Metric::ReadTail, CRITICAL / PROMISED <= 1.0, at &critical;
        "used" "from the first promise on, all tokens that the device has for it are used":
            Metric::Tokens, RATE / PROMISED >= 0.95, at &critical;
        "capped" "and no more":
            Metric::Tokens, RATE / PROMISED <= 1.02, at &critical;
        "uncapped" "before it, best effort has as much as the device can do":
            Metric::Tokens, (RATE, 0) / (RATE, 1) >= 1.0;
    }
    let best_effort = |tick| cell(BEST_EFFORT, tick);
    let pairs = plan.x.ticks.windows(2);
    let pairs: Vec<_> = pairs
        .map(|pair| (best_effort(&pair[1]), best_effort(&pair[0])))
        .collect();
    plan.claim_pairs(
        "less",
        "best effort has less with every promise",
        Metric::Requests,
        pairs,
        Bound::AtMost(1.0),
    );
}

fn tenants(quick: bool, seed: u64, costs: &Costs) -> Vec<Series> {
    let ticks: &[u32] = if quick {
        &[500, 1_000, 2_500, 5_000, 10_000]
    } else {
        &[
            250, 500, 750, 1_000, 1_500, 2_000, 2_500, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000,
        ]
    };
    let device = device();
    let mut lines = Lines::over("Tenants");
    for (processor, kernel) in processors(costs) {
        for (threads, own, over_kernel) in THREADS {
            let name = if kernel { over_kernel } else { own };
            scale(&mut lines, name, ticks, quick, |count| {
                fig6::tenants(&device, threads, count, processor, seed)
            });
        }
    }
    lines.finish()
}

fn connections(quick: bool, seed: u64, costs: &Costs) -> Vec<Series> {
    let ticks: &[u32] = if quick {
        &[10, 100, 500, 850, 1_000, 5_000]
    } else {
        &[
            10, 50, 100, 250, 500, 750, 850, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000,
        ]
    };
    let device = device();
    let mut lines = Lines::over("Connections");
    for (processor, kernel) in processors(costs) {
        for (rate, own, over_kernel) in RATES {
            let name = if kernel { over_kernel } else { own };
            scale(&mut lines, name, ticks, quick, |count| {
                fig6::connections(&device, count, rate, processor, seed)
            });
        }
    }
    lines.finish()
}

/// Returns the processing costs, with true for those of the kernel's TCP.
const fn processors(costs: &Costs) -> [(Processor, bool); 2] {
    [
        (Processor::of_the_paper(), false),
        (Processor::over_kernel_tcp(costs), true),
    ]
}

/// A line over a count, up to the last point at which the threads keep up, and one point beyond.
fn scale(
    lines: &mut Lines,
    name: &'static str,
    ticks: &[u32],
    quick: bool,
    setup: impl Fn(u32) -> Setup,
) {
    for &count in ticks {
        let report = measure(setup(count), quick, QUICK);
        lines.add(REQUESTS, name, count, thousands(&report.tenants));
        let tail = report.read_latency(Percentile::P95);
        if tail > LATE {
            break;
        }
        lines.add(LATENCY, name, count, micros(tail));
    }
}

fn tenants_claims(plan: &mut Plan) {
    let [(_, one, kernel), (_, two, _), (_, four, _)] = THREADS;
    claims! { plan;
        "one" "one core serves 2,500 tenants":
            Metric::Requests, (one, 2_500) / (one, 500) >= 5.0 * 0.95;
        "two" "two cores serve 5,000":
            Metric::Requests, (two, 5_000) / (two, 500) >= 10.0 * 0.95;
        "four" "four come close to 10,000, where the device's 1 M reads a second end":
            Metric::Requests, (four, 10_000) / (four, 500) >= 20.0 * 0.9;
        "one-late" "and their reads are not later than where more cores serve as many":
            Metric::ReadTail, (one, 2_500) / (four, 2_500) <= 1.2;
        "two-late" "and their reads are not later than where more cores serve as many":
            Metric::ReadTail, (two, 5_000) / (four, 5_000) <= 1.2;
        "kernel" "(ours) over the kernel's TCP a core serves 1,000":
            Metric::Requests, (kernel, 1_000) / (kernel, 500) >= 2.0 * 0.95;
    }
}

fn connections_claims(plan: &mut Plan) {
    let [(_, slow, kernel), (_, fast, kernel_fast)] = RATES;
    claims! { plan;
        "connections" "at 100 requests a second each, a core serves 5,000 connections":
            Metric::Requests, (slow, 5_000) / (slow, 500) >= 10.0 * 0.95;
        "late" "and their reads are not later than those of 500 connections that ask for as much":
            Metric::ReadTail, (slow, 5_000) / (fast, 500) <= 1.2;
        "fast" "at 1,000 requests a second each, it serves 850":
            Metric::Requests, (fast, 850) / (slow, 850) >= 9.0;
        "kernel" "(ours) over the kernel's TCP it serves 1,000 at 100 each":
            Metric::Requests, (kernel, 1_000) / (kernel, 100) >= 10.0 * 0.95;
        "kernel-fast"
            "(ours) and 100 at 1,000 each: what counts there is the requests, not the connections":
            Metric::Requests, (kernel_fast, 100) / (kernel, 100) >= 10.0 * 0.95;
    }
}
