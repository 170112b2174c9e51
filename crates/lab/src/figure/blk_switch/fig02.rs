//! Fig. 2: stacks that perform well alone, when applications share a core.

use super::{AVERAGE, P99, THROUGHPUT};
use crate::figure::plan::{Axis, Extent, Panel, Plan, claims};
use crate::figure::scenario::{Layout, Scenario, System};
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "blk-switch-2",
    title: "Stacks without a switch: low latency or high throughput",
    paper: "blk-switch §2.2, Fig. 2",
    workload: "1 T-app and L-apps (4 KiB random reads, depth 1) on one core, the target on the \
               other; T-apps 64 KiB × 32 (linux) or 128 KiB × 8 (poll)",
    work: Work::Machine(plan),
};

const L_ALONE: &str = "L alone";
const T_ALONE: &str = "T alone";

fn plan(extent: Extent) -> Plan {
    let sweep = extent.sweep(&[1, 2, 4], &[1, 4]);
    let alone = [(L_ALONE.to_owned(), 1, 0), (T_ALONE.to_owned(), 0, 1)];
    let mixed = sweep.iter().map(|&l| (format!("{l} L + 1 T"), l, 1));
    let mixes: Vec<_> = alone.into_iter().chain(mixed).collect();
    let ticks = mixes.iter().map(|(tick, ..)| tick);
    let mut plan = Plan::over(Axis::new("Applications", "", ticks));
    for (tick, l, t) in &mixes {
        for system in [System::LINUX, System::POLL, System::POLL_PRIORITY] {
            let scenario = Scenario::mix(system, Layout::Split, *l, *t);
            plan.run(system.name, tick, scenario);
        }
    }
    claims(&mut plan);
    plan.showing([AVERAGE, P99, THROUGHPUT].map(Panel::bars))
}

fn claims(plan: &mut Plan) {
    claims! { plan;
        "linux-tail" "one T-app inflates the p99 of an L-app in Linux by up to 7×":
            P99, ("linux", "1 L + 1 T") / ("linux", L_ALONE) >= 3.0;
        "poll-tail" "with four L-apps beside a T-app the p99 of polling is 108× that of one alone":
            P99, ("poll", "4 L + 1 T") / ("poll", L_ALONE) >= 10.0;
        "poll-throughput" "four L-apps leave a polling T-app 1/6.2 of its throughput":
            THROUGHPUT, ("poll", "4 L + 1 T") / ("poll", T_ALONE) <= 0.4;
        "priority-starves" "polling L-apps with priority leave a T-app next to nothing":
            THROUGHPUT, ("poll-priority", "1 L + 1 T") / ("poll-priority", T_ALONE) <= 0.1;
    }
}
