//! Fig. 15: double buffering. `[Yu §4.8]`

use super::THROUGHPUT;
use super::cached::{
    RAND_M32, RAND_R32, RAND_W32, SEQ_W32, TWO_QUEUE, VFS_HTM, WORKLOAD, plan, simulated,
};
use crate::figure::plan::claims;
use crate::figure::{Figure, Work};

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-15",
    title: "Double buffering through a cache",
    paper: "Yu §4.8, Fig. 15",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let columns = [SEQ_W32, RAND_R32, RAND_W32, RAND_M32];
        let mut plan = plan(&[VFS_HTM, TWO_QUEUE], &columns);
        claims! { plan;
            "mixed" "2Q has 1.44 times the throughput of VFS-HTM with a mix":
                THROUGHPUT, "2q" / "vfs_htm" in 0.96..=2.16, at [RAND_M32.0];
        }
        plan
    }),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = simulated(
    FIGURE,
    "sim-thesis-15",
    "Double buffering through a cache (simulated, costs of the thesis' table 6)",
);
