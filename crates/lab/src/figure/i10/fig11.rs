//! Fig. 11: sizes of the sends that both ends pass to TCP.

use super::{SYSTEMS, small};
use crate::figure::plan::{Extent, Panel, Plan, claims};
use crate::figure::sample::{End, Metric};
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "i10-11",
    title: "Bytes that each end hands to TCP at once",
    paper: "i10 §4.3, Fig. 11",
    workload: "1 application of 4 KiB random reads of each depth on one core, the target, in \
               memory, on the other; counted by the lanes and by the target's queues, headers \
               included",
    work: Work::Machine(plan),
};

const HOST: Metric = Metric::SendBytes(End::Host);
const TARGET: Metric = Metric::SendBytes(End::Target);

fn plan(extent: Extent) -> Plan {
    let sweep = extent.sweep(&[1, 4, 16, 32, 64, 128], &[1, 128]);
    let deepest = sweep[sweep.len() - 1];
    let mut plan = Plan::sweep("Depth", "requests", &sweep, &SYSTEMS, |system, depth| {
        small(system, depth, 100)
    });
    claims! { plan;
        "no-batching"
            "80 % of NVMe-TCP's packets at the host are one request's 72 bytes, however many there are":
            HOST, ("nvme-tcp", deepest) / ("nvme-tcp", 1) <= 1.25;
        "host" "i10's host sends 16 requests at once: 1152 bytes instead of 72":
            HOST, ("i10", deepest) / ("nvme-tcp", deepest) >= 12.0;
        "target"
            "i10's target sends about 61 KB at once; 98 % of NVMe-TCP's are less than 9000 bytes":
            TARGET, ("i10", deepest) / ("nvme-tcp", deepest) >= 6.0;
        "adaptive" "(ours) an adaptive doorbell gathers as well at high load":
            HOST, ("switchyard", deepest) / ("i10", deepest) >= 0.5;
        "adaptive-alone" "(ours) and has nothing to gather at depth 1":
            HOST, ("switchyard", 1) / ("nvme-tcp", 1) <= 1.05;
    }
    let single = [End::Host, End::Target].map(Metric::SingleSends);
    plan.showing([HOST, TARGET].into_iter().chain(single).map(Panel::lines))
}
