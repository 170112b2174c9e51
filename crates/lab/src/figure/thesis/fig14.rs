//! Fig. 14: the read-ahead fix. `[Yu §4.7]`

use super::cached::{HTM_LOOKING, RAND_M32, RAND_R32, SEQ_R32, VFS_HTM, WORKLOAD, plan, simulated};
use super::{DEVICE, THROUGHPUT};
use crate::figure::plan::claims;
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-14",
    title: "Reads without look-up of their context",
    paper: "Yu §4.7, Fig. 14",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_R32, RAND_R32, RAND_M32];
        let mut plan = plan(&[HTM_LOOKING, VFS_HTM], &columns);
        claims! { plan;
            "random" "without the look-up random reads have 1.94 times the throughput":
                THROUGHPUT, "vfs_htm" / "htm" in 1.29..=2.91, at [RAND_R32.0];
            "sequential" "and sequential ones as much as with it":
                THROUGHPUT, "vfs_htm" / "htm" in 0.67..=1.5, at [SEQ_R32.0];
            "part" "without it random reads have 87 % of the device":
                THROUGHPUT, ("vfs_htm", RAND_R32.0) / DEVICE in 0.58..=1.31;
            "part-mixed" "and a mix 74 %, as reads unplug the writes early":
                THROUGHPUT, ("vfs_htm", RAND_M32.0) / DEVICE in 0.49..=1.11;
        }
        plan
    }),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = simulated(
    FIGURE,
    "sim-thesis-14",
    "Reads without look-up of their context (simulated, costs of the thesis' table 6)",
);
