//! Fig. 22: what the processors do meanwhile. `[Yu §6.7]`

use super::{INTERRUPT, PATHS, SETTING, STM, SYNC, threads};
use crate::figure::claim::Bound;
use crate::figure::plan::{Axis, Panel, Plan};
use crate::figure::sample::Metric;
use crate::figure::{Figure, Work};

/// The figure.
pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-22",
    title: "Processor time of paths",
    paper: "Yu §6.7, Fig. 22",
    workload: "32 threads, 4 KiB random reads, or writes, at depth 1 of the emulated device with 5 \
               µs of software for each command; polling counts as a program's time here, as the \
               kernel's in the thesis",
    work: Work::Machine(|_| plan()),
};

const READS: &str = "random reads";
const WRITES: &str = "random writes";

fn plan() -> Plan {
    let mut plan = Plan::over(Axis::new("workload", "", [READS, WRITES]));
    for (tick, read_percent) in [(READS, 100), (WRITES, 0)] {
        for system in PATHS {
            plan.run(
                system.name,
                tick,
                threads(system, SETTING, 32, read_percent),
            );
        }
    }
    plan.claim_at_each(
        "sync",
        "the synchronous path saturates the processors, the interrupt path leaves most of them idle",
        Metric::UserTime,
        (INTERRUPT.name, SYNC.name),
        [READS, WRITES],
        Bound::AtMost(0.7),
    );
    plan.claim_at_each(
        "stm",
        "STM saves 55 % of the processors with random reads: one thread polls instead of all",
        Metric::UserTime,
        (STM.name, SYNC.name),
        [READS],
        Bound::Between(0.3, 0.8),
    );
    let times = [Metric::UserTime, Metric::SystemTime, Metric::IdleTime];
    plan.showing(times.map(Panel::bars))
}
