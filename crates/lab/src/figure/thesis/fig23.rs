//! Fig. 23: how many requests become one command. `[Yu §6.8]`

use super::{ATM, INTERRUPT, PATHS, SETTING, STM, threads};
use crate::figure::claim::Bound;
use crate::figure::plan::{Extent, Panel, Plan, cell};
use crate::figure::sample::Metric;
use crate::figure::{Figure, Work};

/// The figure.
pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-23",
    title: "Requests of one command by threads",
    paper: "Yu §6.8, Fig. 23",
    workload: "1 to 32 threads, 4 KiB random reads at depth 1 of the emulated device with 5 µs of \
               software for each command",
    work: Work::Machine(plan),
};

fn plan(extent: Extent) -> Plan {
    let counts = extent.sweep(&[1, 8, 16, 32], &[8, 32]);
    let mut plan = Plan::sweep("threads", "", &counts, &PATHS, |system, count| {
        threads(system, SETTING, count, 100)
    });
    plan.claim(
        "grows",
        "the number of merged reads grows with the threads",
        Metric::Merged,
        (cell(STM.name, 32), cell(STM.name, 8)),
        Bound::Between(1.5, 6.0),
    );
    for (name, system) in [("interrupt", INTERRUPT), ("atm", ATM)] {
        plan.claim(
            name,
            "95 % of the commands of the interrupt path and of ATM carry one read",
            Metric::Merged,
            (cell(system.name, 32), cell(STM.name, 32)),
            Bound::AtMost(0.2),
        );
    }
    plan.showing([
        Panel::lines(Metric::Merged),
        Panel::lines(Metric::SingleCommands),
    ])
}
