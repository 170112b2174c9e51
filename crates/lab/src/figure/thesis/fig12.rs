//! Fig. 12: hybrid temporal merge. `[Yu §4.6]`

use super::cached::{
    ATM_LOOKING, HTM_LOOKING, RAND_R1, RAND_R32, RAND_W32, SEQ_W1, SEQ_W32, STM_LOOKING, WORKLOAD,
    claim, claim_part, plan, simulated,
};
use crate::figure::{Figure, Work};

/// The figure.
pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-12",
    title: "Hybrid temporal merge through a cache",
    paper: "Yu §4.6, Fig. 12",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [RAND_R1, SEQ_W1, SEQ_W32, RAND_R32, RAND_W32];
        let mut plan = plan(&[STM_LOOKING, ATM_LOOKING, HTM_LOOKING], &columns);
        let says = "HTM is as STM with reads";
        let reads = [RAND_R1, RAND_R32];
        claim(
            &mut plan,
            "reads",
            says,
            ("htm", "stm"),
            &reads,
            (0.67, 1.5),
        );
        let says = "and as ATM with writes";
        let writes = [SEQ_W1, SEQ_W32, RAND_W32];
        claim(
            &mut plan,
            "writes",
            says,
            ("htm", "atm"),
            &writes,
            (0.67, 1.5),
        );
        let says = "random reads have 45 % of the device, as read-ahead takes the rest";
        claim_part(&mut plan, "part", says, ("htm", RAND_R32), (0.3, 0.68));
        plan
    }),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = simulated(
    FIGURE,
    "sim-thesis-12",
    "Hybrid temporal merge through a cache (simulated, costs of the thesis' table 6)",
);
