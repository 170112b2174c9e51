//! blk-switch on 1 to 16 cores. `[blk-switch §5.2]`

use super::Simulation;
use crate::figure::Figure;
use crate::figure::blk_switch::{AVERAGE, LOAD, MANY, MANY_POLL_AVERAGE, P99, TOTAL};
use crate::figure::claim::Bound;
use crate::figure::plan::{Panel, Plan, cell};
use crate::figure::sample::{Metric, Statistic};
use sim::model::figures;
use switch::Class;

const P999: Metric = Metric::Latency(Class::Latency, Statistic::P999);

const LINES: &[Panel] = &[
    Panel::lines(AVERAGE),
    Panel::lines(P99),
    Panel::lines(TOTAL),
    Panel::lines(Metric::ThroughputPerCore),
];

const BARS: &[Panel] = &[
    Panel::bars(AVERAGE),
    Panel::bars(P99),
    Panel::bars(P999),
    Panel::bars(TOTAL),
];

/// Fig. 7: L-apps beside six T-apps on six cores.
pub(in crate::figure) const FIG07: Figure = Figure {
    name: "sim-blk-switch-7",
    title: "Many L-apps beside 6 T-apps on 6 cores",
    paper: "blk-switch §5.2, Fig. 7",
    workload: "simulated: 6 cores on each side, 100 Gbit/s, 6 T-apps at each system's knee, L-apps \
               4 KiB at depth 1",
    work: Simulation::of(figures::blk_switch_7, LINES, many),
};

fn many(plan: &mut Plan) {
    threads(plan);
    // As many L-apps as cores, and more.
    plan.claim_all(&at_least(plan, 6.0), &[MANY_POLL_AVERAGE]);
}

/// Fig. 9: threads of one L-app beside those of one T-app.
pub(in crate::figure) const FIG09: Figure = Figure {
    name: "sim-blk-switch-9",
    title: "Many threads of an L-app beside 6 of a T-app on 6 cores",
    paper: "blk-switch §5.2, Fig. 9",
    workload: "simulated: as Fig. 7, with threads of one L-app and of one T-app; a polling load has \
               at most one thread per core",
    work: Simulation::of(figures::blk_switch_9, LINES, threads),
};

fn threads(plan: &mut Plan) {
    plan.claim_all(&plan.x.ticks.clone(), &MANY);
}

/// Fig. 10: the T-apps' depth.
pub(in crate::figure) const FIG10: Figure = Figure {
    name: "sim-blk-switch-10",
    title: "More load of T-apps on 6 cores",
    paper: "blk-switch §5.2, Fig. 10",
    workload: "simulated: 6 cores on each side, 100 Gbit/s, 6 L-apps and 6 T-apps of 64 KiB of each \
               depth",
    work: Simulation::of(figures::blk_switch_10, LINES, load),
};

fn load(plan: &mut Plan) {
    let deep = at_least(plan, 8.0);
    plan.claim_all(&deep, &LOAD);
    plan.claim_at_each(
        "throughput-linux",
        "at most 10 % less throughput than Linux at high load",
        TOTAL,
        ("switchyard", "linux"),
        &deep,
        Bound::AtLeast(0.9),
    );
}

/// Fig. 11: cores.
pub(in crate::figure) const FIG11: Figure = Figure {
    name: "sim-blk-switch-11",
    title: "From 1 to 10 cores",
    paper: "blk-switch §5.2, Fig. 11",
    workload: "simulated: as many L-apps and as many T-apps as cores on each side, 100 Gbit/s",
    work: Simulation::of(figures::blk_switch_11, LINES, cores),
};

fn cores(plan: &mut Plan) {
    let all = plan.x.ticks.clone();
    plan.claim_at_each(
        "p99-linux",
        "lower p99 than Linux with any number of cores",
        P99,
        ("linux", "switchyard"),
        &all,
        Bound::AtLeast(2.0),
    );
    plan.claim_at_each(
        "one-core",
        "on a single core 40 % less throughput than Linux: nowhere to steer to",
        TOTAL,
        ("switchyard", "linux"),
        all.first(),
        Bound::AtLeast(0.6),
    );
    plan.claim_at_each(
        "many-cores",
        "with 8 or more cores the throughput of Linux: the link is full",
        TOTAL,
        ("switchyard", "linux"),
        at_least(plan, 8.0),
        Bound::AtLeast(0.95),
    );
}

/// Fig. 12: 200 Gbit/s.
pub(in crate::figure) const FIG12: Figure = Figure {
    name: "sim-blk-switch-12",
    title: "16 cores and 200 Gbit/s",
    paper: "blk-switch §5.2, Fig. 12",
    workload: "simulated: 16 cores on each side, 200 Gbit/s, 16 L-apps and 16 T-apps",
    work: Simulation::of(figures::blk_switch_12, BARS, fast),
};

fn fast(plan: &mut Plan) {
    let all = plan.x.ticks.clone();
    plan.claim_at_each(
        "p99-linux",
        "the p99 stays at µs scale (143 µs), an order of magnitude below Linux",
        P99,
        ("linux", "switchyard"),
        &all,
        Bound::AtLeast(8.0),
    );
    plan.claim_at_each(
        "throughput-linux",
        "within 1 % of the throughput of Linux",
        TOTAL,
        ("switchyard", "linux"),
        &all,
        Bound::AtLeast(0.95),
    );
    if let Some(tick) = all.first() {
        plan.claim(
            "steering",
            "(ours) and no less throughput than the paper's switch with fixed batching",
            TOTAL,
            (cell("switchyard", tick), cell("blk-switch", tick)),
            Bound::AtLeast(0.95),
        );
    }
}

/// The ticks from `least` on.
fn at_least(plan: &Plan, least: f64) -> Vec<String> {
    let reaches = |tick: &&String| tick.parse::<f64>().is_ok_and(|tick| tick >= least);
    plan.x.ticks.iter().filter(reaches).cloned().collect()
}
