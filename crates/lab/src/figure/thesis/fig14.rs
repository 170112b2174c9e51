//! Fig. 14: the read-ahead fix. `[Yu §4.7]`

use super::cached::{
    HTM_LOOKING, RAND_M32, RAND_R32, SEQ_R32, VFS_HTM, WORKLOAD, claim, claim_part, plan, simulated,
};
use crate::figure::{Figure, Work};

/// The figure.
pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-14",
    title: "Reads without look-up of their context",
    paper: "Yu §4.7, Fig. 14",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_R32, RAND_R32, RAND_M32];
        let mut plan = plan(&[HTM_LOOKING, VFS_HTM], &columns);
        let of = ("vfs_htm", "htm");
        let says = "without the look-up random reads have 1.94 times the throughput";
        claim(&mut plan, "random", says, of, &[RAND_R32], (1.29, 2.91));
        let says = "and sequential ones as much as with it";
        claim(&mut plan, "sequential", says, of, &[SEQ_R32], (0.67, 1.5));
        let says = "without it random reads have 87 % of the device";
        claim_part(&mut plan, "part", says, ("vfs_htm", RAND_R32), (0.58, 1.31));
        let says = "and a mix 74 %, as reads unplug the writes early";
        let place = ("vfs_htm", RAND_M32);
        claim_part(&mut plan, "part-mixed", says, place, (0.49, 1.11));
        plan
    }),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = simulated(
    FIGURE,
    "sim-thesis-14",
    "Reads without look-up of their context (simulated, costs of the thesis' table 6)",
);
