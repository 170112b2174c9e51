//! Fig. 9: many targets.

use super::{BELOW_THE_LINK, PANELS};
use crate::figure::Figure;
use crate::figure::plan::{Plan, claims};
use crate::figure::sample::Metric;
use crate::figure::simulation::Simulation;
use sim::model::figures;

pub(in crate::figure) const SIMULATED: Figure = Figure {
    name: "sim-i10-9",
    title: "24 cores and up to 48 targets (simulated)",
    paper: "i10 §4.2, Fig. 9",
    workload: "simulated: an application of 4 KiB random reads at depth 128 for each target, on 24 \
               cores in turn, 100 Gbit/s, memory",
    work: Simulation::of(figures::i10_9, PANELS, targets),
};

fn targets(plan: &mut Plan) {
    let ticks = plan.x.ticks.clone();
    claims! { plan;
        "nvme-tcp" "more than NVMe-TCP with any number of targets that does not fill the link":
            Metric::Requests, "i10" / "nvme-tcp" >= 1.2, at plan.ticks_up_to(BELOW_THE_LINK);
    }
    if let (Some(last), true) = (ticks.last(), ticks.iter().any(|tick| tick == "24")) {
        claims! { plan;
            "kept" "the throughput of 24 targets is kept with more targets":
                Metric::Requests, ("i10", last) / ("i10", 24) >= 0.95;
        }
    }
}
