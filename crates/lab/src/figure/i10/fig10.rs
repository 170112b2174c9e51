//! Fig. 10: cumulative contribution of lanes, caravans and doorbells.

use super::{I10, small};
use crate::figure::plan::{Axis, Extent, Panel, Plan, cell, claims};
use crate::figure::sample::Metric;
use crate::figure::scenario::System;
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "i10-10",
    title: "What lanes, caravans and doorbells add",
    paper: "i10 §4.3, Fig. 10(c)",
    workload: "1 application of 4 KiB random reads at depth 128 on one core, the target, in \
               memory, on the other",
    work: Work::Machine(plan),
};

const DEPTH: u32 = 128;
const SERIES: &str = "steps of i10";

/// Each step adds one mechanism to the previous steps.
const STEPS: [(&str, System); 3] = [
    ("lanes", System::NVME_TCP),
    (
        "+ caravans",
        System {
            turned: &["--knob", "doorbell=immediate"],
            ..I10
        },
    ),
    ("+ doorbells", I10),
];

fn plan(_: Extent) -> Plan {
    let mut plan = Plan::over(Axis::new("i10", "", STEPS.map(|(name, _)| name)));
    for (name, system) in STEPS {
        plan.run(SERIES, name, small(system, DEPTH, 100));
    }
    let [lanes, caravans, doorbells] = STEPS.map(|(name, _)| cell(SERIES, name));
    claims! { plan;
        "caravans"
            "caravans bring 38.2 % of the throughput of all three: about twice that of lanes alone":
            Metric::Requests, (caravans.clone()) / lanes >= 1.5;
        "doorbells" "doorbells bring 23.2 %: about 1.3 times that without them":
            Metric::Requests, doorbells / caravans >= 1.1;
    }
    plan.showing([Metric::Requests, Metric::RequestsPerHostCore].map(Panel::bars))
}
