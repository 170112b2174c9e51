//! Fig. 11: increasing number of cores, with one L-app and one T-app per core.

use super::{LINES, P99, TOTAL};
use crate::figure::Figure;
use crate::figure::plan::{Plan, claims};
use crate::figure::simulation::Simulation;
use sim::model::figures;

pub(in crate::figure) const SIMULATED: Figure = Figure {
    name: "sim-blk-switch-11",
    title: "From 1 to 10 cores (simulated)",
    paper: "blk-switch §5.2, Fig. 11",
    workload: "simulated: one L-app and one T-app per host core, as many target cores, \
               100 Gbit/s",
    work: Simulation::of(figures::blk_switch_11, LINES, cores),
};

fn cores(plan: &mut Plan) {
    let all = plan.x.ticks.clone();
    claims! { plan;
        "p99-linux" "lower p99 than Linux with any number of cores":
            P99, "linux" / "switchyard" >= 2.0, at &all;
        "one-core" "on a single core 40 % less throughput than Linux: nowhere to steer to":
            TOTAL, "switchyard" / "linux" >= 0.6, at all.first();
        "many-cores" "with 8 or more cores the throughput of Linux: the link is full":
            TOTAL, "switchyard" / "linux" >= 0.95, at plan.ticks_from(8.0);
    }
}
