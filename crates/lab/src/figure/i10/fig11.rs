//! Fig. 11: how large the pieces are that the two ends hand to TCP.

use super::{SYSTEMS, small};
use crate::figure::claim::Bound;
use crate::figure::plan::{Extent, Panel, Plan, cell};
use crate::figure::sample::{End, Metric};
use crate::figure::{Figure, Work};

/// The figure.
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
    plan.claim(
        "no-batching",
        "80 % of NVMe-TCP's packets at the host are one request's 72 bytes, however many there are",
        HOST,
        (cell("nvme-tcp", deepest), cell("nvme-tcp", 1)),
        Bound::AtMost(1.25),
    );
    plan.claim(
        "host",
        "i10's host sends 16 requests at once: 1152 bytes instead of 72",
        HOST,
        (cell("i10", deepest), cell("nvme-tcp", deepest)),
        Bound::AtLeast(12.0),
    );
    plan.claim(
        "target",
        "i10's target sends about 61 KB at once; 98 % of NVMe-TCP's are less than 9000 bytes",
        TARGET,
        (cell("i10", deepest), cell("nvme-tcp", deepest)),
        Bound::AtLeast(6.0),
    );
    plan.claim(
        "adaptive",
        "(ours) an adaptive doorbell gathers as well at high load",
        HOST,
        (cell("switchyard", deepest), cell("i10", deepest)),
        Bound::AtLeast(0.5),
    );
    plan.claim(
        "adaptive-alone",
        "(ours) and has nothing to gather at depth 1",
        HOST,
        (cell("switchyard", 1), cell("nvme-tcp", 1)),
        Bound::AtMost(1.05),
    );
    let single = [End::Host, End::Target].map(Metric::SingleSends);
    plan.showing([HOST, TARGET].into_iter().chain(single).map(Panel::lines))
}
