//! Fig. 6: one core with increasing load: batching gains at high load and adds delay at low load.

use super::{AVERAGE, P99, SYSTEMS, small};
use crate::figure::plan::{Extent, Panel, Plan, claims};
use crate::figure::sample::Metric;
use crate::figure::{Figure, Work};

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
    claims! { plan;
        "throughput" "at high load much more throughput per core than NVMe-TCP":
            Metric::RequestsPerHostCore, ("i10", deepest) / ("nvme-tcp", deepest) >= 1.5;
        "doorbell-waits" "at low load the doorbell's timer shows in the latency":
            AVERAGE, ("i10", 1) / ("nvme-tcp", 1) >= 1.2;
        "adaptive-does-not-wait" "(ours) an adaptive doorbell does not pay that at depth 1":
            AVERAGE, ("switchyard", 1) / ("nvme-tcp", 1) <= 1.1;
        "adaptive-throughput" "(ours) and has i10's throughput at high load":
            Metric::Requests, ("switchyard", deepest) / ("i10", deepest) >= 1.0;
    }
    plan.showing([Metric::Requests, Metric::RequestsPerHostCore, AVERAGE, P99].map(Panel::lines))
}
