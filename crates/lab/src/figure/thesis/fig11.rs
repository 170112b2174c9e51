//! Fig. 11: asynchronous temporal merge. `[Yu §4.5]`

use super::cached::{
    ATM_LOOKING, RAND_R32, RAND_W1, RAND_W32, SEQ_W1, SEQ_W32, STM_LOOKING, WORKLOAD, claim, plan,
    simulated,
};
use crate::figure::{Figure, Work};

/// The figure.
pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-11",
    title: "Asynchronous temporal merge through a cache",
    paper: "Yu §4.5, Fig. 11",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_W1, RAND_W1, SEQ_W32, RAND_R32, RAND_W32];
        let mut plan = plan(&[STM_LOOKING, ATM_LOOKING], &columns);
        let of = ("atm", "stm");
        let says = "ATM has 1.5 times STM's writes with one thread";
        claim(&mut plan, "one", says, of, &[SEQ_W1, RAND_W1], (1.0, 2.25));
        let says = "and 1.18 and 1.05 times with many";
        claim(&mut plan, "sequential", says, of, &[SEQ_W32], (0.79, 1.77));
        claim(&mut plan, "random", says, of, &[RAND_W32], (0.7, 1.58));
        let says = "its reads do not merge";
        claim(&mut plan, "reads", says, of, &[RAND_R32], (0.2, 0.8));
        plan
    }),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = simulated(
    FIGURE,
    "sim-thesis-11",
    "Asynchronous temporal merge through a cache (simulated, costs of the thesis' table 6)",
);
