//! Fig. 7(c) and 7(d): scaling of reads and of writes with the cores.

use super::{BELOW_THE_LINK, PANELS};
use crate::figure::Figure;
use crate::figure::plan::{Plan, claims};
use crate::figure::sample::Metric;
use crate::figure::simulation::Simulation;
use sim::model::figures;

/// Fig. 7(c): cores, reads.
pub(in crate::figure) const READS: Figure = Figure {
    name: "sim-i10-7c",
    title: "From 1 to 24 cores, 4 KiB random reads (simulated)",
    paper: "i10 §4.2, Fig. 7(c)",
    workload: "simulated: an application of 4 KiB at depth 128 on each core, 100 Gbit/s, memory",
    work: Simulation::panel("random read", figures::i10_7, PANELS, cores),
};

/// Fig. 7(d): cores, writes.
pub(in crate::figure) const WRITES: Figure = Figure {
    name: "sim-i10-7d",
    title: "From 1 to 24 cores, 4 KiB random writes (simulated)",
    paper: "i10 §4.2, Fig. 7(d)",
    workload: "simulated: an application of 4 KiB at depth 128 on each core, 100 Gbit/s, memory",
    work: Simulation::panel("random write", figures::i10_7, PANELS, cores),
};

/// Number of cores up to which the link does not limit i10 in the model.
const I10_BELOW_THE_LINK: f64 = 4.0;

fn cores(plan: &mut Plan) {
    claims! { plan;
        "nvme-tcp" "significantly more than NVMe-TCP until the link is full":
            Metric::Requests, "i10" / "nvme-tcp" >= 1.5, at plan.ticks_up_to(BELOW_THE_LINK);
    }
    // A short sweep has no second point below the link's limit.
    let alone = plan.ticks_up_to(I10_BELOW_THE_LINK);
    if let [first, .., last] = &alone[..]
        && let (Ok(few), Ok(many)) = (first.parse::<f64>(), last.parse::<f64>())
    {
        claims! { plan;
            "scales" "near-perfect scaling with the number of cores until the link is full":
                Metric::Requests, ("i10", last) / ("i10", first) >= 0.8 * many / few;
        }
    }
}
