//! Fig. 8: mixes of reads and writes.

use super::{AVERAGE, SYSTEMS, small};
use crate::figure::claim::Bound;
use crate::figure::plan::{Extent, Panel, Plan, cell, claims};
use crate::figure::sample::Metric;
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "i10-8",
    title: "Mixes of reads and writes",
    paper: "i10 §4.2, Fig. 8(b)",
    workload: "1 application of 4 KiB random requests at depth 128 on one core, the target, in \
               memory, on the other",
    work: Work::Machine(plan),
};

const DEPTH: u32 = 128;

fn plan(extent: Extent) -> Plan {
    let sweep: &[u8] = match extent {
        Extent::Full => &[0, 25, 50, 75, 100],
        Extent::Quick => &[0, 50, 100],
    };
    let mut plan = Plan::sweep("Reads", "%", sweep, &SYSTEMS, |system, reads| {
        small(system, DEPTH, reads)
    });
    claims! { plan;
        "i10" "more than NVMe-TCP with every mix":
            Metric::Requests, "i10" / "nvme-tcp" >= 1.2, at sweep;
        "switchyard" "(ours) so has this stack":
            Metric::Requests, "switchyard" / "nvme-tcp" >= 1.2, at sweep;
    }
    let mixes = sweep.iter().filter(|&&reads| reads < 100);
    let pairs = mixes.map(|&reads| (cell("i10", reads), cell("i10", 100)));
    plan.claim_pairs(
        "marginal",
        "throughput fluctuates marginally with the mix",
        Metric::Requests,
        pairs,
        Bound::AtLeast(0.7),
    );
    plan.showing([Metric::Requests, Metric::RequestsPerHostCore, AVERAGE].map(Panel::bars))
}
