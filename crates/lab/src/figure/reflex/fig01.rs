//! Fig. 1: read latency rises with the load and with its share of writes.

use super::emulated::{PANELS, SHARES, series};
use crate::figure::Figure;
use crate::figure::claim::Bound;
use crate::figure::plan::{Plan, cell, claims};
use crate::figure::sample::Metric;
use crate::figure::simulation::Simulation;
use sim::model::Costs;
use sim::model::figures::{Axis, Series};

pub(in crate::figure) const SIMULATED: Figure = Figure {
    name: "sim-reflex-1",
    title: "p95 of reads by load and share of reads (emulated, in virtual time)",
    paper: "ReFlex §2.2, Fig. 1",
    workload: "emulated device A in virtual time: 4 KiB at random, open loop, 50 to 100 % reads",
    work: Simulation::of(requests, PANELS, interference),
};

/// Largest rate of Fig. 1, in thousands of requests per second.
const REQUESTS_MOST: u32 = 1_200;
const REQUESTS_STEP: u32 = 25;
const REQUESTS_QUICK: [u32; 7] = [50, 100, 200, 400, 600, 800, 1_000];

fn requests(quick: bool, seed: u64, _: &Costs) -> Vec<Series> {
    let steps: Vec<u32> = if quick {
        REQUESTS_QUICK.to_vec()
    } else {
        (1..=REQUESTS_MOST / REQUESTS_STEP)
            .map(|step| step * REQUESTS_STEP)
            .collect()
    };
    let x = Axis {
        name: "Requests",
        unit: "1000/s",
    };
    let lines = SHARES.iter();
    lines
        .map(|line| series("A", line, x, &steps, 1.0, quick, seed))
        .collect()
}

/// Latency depends on the load and on its share of reads.
fn interference(plan: &mut Plan) {
    let p95 = Metric::ReadTail;
    claims! { plan;
        "load" "reads wait for each other: a load near the limit makes them late":
            p95, ("100 %", 1_000) / ("100 %", 50) >= 4.0;
    }
    let shares = SHARES.windows(2);
    plan.claim_pairs(
        "shares",
        "at 100 K requests a second, the more of them write, the later reads are",
        p95,
        shares.map(|pair| (cell(pair[1].0, 100), cell(pair[0].0, 100))),
        Bound::AtLeast(1.0),
    );
    claims! { plan;
        "writes" "at 100 K requests a second, writes as many as reads make these ten times as late":
            p95, ("50 %", 100) / ("100 %", 100) >= 5.0;
        "read-only" "1 M reads a second alone are no later than 400 K requests of which 1 % write":
            p95, ("100 %", 1_000) / ("99 %", 400) <= 1.3;
    }
}
