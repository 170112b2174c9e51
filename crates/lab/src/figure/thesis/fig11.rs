//! Fig. 11: asynchronous temporal merge. `[Yu §4.5]`

use super::THROUGHPUT;
use super::cached::{
    ATM_LOOKING, RAND_R32, RAND_W1, RAND_W32, SEQ_W1, SEQ_W32, STM_LOOKING, WORKLOAD, plan,
    simulated,
};
use crate::figure::plan::claims;
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-11",
    title: "Asynchronous temporal merge through a cache",
    paper: "Yu §4.5, Fig. 11",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_W1, RAND_W1, SEQ_W32, RAND_R32, RAND_W32];
        let mut plan = plan(&[STM_LOOKING, ATM_LOOKING], &columns);
        claims! { plan;
            "one" "ATM has 1.5 times STM's writes with one thread":
                THROUGHPUT, "atm" / "stm" in 1.0..=2.25, at [SEQ_W1.0, RAND_W1.0];
            "sequential" "and 1.18 and 1.05 times with many":
                THROUGHPUT, "atm" / "stm" in 0.79..=1.77, at [SEQ_W32.0];
            "random" "and 1.18 and 1.05 times with many":
                THROUGHPUT, "atm" / "stm" in 0.7..=1.58, at [RAND_W32.0];
            "reads" "its reads do not merge":
                THROUGHPUT, "atm" / "stm" in 0.2..=0.8, at [RAND_R32.0];
        }
        plan
    }),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = simulated(
    FIGURE,
    "sim-thesis-11",
    "Asynchronous temporal merge through a cache (simulated, costs of the thesis' table 6)",
);
