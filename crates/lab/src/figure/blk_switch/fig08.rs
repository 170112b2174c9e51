//! Fig. 8: the p99.9 of Figs. 7 and 9 with enough L-apps to saturate the cores.

use super::P999;
use super::fig07::{SYSTEMS, T_APPS};
use crate::figure::plan::{Axis, Extent, Panel, Plan, claims};
use crate::figure::scenario::{Layout, Scenario};
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "blk-switch-8",
    title: "The p99.9 of applications and of threads",
    paper: "blk-switch §5.2, Fig. 8",
    workload: "2 T-apps and 4 L-apps as in Fig. 7; as separate processes, and as threads of \
               one process",
    work: Work::Machine(plan),
};

const L_APPS: u32 = 4;
const PROCESSES: &str = "processes";
const THREADS: &str = "threads";

fn plan(_: Extent) -> Plan {
    let ticks = [PROCESSES, THREADS];
    let mut plan = Plan::over(Axis::new("Applications are", "", ticks));
    for tick in ticks {
        for system in SYSTEMS {
            let threads = Scenario::mix(system, Layout::Shared, L_APPS, T_APPS);
            let scenario = if tick == THREADS {
                threads
            } else {
                threads.in_processes()
            };
            plan.run(system.name, tick, scenario);
        }
    }
    claims! { plan;
        "linux" "6 to 15× lower p99.9 than Linux":
            P999, "linux" / "switchyard" >= 4.0, at ticks;
        "poll" "33 to 101× lower p99.9 than polling":
            P999, "poll" / "switchyard" >= 10.0, at ticks;
    }
    plan.showing([Panel::bars(P999)])
}
