//! Fig. 1: the baseline. `[Yu §1.1]`

use super::THROUGHPUT;
use super::cached::{
    INTERRUPT_LOOKING, RAND_R1, RAND_R32, SEQ_R1, SEQ_R32, WORKLOAD, plan, simulated,
};
use crate::figure::claim::Bound;
use crate::figure::plan::cell;
use crate::figure::{Figure, Work};

/// The figure.
pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-1",
    title: "The interrupt path through a cache",
    paper: "Yu §1.1, Fig. 1",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_R1, RAND_R1, SEQ_R32, RAND_R32];
        let mut plan = plan(&[INTERRUPT_LOOKING], &columns);
        for (name, random, sequential) in [
            ("one", RAND_R1.0, SEQ_R1.0),
            ("many", RAND_R32.0, SEQ_R32.0),
        ] {
            plan.claim(
                name,
                "random reads have about a quarter of the throughput of sequential ones",
                THROUGHPUT,
                (cell("interrupt", random), cell("interrupt", sequential)),
                Bound::Between(0.167, 0.375),
            );
        }
        plan
    }),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = simulated(
    FIGURE,
    "sim-thesis-1",
    "The interrupt path through a cache (simulated, costs of the thesis' table 6)",
);
