//! Fig. 7 (main result): increasing number of L-apps alongside T-apps.

use super::claims::{self, many_poll_average};
use super::{AVERAGE, LINES, P99, TOTAL};
use crate::figure::plan::{Extent, Panel, Plan, claims};
use crate::figure::sample::Metric;
use crate::figure::scenario::{Layout, Scenario, System};
use crate::figure::simulation::Simulation;
use crate::figure::{Figure, Work};
use sim::model::figures;

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "blk-switch-7",
    title: "Many L-apps beside T-apps: latency stays low, throughput high",
    paper: "blk-switch §5.2, Fig. 7",
    workload: "2 T-apps (64 KiB × 32 linux, 128 KiB × 8 poll, 64 KiB × 16 switchyard) and L-apps \
               (4 KiB, depth 1), all random reads; target and applications share two cores",
    work: Work::Machine(plan),
};

/// The systems that Figs. 7, 8, 10 and 13 compare.
pub(super) const SYSTEMS: [System; 3] = [System::LINUX, System::POLL, System::SWITCHYARD];

/// One T-app per core: two here, six in the paper.
pub(super) const T_APPS: u32 = 2;

fn plan(extent: Extent) -> Plan {
    let sweep = extent.sweep(&[1, 2, 4, 8, 12], &[1, 4]);
    let mut plan = Plan::sweep("L-apps", "", &sweep, &SYSTEMS, |system, l| {
        Scenario::mix(system, Layout::Shared, l, T_APPS)
    });
    claims::many(&mut plan, &sweep);
    many_poll_average(&mut plan, &sweep);
    claims! { plan;
        "p99-poll" "2 to 15× lower p99 than polling":
            P99, "poll" / "switchyard" >= 2.0, at &sweep;
    }
    plan.showing([AVERAGE, P99, TOTAL, Metric::ThroughputPerCore].map(Panel::bars))
}

/// The same with six T-apps on six cores.
pub(in crate::figure) const SIMULATED: Figure = Figure {
    name: "sim-blk-switch-7",
    title: "Many L-apps beside 6 T-apps on 6 cores (simulated)",
    paper: "blk-switch §5.2, Fig. 7",
    workload: "simulated: 6 cores on each side, 100 Gbit/s, 6 T-apps at each system's knee, L-apps \
               4 KiB at depth 1",
    work: Simulation::of(figures::blk_switch_7, LINES, many),
};

fn many(plan: &mut Plan) {
    let all = plan.x.ticks.clone();
    claims::many(plan, &all);
    // At least one L-app per core.
    let from_six = plan.ticks_from(6.0);
    many_poll_average(plan, &from_six);
}
