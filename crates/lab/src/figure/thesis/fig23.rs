//! Fig. 23: number of requests per command. `[Yu §6.8]`

use super::{ATM, INTERRUPT, PATHS, SETTING, STM, cached, in_virtual_time, threads};
use crate::figure::claim::Divisor;
use crate::figure::plan::{Extent, Panel, Plan, claims};
use crate::figure::sample::{Carried, Metric};
use crate::figure::{Figure, Work};
use sim::paths::Machine;

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-23",
    title: "Requests of one command by threads",
    paper: "Yu §6.8, Fig. 23",
    workload: "1 to 32 threads, 4 KiB random reads at depth 1 of the emulated device with 5 µs of \
               software for each command",
    work: Work::Machine(plan),
};

/// (a): reads, with eight processors.
pub(in crate::figure) const READS: Figure = in_virtual_time(
    Figure {
        paper: "Yu §6.8, Fig. 23(a)",
        ..FIGURE
    },
    "sim-thesis-23a",
    "Requests of one command by threads, reads (simulated, costs of the thesis' table 6)",
    "1 to 32 threads on 8 processors in virtual time, 4 KiB random reads at depth 1 of the \
     emulated device with 5 µs of software for each command",
);

/// (b): writes through a cache, with eight processors.
pub(in crate::figure) const WRITES: Figure = Figure {
    name: "sim-thesis-23b",
    title: "Requests of one command by threads, writes (simulated, costs of the thesis' table 6)",
    paper: "Yu §6.8, Fig. 23(b)",
    workload: "1 to 32 threads on 8 processors in virtual time, 4 KiB random writes through a \
               write-back cache, and writers write back themselves when two fifths of it are dirty",
    work: Work::Paths(writes, Machine::of_thesis),
};

/// The mean and the distribution.
const PANELS: [Panel; 6] = [
    Panel::lines(Metric::Merged),
    Panel::lines(Metric::Commands(Carried::One)),
    Panel::lines(Metric::Commands(Carried::UpTo7)),
    Panel::lines(Metric::Commands(Carried::UpTo31)),
    Panel::lines(Metric::Commands(Carried::ThirtyTwo)),
    Panel::lines(Metric::Commands(Carried::More)),
];

fn writes(extent: Extent) -> Plan {
    let counts = extent.sweep(&[1, 8, 16, 32], &[1, 32]);
    let mut plan = Plan::sweep("threads", "", &counts, &cached::PATHS, |system, count| {
        threads(system, SETTING, count, 0)
    });
    // Less than one command per 32 requests would be one command per page.
    claims! { plan;
        "gathers" "with one thread 89 % of ATM's commands are 32 pages":
            Metric::Commands(Carried::ThirtyTwo), (ATM.name, 1) / (Divisor::WHOLE) in 0.6..=1.0;
        "premature" "and fewer with more threads, as writers that bypass the cache unplug the queue":
            Metric::Merged, (ATM.name, 32) / (ATM.name, 1) in 0.034..=0.95;
    }
    plan.showing(PANELS)
}

fn plan(extent: Extent) -> Plan {
    let counts = extent.sweep(&[1, 8, 16, 32], &[8, 32]);
    let mut plan = Plan::sweep("threads", "", &counts, &PATHS, |system, count| {
        threads(system, SETTING, count, 100)
    });
    reads(&mut plan);
    plan.showing(PANELS)
}

fn reads(plan: &mut Plan) {
    claims! { plan;
        "grows" "the number of merged reads grows with the threads":
            Metric::Merged, (STM.name, 32) / (STM.name, 8) in 1.5..=6.0;
        "interrupt" "95 % of the commands of the interrupt path and of ATM carry one read":
            Metric::Commands(Carried::One), (INTERRUPT.name, 32) / (Divisor::WHOLE) in 0.9..=1.0;
        "atm" "95 % of the commands of the interrupt path and of ATM carry one read":
            Metric::Commands(Carried::One), (ATM.name, 32) / (Divisor::WHOLE) in 0.9..=1.0;
    }
}
