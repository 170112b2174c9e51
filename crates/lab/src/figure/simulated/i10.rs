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

/// Cores, or targets with a core each, up to which NVMe/TCP in the model does not come near to
/// 100 Gbit/s, which are 3.05 million answers of 4 KiB per second. With more of them every system
/// comes to the same number in the end: that of the link.
const BELOW_THE_LINK: f64 = 12.0;

/// Cores up to which i10 itself is not limited by the link, in the model.
const I10_BELOW_THE_LINK: f64 = 4.0;

/// The points of a sweep up to `most`.
fn up_to(ticks: &[String], most: f64) -> impl Iterator<Item = &String> {
    let within = move |tick: &&String| tick.parse::<f64>().is_ok_and(|x| x <= most);
    ticks.iter().filter(within)
}

fn cores(plan: &mut Plan) {
    let ticks = plan.x.ticks.clone();
    plan.claim_at_each(
        "nvme-tcp",
        "significantly more than NVMe-TCP until the link is full",
        Metric::Requests,
        ("i10", "nvme-tcp"),
        up_to(&ticks, BELOW_THE_LINK),
        Bound::AtLeast(1.5),
    );
    // A short sweep has no second point below the link.
    let mut alone = up_to(&ticks, I10_BELOW_THE_LINK);
    if let (Some(first), Some(last)) = (alone.next(), alone.last())
        && let (Ok(few), Ok(many)) = (first.parse::<f64>(), last.parse::<f64>())
    {
        plan.claim(
            "scales",
            "near-perfect scaling with the number of cores until the link is full",
            Metric::Requests,
            (cell("i10", last), cell("i10", first)),
            Bound::AtLeast(0.8 * many / few),
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
        "more than NVMe-TCP with any number of targets that does not fill the link",
        Metric::Requests,
        ("i10", "nvme-tcp"),
        up_to(&ticks, BELOW_THE_LINK),
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
