//! Fig. 12: hybrid temporal merge. `[Yu §4.6]`

use super::cached::{
    ATM_LOOKING, HTM_LOOKING, RAND_R1, RAND_R32, RAND_W32, SEQ_W1, SEQ_W32, STM_LOOKING, WORKLOAD,
    plan, simulated,
};
use super::{DEVICE, THROUGHPUT};
use crate::figure::plan::claims;
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-12",
    title: "Hybrid temporal merge through a cache",
    paper: "Yu §4.6, Fig. 12",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [RAND_R1, SEQ_W1, SEQ_W32, RAND_R32, RAND_W32];
        let mut plan = plan(&[STM_LOOKING, ATM_LOOKING, HTM_LOOKING], &columns);
        claims! { plan;
            "reads" "HTM is as STM with reads":
                THROUGHPUT, "htm" / "stm" in 0.67..=1.5, at [RAND_R1.0, RAND_R32.0];
            "writes" "and as ATM with writes":
                THROUGHPUT, "htm" / "atm" in 0.67..=1.5, at [SEQ_W1.0, SEQ_W32.0, RAND_W32.0];
            "part" "random reads have 45 % of the device, as read-ahead takes the rest":
                THROUGHPUT, ("htm", RAND_R32.0) / DEVICE in 0.3..=0.68;
        }
        plan
    }),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = simulated(
    FIGURE,
    "sim-thesis-12",
    "Hybrid temporal merge through a cache (simulated, costs of the thesis' table 6)",
);
