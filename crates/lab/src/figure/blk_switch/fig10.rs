//! Fig. 10: increasing load of the T-apps.

use super::fig07::{SYSTEMS, T_APPS};
use super::{AVERAGE, LINES, P99, TOTAL, claims};
use crate::figure::plan::{Extent, Panel, Plan, claims};
use crate::figure::sample::Metric;
use crate::figure::scenario::{Layout, Scenario};
use crate::figure::simulation::Simulation;
use crate::figure::{Figure, Work};
use sim::model::figures;

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "blk-switch-10",
    title: "More load of T-apps",
    paper: "blk-switch §5.2, Fig. 10",
    workload: "2 T-apps (64 KiB random reads of each depth) and 2 L-apps (4 KiB, depth 1); target \
               and applications share two cores",
    work: Work::Machine(plan),
};

/// The same number as T-apps, as in the paper.
const L_APPS: u32 = T_APPS;

fn plan(extent: Extent) -> Plan {
    let sweep = extent.sweep(&[1, 2, 4, 8, 16, 32], &[4, 32]);
    let mut plan = Plan::sweep(
        "Depth of each T-app",
        "requests",
        &sweep,
        &SYSTEMS,
        |system, t_depth| {
            let system = system.loaded(64 << 10, t_depth);
            Scenario::mix(system, Layout::Shared, L_APPS, T_APPS)
        },
    );
    let deep: Vec<_> = sweep.iter().copied().filter(|&depth| depth >= 4).collect();
    let deepest = deep.last().copied();
    claims::load(&mut plan, &deep);
    claims! { plan;
        "p99-poll" "1.3 to 6× lower p99 than polling":
            P99, "poll" / "switchyard" >= 1.3, at &deep;
        "throughput-linux" "at most 10 % less throughput than Linux at high load":
            TOTAL, "switchyard" / "linux" >= 0.9, at deepest;
    }
    plan.showing([AVERAGE, P99, TOTAL, Metric::ThroughputPerCore].map(Panel::lines))
}

/// The same with six L-apps and six T-apps on six cores.
pub(in crate::figure) const SIMULATED: Figure = Figure {
    name: "sim-blk-switch-10",
    title: "More load of T-apps on 6 cores (simulated)",
    paper: "blk-switch §5.2, Fig. 10",
    workload: "simulated: 6 cores on each side, 100 Gbit/s, 6 L-apps and 6 T-apps of 64 KiB of each \
               depth",
    work: Simulation::of(figures::blk_switch_10, LINES, load),
};

fn load(plan: &mut Plan) {
    let deep = plan.ticks_from(8.0);
    claims::load(plan, &deep);
    claims! { plan;
        "throughput-linux" "at most 10 % less throughput than Linux at high load":
            TOTAL, "switchyard" / "linux" >= 0.9, at &deep;
    }
}
