//! Table 6: time that a path adds to the device. `[Yu §6.1]`

use super::{ATM, BARE, HTM, INTERRUPT, POLL, SETTING, STM, SYNC, TWO_QUEUE, threads};
use crate::figure::claim::Bound;
use crate::figure::plan::{Axis, Panel, Plan, cell, claims};
use crate::figure::sample::Metric;
use crate::figure::scenario::{Storage, System};
use crate::figure::{Figure, Work};
use sim::paths::Machine;

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-table6",
    title: "Time in software of one request",
    paper: "Yu §6.1, Table 6",
    workload: "1 thread, 4 KiB random reads at depth 1 of the emulated device (7 µs)",
    work: Work::Machine(|_| plan(BARE)),
};

/// The model's paths with the costs of the performance model.
pub(in crate::figure) const MEASURED_COSTS: Figure = Figure {
    name: "sim-thesis-table6a",
    title: "Time in software of one request (simulated, costs of this kind of machine)",
    workload: "1 thread in virtual time, 4 KiB random reads at depth 1 of the emulated device (7 µs)",
    work: Work::Paths(|_| plan(BARE), Machine::of),
    ..FIGURE
};

/// The same with the thesis' costs of single requests, derived from this very table: an interrupt
/// costs the 7 µs between INTR and POLL, a switch a third of the 8 µs between POLL and `sync`, a
/// scheduler the 1 µs between `sync` and 2Q, and each command the 5 µs of `sync`. The 5 µs of
/// `sync` and the difference between INTR and POLL are therefore inputs, not results. The number of
/// switches and scheduler passes of a path follows from its rules.
pub(in crate::figure) const THESIS_COSTS: Figure = Figure {
    name: "sim-thesis-table6b",
    title: "Time in software of one request (simulated, charged by the table itself)",
    workload: "1 thread in virtual time, 4 KiB random reads at depth 1 of the emulated device with \
               5 µs of software for each command; an interrupt (7 µs), switches (2.7 µs) and a \
               scheduler (1 µs) cost as in this table",
    work: Work::Paths(|_| plan(SETTING), Machine::of_thesis),
    ..FIGURE
};

const SERIES: &str = "paths";

const SYSTEMS: [System; 7] = [INTERRUPT, POLL, SYNC, STM, HTM, ATM, TWO_QUEUE];

/// The thesis' order, by descending time.
const ORDER: [&[System]; 5] = [
    &[INTERRUPT],
    &[POLL],
    &[ATM],
    &[TWO_QUEUE],
    &[SYNC, STM, HTM],
];

fn plan(storage: Storage) -> Plan {
    let mut plan = Plan::over(Axis::new("path", "", SYSTEMS.map(|system| system.name)));
    for system in SYSTEMS {
        plan.run(SERIES, system.name, threads(system, storage, 1, 100));
    }
    let of = |system: System| cell(SERIES, system.name);
    claims! { plan;
        "poll" "polling instead of interrupts takes 13 of 20 µs":
            Metric::Software, (of(POLL)) / (of(INTERRUPT)) in 0.43..=0.9;
        "sync" "the synchronous path takes 5 of 20 µs: a quarter":
            Metric::Software, (of(SYNC)) / (of(INTERRUPT)) in 0.17..=0.38;
        "goal" "(ours) and at most a third":
            Metric::Software, (of(SYNC)) / (of(INTERRUPT)) <= 1.0 / 3.0;
        "no-switch" "and 5 of the 13 µs that polling takes with its switches":
            Metric::Software, (of(SYNC)) / (of(POLL)) in 0.26..=0.58;
        "queues" "a queue adds 1 to 3 µs: ATM takes 8 of 20, 2Q 6":
            Metric::Software, (of(ATM)) / (of(INTERRUPT)) in 0.27..=0.6;
        "2q" "where 2Q takes 6 of ATM's 8":
            Metric::Software, (of(TWO_QUEUE)) / (of(ATM)) in 0.5..=1.13;
    }
    let mut pairs = Vec::new();
    for next in ORDER.windows(2) {
        for slower in next[0] {
            for faster in next[1] {
                pairs.push((cell(SERIES, slower.name), cell(SERIES, faster.name)));
            }
        }
    }
    plan.claim_pairs(
        "order",
        "the paths take longer in the order INTR, POLL, ATM, 2Q, and those without a queue",
        Metric::Software,
        pairs,
        // Paths with equal times have no order. The longest step is from 13 to 8 µs; both may be
        // off by a factor of 1.5.
        Bound::Between(1.01, 3.66),
    );
    plan.showing([Panel::bars(Metric::Software)])
}
