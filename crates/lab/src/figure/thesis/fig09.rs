//! Fig. 9: synchronous temporal merge against the synchronous path. `[Yu §4.4]`

use super::{SETTING, STM, SYNC, THROUGHPUT, in_virtual_time, threads};
use crate::figure::plan::{Extent, Panel, Plan, claims};
use crate::figure::sample::Metric;
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-9",
    title: "Synchronous temporal merge by threads",
    paper: "Yu §4.4, Fig. 9",
    workload: "1 to 32 threads, 4 KiB random reads at depth 1 of the emulated device with 5 µs of \
               software for each command",
    work: Work::Machine(plan),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = in_virtual_time(
    FIGURE,
    "sim-thesis-9",
    "Synchronous temporal merge by threads (simulated, costs of the thesis' table 6)",
    "1 to 32 threads on 8 processors in virtual time, 4 KiB random reads at depth 1 of the \
     emulated device with 5 µs of software for each command",
);

fn plan(extent: Extent) -> Plan {
    let counts = extent.sweep(&[1, 8, 16, 32], &[1, 32]);
    let mut plan = Plan::sweep("threads", "", &counts, &[SYNC, STM], |system, count| {
        threads(system, SETTING, count, 100)
    });
    claims(&mut plan);
    plan.showing([THROUGHPUT, Metric::Merged].map(Panel::lines))
}

fn claims(plan: &mut Plan) {
    claims! { plan;
        "alone" "with one thread merging costs less than 2 %":
            THROUGHPUT, (STM.name) / (SYNC.name) in 0.98..=1.02, at [1];
        "merged" "with 32 threads random reads gain 1.94 times (611 against 315 MB/s)":
            THROUGHPUT, (STM.name) / (SYNC.name) in 1.3..=2.9, at [32];
        "goal" "(ours) and at least 1.8 times":
            THROUGHPUT, (STM.name) / (SYNC.name) in 1.8..=2.9, at [32];
    }
}
