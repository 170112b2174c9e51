//! Fig. 10: more and more load of the T-apps.

use super::fig07::{SYSTEMS, T_APPS};
use super::{AVERAGE, LOAD, P99, TOTAL};
use crate::figure::claim::Bound;
use crate::figure::plan::{Extent, Panel, Plan};
use crate::figure::sample::Metric;
use crate::figure::scenario::{Layout, Scenario, System};
use crate::figure::{Figure, Work};

/// The figure.
pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "blk-switch-10",
    title: "More load of T-apps",
    paper: "blk-switch §5.2, Fig. 10",
    workload: "2 T-apps (64 KiB random reads of each depth) and 2 L-apps (4 KiB, depth 1); target \
               and applications share two cores",
    work: Work::Machine(plan),
};

/// As many as T-apps, as in the paper.
const L_APPS: u32 = T_APPS;

fn plan(extent: Extent) -> Plan {
    let sweep = extent.sweep(&[1, 2, 4, 8, 16, 32], &[4, 32]);
    let mut plan = Plan::sweep(
        "Depth of each T-app",
        "requests",
        &sweep,
        &SYSTEMS,
        |system, t_depth| {
            let system = System {
                t_bytes: 64 << 10,
                t_depth,
                ..system
            };
            Scenario::mix(system, Layout::Shared, L_APPS, T_APPS)
        },
    );
    let deep: Vec<_> = sweep.iter().copied().filter(|&depth| depth >= 4).collect();
    let deepest = deep.last().copied();
    plan.claim_all(&deep, &LOAD);
    plan.claim_at_each(
        "p99-poll",
        "1.3 to 6× lower p99 than polling",
        P99,
        ("poll", "switchyard"),
        &deep,
        Bound::AtLeast(1.3),
    );
    plan.claim_at_each(
        "throughput-linux",
        "at most 10 % less throughput than Linux at high load",
        TOTAL,
        ("switchyard", "linux"),
        deepest,
        Bound::AtLeast(0.9),
    );
    plan.showing([AVERAGE, P99, TOTAL, Metric::ThroughputPerCore].map(Panel::lines))
}
