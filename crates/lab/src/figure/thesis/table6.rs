//! Table 6: what a path adds to the device. `[Yu §6.1]`

use super::{ATM, BARE, HTM, INTERRUPT, POLL, STM, SYNC, TWO_QUEUE, threads};
use crate::figure::claim::Bound;
use crate::figure::plan::{Axis, Panel, Plan, cell, claims};
use crate::figure::sample::Metric;
use crate::figure::scenario::System;
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-table6",
    title: "Time in software of one request",
    paper: "Yu §6.1, Table 6",
    workload: "1 thread, 4 KiB random reads at depth 1 of the emulated device (7 µs)",
    work: Work::Machine(|_| plan()),
};

const SERIES: &str = "paths";

const SYSTEMS: [System; 7] = [INTERRUPT, POLL, SYNC, STM, HTM, ATM, TWO_QUEUE];

/// The thesis' order, from the longest time on.
const ORDER: [&[System]; 5] = [
    &[INTERRUPT],
    &[POLL],
    &[ATM],
    &[TWO_QUEUE],
    &[SYNC, STM, HTM],
];

fn plan() -> Plan {
    let mut plan = Plan::over(Axis::new("path", "", SYSTEMS.map(|system| system.name)));
    for system in SYSTEMS {
        plan.run(SERIES, system.name, threads(system, BARE, 1, 100));
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
        // Its longest step is from 13 to 8 µs; both may be a factor 1.5 off.
        Bound::Between(1.0, 3.66),
    );
    plan.showing([Panel::bars(Metric::Software)])
}
