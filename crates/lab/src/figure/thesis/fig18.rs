//! Fig. 18: fio's mix of random reads and writes by threads. `[Yu §6.3]`

use super::{
    INTERRUPT, PATHS, SETTING, STM, SYNC, THROUGHPUT, TWO_QUEUE, in_virtual_time, threads,
};
use crate::figure::plan::{Extent, Panel, Plan, claims};
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-18",
    title: "Random reads and writes by threads",
    paper: "Yu §6.3, Fig. 18",
    workload: "1 to 64 threads, 4 KiB random reads and writes, half of each, at depth 1 of the \
               emulated device with 5 µs of software for each command",
    work: Work::Machine(plan),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = in_virtual_time(
    FIGURE,
    "sim-thesis-18",
    "Random reads and writes by threads (simulated, costs of the thesis' table 6)",
    "1 to 64 threads on 8 processors in virtual time, 4 KiB random reads and writes, half of each, \
     at depth 1 of the emulated device with 5 µs of software for each command",
);

fn plan(extent: Extent) -> Plan {
    let counts = extent.sweep(&[1, 8, 16, 32, 64], &[1, 32]);
    let mut plan = Plan::sweep("threads", "", &counts, &PATHS, |system, count| {
        threads(system, SETTING, count, 50)
    });
    claims(&mut plan);
    plan.showing([Panel::lines(THROUGHPUT)])
}

fn claims(plan: &mut Plan) {
    claims! { plan;
        "2q" "with 32 threads 2Q has 4.6 times the throughput of the interrupt path":
            THROUGHPUT, (TWO_QUEUE.name) / (INTERRUPT.name) in 3.07..=6.9, at [32];
        "stm" "and STM gains about as much over the synchronous path as with reads":
            THROUGHPUT, (STM.name) / (SYNC.name) in 1.3..=2.9, at [32];
        "alone" "with one thread the interrupt path is slower than the synchronous one":
            THROUGHPUT, (SYNC.name) / (INTERRUPT.name) in 1.1..=4.0, at [1];
    }
}
