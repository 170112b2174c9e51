//! Fig. 12: a link of 200 Gbit/s.

use super::{AVERAGE, P99, P999, TOTAL};
use crate::figure::Figure;
use crate::figure::plan::{Panel, Plan, claims};
use crate::figure::simulation::Simulation;
use sim::model::figures;

const BARS: &[Panel] = &[
    Panel::bars(AVERAGE),
    Panel::bars(P99),
    Panel::bars(P999),
    Panel::bars(TOTAL),
];

pub(in crate::figure) const SIMULATED: Figure = Figure {
    name: "sim-blk-switch-12",
    title: "16 cores and 200 Gbit/s (simulated)",
    paper: "blk-switch §5.2, Fig. 12",
    workload: "simulated: 16 cores on each side, 200 Gbit/s, 16 L-apps and 16 T-apps",
    work: Simulation::of(figures::blk_switch_12, BARS, fast),
};

fn fast(plan: &mut Plan) {
    let all = plan.x.ticks.clone();
    claims! { plan;
        "p99-linux" "the p99 stays at µs scale (143 µs), an order of magnitude below Linux":
            P99, "linux" / "switchyard" >= 8.0, at &all;
        "throughput-linux" "within 1 % of the throughput of Linux":
            TOTAL, "switchyard" / "linux" >= 0.95, at &all;
    }
    if let Some(tick) = all.first() {
        claims! { plan;
            "steering" "(ours) and no less throughput than the paper's switch with fixed batching":
                TOTAL, ("switchyard", tick) / ("blk-switch", tick) >= 0.95;
        }
    }
}
