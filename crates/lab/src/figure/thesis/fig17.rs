//! Fig. 17: all paths. `[Yu §6.2]`

use super::THROUGHPUT;
use super::cached::{
    ALL, PATHS, RAND_M32, RAND_R1, RAND_R32, SEQ_R1, SEQ_R32, WORKLOAD, plan, simulated,
};
use crate::figure::plan::claims;
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-17",
    title: "All paths through a cache",
    paper: "Yu §6.2, Fig. 17",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let mut plan = plan(&PATHS, &ALL);
        claims! { plan;
            "one in order" "the interrupt path wins with one sequential reader":
                THROUGHPUT, "sync" / "interrupt" in 0.58..=1.0, at [SEQ_R1.0];
            "many in order" "the synchronous path has 1.15 times as much with 32":
                THROUGHPUT, "sync" / "interrupt" in 0.77..=1.73, at [SEQ_R32.0];
            "one at random" "and 1.65 times with one random reader":
                THROUGHPUT, "sync" / "interrupt" in 1.1..=2.48, at [RAND_R1.0];
            "queued" "ATM has 1.27 times the interrupt path's random reads with one thread":
                THROUGHPUT, "atm" / "interrupt" in 0.85..=1.91, at [RAND_R1.0];
            "unmerged" "with 32, no more of them than the synchronous path":
                THROUGHPUT, "atm" / "sync" in 0.62..=1.05, at [RAND_R32.0];
            "merged" "where STM has 1.93 times as many":
                THROUGHPUT, "stm" / "sync" in 1.29..=2.9, at [RAND_R32.0];
            "mixed" "2Q has 4.4 times the interrupt path with a mix of 32 threads":
                THROUGHPUT, "2q" / "interrupt" in 2.93..=6.6, at [RAND_M32.0];
        }
        plan
    }),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = simulated(
    FIGURE,
    "sim-thesis-17",
    "All paths through a cache (simulated, costs of the thesis' table 6)",
);
