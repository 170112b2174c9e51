//! i10 on up to 24 cores and to up to 48 targets. `[i10 §4.2]`

use super::Simulation;
use crate::figure::Figure;
use crate::figure::claim::Bound;
use crate::figure::plan::{Panel, Plan, cell};
use crate::figure::sample::Metric;
use sim::model::figures;

const PANELS: &[Panel] = &[Panel::lines(Metric::Requests)];

/// Fig. 7(c): cores, reads.
pub(in crate::figure) const FIG07C: Figure = Figure {
    name: "sim-i10-7c",
    title: "From 1 to 24 cores, 4 KiB random reads",
    paper: "i10 §4.2, Fig. 7(c)",
    workload: "simulated: an application of 4 KiB at depth 128 on each core, 100 Gbit/s, memory",
    work: Simulation::panel("random read", figures::i10_7, PANELS, cores),
};

/// Fig. 7(d): cores, writes.
pub(in crate::figure) const FIG07D: Figure = Figure {
    name: "sim-i10-7d",
    title: "From 1 to 24 cores, 4 KiB random writes",
    paper: "i10 §4.2, Fig. 7(d)",
    workload: "simulated: an application of 4 KiB at depth 128 on each core, 100 Gbit/s, memory",
    work: Simulation::panel("random write", figures::i10_7, PANELS, cores),
};

fn cores(plan: &mut Plan) {
    let ticks = plan.x.ticks.clone();
    plan.claim_at_each(
        "nvme-tcp",
        "significantly more than NVMe-TCP until the link is full",
        Metric::Requests,
        ("i10", "nvme-tcp"),
        ticks.iter().take(3),
        Bound::AtLeast(1.5),
    );
    if let [first, second, ..] = &ticks[..]
        && let Some(cores) = second.parse::<f64>().ok().filter(|&cores| cores > 1.0)
    {
        plan.claim(
            "scales",
            "near-perfect scaling with the number of cores",
            Metric::Requests,
            (cell("i10", second), cell("i10", first)),
            Bound::AtLeast(0.8 * cores),
        );
    }
}

/// Fig. 9: targets.
pub(in crate::figure) const FIG09: Figure = Figure {
    name: "sim-i10-9",
    title: "24 cores and up to 48 targets",
    paper: "i10 §4.2, Fig. 9",
    workload: "simulated: an application of 4 KiB random reads at depth 128 for each target, on 24 \
               cores in turn, 100 Gbit/s, memory",
    work: Simulation::of(figures::i10_9, PANELS, targets),
};

fn targets(plan: &mut Plan) {
    let ticks = plan.x.ticks.clone();
    plan.claim_at_each(
        "nvme-tcp",
        "more than NVMe-TCP with any number of targets",
        Metric::Requests,
        ("i10", "nvme-tcp"),
        &ticks,
        Bound::AtLeast(1.2),
    );
    if let (Some(last), true) = (ticks.last(), ticks.iter().any(|tick| tick == "24")) {
        plan.claim(
            "kept",
            "what 24 targets reach is kept with more of them",
            Metric::Requests,
            (cell("i10", last), cell("i10", 24)),
            Bound::AtLeast(0.95),
        );
    }
}
