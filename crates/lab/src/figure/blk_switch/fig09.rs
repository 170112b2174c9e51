//! Fig. 9: threads of one L-app alongside threads of one T-app.

use super::{LINES, claims};
use crate::figure::Figure;
use crate::figure::simulation::Simulation;
use sim::model::figures;

pub(in crate::figure) const SIMULATED: Figure = Figure {
    name: "sim-blk-switch-9",
    title: "Many threads of an L-app beside 6 of a T-app on 6 cores (simulated)",
    paper: "blk-switch §5.2, Fig. 9",
    workload: "simulated: as Fig. 7, with threads of one L-app and of one T-app; a polling load has \
               at most one thread per core",
    work: Simulation::of(figures::blk_switch_9, LINES, |plan| {
        let all = plan.x.ticks.clone();
        claims::many(plan, &all);
    }),
};
