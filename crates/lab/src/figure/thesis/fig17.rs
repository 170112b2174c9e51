//! Fig. 17: all paths. `[Yu §6.2]`

use super::cached::{
    ALL, PATHS, RAND_M32, RAND_R1, RAND_R32, SEQ_R1, SEQ_R32, WORKLOAD, claim, plan, simulated,
};
use crate::figure::{Figure, Work};

/// The figure.
pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-17",
    title: "All paths through a cache",
    paper: "Yu §6.2, Fig. 17",
    workload: WORKLOAD,
    work: Work::Machine(|_| {
        let mut plan = plan(&PATHS, &ALL);
        let of = ("sync", "interrupt");
        let says = "the interrupt path wins with one sequential reader";
        claim(&mut plan, "one in order", says, of, &[SEQ_R1], (0.58, 1.0));
        let says = "the synchronous path has 1.15 times as much with 32";
        claim(
            &mut plan,
            "many in order",
            says,
            of,
            &[SEQ_R32],
            (0.77, 1.73),
        );
        let says = "and 1.65 times with one random reader";
        claim(
            &mut plan,
            "one at random",
            says,
            of,
            &[RAND_R1],
            (1.1, 2.48),
        );
        let says = "ATM has 1.27 times the interrupt path's random reads with one thread";
        claim(
            &mut plan,
            "queued",
            says,
            ("atm", "interrupt"),
            &[RAND_R1],
            (0.85, 1.91),
        );
        let says = "with 32, no more of them than the synchronous path";
        claim(
            &mut plan,
            "unmerged",
            says,
            ("atm", "sync"),
            &[RAND_R32],
            (0.62, 1.05),
        );
        let says = "where STM has 1.93 times as many";
        claim(
            &mut plan,
            "merged",
            says,
            ("stm", "sync"),
            &[RAND_R32],
            (1.29, 2.9),
        );
        let says = "2Q has 4.4 times the interrupt path with a mix of 32 threads";
        claim(
            &mut plan,
            "mixed",
            says,
            ("2q", "interrupt"),
            &[RAND_M32],
            (2.93, 6.6),
        );
        plan
    }),
};

/// The same with eight processors.
pub(in crate::figure) const SIMULATED: Figure = simulated(
    FIGURE,
    "sim-thesis-17",
    "All paths through a cache (simulated, costs of the thesis' table 6)",
);
