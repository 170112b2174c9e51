//! Fig. 6: the synchronous path. `[Yu §4.2]`

use super::THROUGHPUT;
use super::cached::{
    INTERRUPT_LOOKING, RAND_M32, RAND_R1, RAND_R32, SEQ_R1, SEQ_R32, SYNC_LOOKING, WORKLOAD, plan,
    simulated,
};
use crate::figure::plan::claims;
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-6",
    title: "The synchronous path through a cache",
    paper: "Yu §4.2, Fig. 6",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_R1, RAND_R1, SEQ_R32, RAND_R32, RAND_M32];
        let mut plan = plan(&[INTERRUPT_LOOKING, SYNC_LOOKING], &columns);
        claims! { plan;
            "random" "1.58 to 2.47 times the interrupt path with random requests, 1.14 in order":
                THROUGHPUT, "sync" / "interrupt" in 1.05..=3.7,
                at [RAND_R1.0, RAND_R32.0, RAND_M32.0];
            "sequential"
                "1.58 to 2.47 times the interrupt path with random requests, 1.14 in order":
                THROUGHPUT, "sync" / "interrupt" in 0.76..=1.71, at [SEQ_R32.0];
        }
        plan
    }),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = simulated(
    FIGURE,
    "sim-thesis-6",
    "The synchronous path through a cache (simulated, costs of the thesis' table 6)",
);
