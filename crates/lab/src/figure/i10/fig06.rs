//! Fig. 6: one core, more and more load: batching pays at high load and waits at low load.

use super::{AVERAGE, P99, SYSTEMS, small};
use crate::figure::claim::Bound;
use crate::figure::plan::{Extent, Panel, Plan, cell};
use crate::figure::sample::Metric;
use crate::figure::{Figure, Work};

/// The figure.
pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "i10-6",
    title: "One core: throughput and latency as load grows",
    paper: "i10 §4.2, Fig. 6",
    workload: "1 application of 4 KiB random reads of each depth on one core, the target, in \
               memory, on the other",
    work: Work::Machine(plan),
};

fn plan(extent: Extent) -> Plan {
    let sweep = extent.sweep(&[1, 4, 16, 32, 64, 128], &[1, 32, 128]);
    let deepest = sweep[sweep.len() - 1];
    let mut plan = Plan::sweep("Depth", "requests", &sweep, &SYSTEMS, |system, depth| {
        small(system, depth, 100)
    });
    plan.claim(
        "throughput",
        "at high load much more throughput per core than NVMe-TCP",
        Metric::RequestsPerHostCore,
        (cell("i10", deepest), cell("nvme-tcp", deepest)),
        Bound::AtLeast(1.5),
    );
    plan.claim(
        "doorbell-waits",
        "at low load the doorbell's timer shows in the latency",
        AVERAGE,
        (cell("i10", 1), cell("nvme-tcp", 1)),
        Bound::AtLeast(1.2),
    );
    plan.claim(
        "adaptive-does-not-wait",
        "(ours) an adaptive doorbell does not pay that at depth 1",
        AVERAGE,
        (cell("switchyard", 1), cell("nvme-tcp", 1)),
        Bound::AtMost(1.1),
    );
    plan.claim(
        "adaptive-throughput",
        "(ours) and has i10's throughput at high load",
        Metric::Requests,
        (cell("switchyard", deepest), cell("i10", deepest)),
        Bound::AtLeast(1.0),
    );
    plan.showing([Metric::Requests, Metric::RequestsPerHostCore, AVERAGE, P99].map(Panel::lines))
}
