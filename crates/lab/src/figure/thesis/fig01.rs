//! Fig. 1: the baseline. `[Yu §1.1]`

use super::THROUGHPUT;
use super::cached::{
    INTERRUPT_LOOKING, RAND_R1, RAND_R32, SEQ_R1, SEQ_R32, WORKLOAD, plan, simulated,
};
use crate::figure::plan::claims;
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-1",
    title: "The interrupt path through a cache",
    paper: "Yu §1.1, Fig. 1",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_R1, RAND_R1, SEQ_R32, RAND_R32];
        let mut plan = plan(&[INTERRUPT_LOOKING], &columns);
        claims! { plan;
            "one" "random reads have about a quarter of the throughput of sequential ones":
                THROUGHPUT,
                ("interrupt", RAND_R1.0) / ("interrupt", SEQ_R1.0) in 0.167..=0.375;
            "many" "random reads have about a quarter of the throughput of sequential ones":
                THROUGHPUT,
                ("interrupt", RAND_R32.0) / ("interrupt", SEQ_R32.0) in 0.167..=0.375;
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
