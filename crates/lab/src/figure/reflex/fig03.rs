//! Fig. 3: weighted by the cost of requests, all loads have the same curve.

use super::emulated::{PANELS, SHARES, series};
use crate::figure::Figure;
use crate::figure::claim::Bound;
use crate::figure::plan::{Plan, cell, claims};
use crate::figure::sample::Metric;
use crate::figure::simulation::Simulation;
use sim::model::figures::{Axis, Series};

const LARGE: (&str, u16, u32) = ("32 KiB", 1000, 32 * 1024);

/// Fig. 3(a): tokens, device A.
pub(in crate::figure) const DEVICE_A: Figure = tokens_figure(
    "sim-reflex-3a",
    "p95 of reads by tokens, device A (emulated, in virtual time)",
    Simulation::of(
        |quick, seed, _| tokens(&A, quick, seed),
        PANELS,
        |plan| coincide(plan, &A),
    ),
);

/// Fig. 3(b): device B.
pub(in crate::figure) const DEVICE_B: Figure = tokens_figure(
    "sim-reflex-3b",
    "p95 of reads by tokens, device B (emulated, in virtual time)",
    Simulation::of(
        |quick, seed, _| tokens(&B, quick, seed),
        PANELS,
        |plan| coincide(plan, &B),
    ),
);

/// Fig. 3(c): device C.
pub(in crate::figure) const DEVICE_C: Figure = tokens_figure(
    "sim-reflex-3c",
    "p95 of reads by tokens, device C (emulated, in virtual time)",
    Simulation::of(
        |quick, seed, _| tokens(&C, quick, seed),
        PANELS,
        |plan| coincide(plan, &C),
    ),
);

const fn tokens_figure(
    name: &'static str,
    title: &'static str,
    work: crate::figure::Work,
) -> Figure {
    Figure {
        name,
        title,
        paper: "ReFlex §3.2.1, Fig. 3",
        workload: "emulated device in virtual time: 4 KiB at random, open loop, 50 to 100 % reads, \
                   and reads of 32 KiB; 1 token is a 4 KiB read in a mixed load",
        work,
    }
}

/// A device, and the paper's cost of its requests.
struct Device {
    profile: &'static str,
    write: f64,
    read_only: f64,
    /// Shown token rates in thousands per second: the largest one, and the step.
    most: u32,
    step: u32,
    /// The rates of a quick run.
    quick: &'static [u32],
    /// Rates at which curves are compared: at moderate load, and near the knee.
    compared: [u32; 2],
}

const A: Device = Device {
    profile: "A",
    write: 10.0,
    read_only: 0.5,
    most: 600,
    step: 25,
    quick: &[50, 150, 250, 350, 450, 500],
    compared: [350, 450],
};
const B: Device = Device {
    profile: "B",
    write: 20.0,
    read_only: 1.0,
    most: 260,
    step: 10,
    quick: &[50, 100, 150, 200, 220],
    compared: [150, 200],
};
const C: Device = Device {
    profile: "C",
    write: 16.0,
    read_only: 1.0,
    most: 525,
    step: 25,
    quick: &[50, 150, 250, 350, 450],
    compared: [350, 450],
};

fn tokens(device: &Device, quick: bool, seed: u64) -> Vec<Series> {
    let steps: Vec<u32> = if quick {
        device.quick.to_vec()
    } else {
        (1..=device.most / device.step)
            .map(|step| step * device.step)
            .collect()
    };
    let x = Axis {
        name: "Tokens",
        unit: "1000/s",
    };
    let lines = SHARES.iter().chain([&LARGE]);
    let line = |line: &(&'static str, u16, u32)| {
        let &(_, permille, bytes) = line;
        let reads = f64::from(permille) / 1e3;
        let each = if permille == 1000 {
            device.read_only
        } else {
            reads + (1.0 - reads) * device.write
        };
        let weight = each * f64::from(qos::units(bytes.into()));
        series(device.profile, line, x, &steps, weight, quick, seed)
    };
    lines.map(line).collect()
}

/// In tokens, all lines roughly coincide.
fn coincide(plan: &mut Plan, device: &Device) {
    const MIXED: [&str; 4] = ["99 %", "95 %", "75 %", "50 %"];
    let p95 = Metric::ReadTail;
    let [some, near] = device.compared;
    claims! { plan;
        "knee" "latency follows the tokens":
            p95, ("90 %", near) / ("90 %", 50) >= 2.0;
    }
    for (name, says, bound) in [
        (
            "mixed-late",
            "one price of a write explains all mixed loads: none is later than that of 90 % reads",
            Bound::AtMost(1.35),
        ),
        ("mixed-early", "and none is earlier", Bound::AtLeast(0.7)),
    ] {
        let pairs = MIXED.iter().flat_map(|&share| {
            let pair = |tick| (cell(share, tick), cell("90 %", tick));
            device.compared.map(pair)
        });
        plan.claim_pairs(name, says, p95, pairs, bound);
    }
    claims! { plan;
        "read-only" "and with its own price a load of nothing but reads is not later either":
            p95, "100 %" / "90 %" <= 1.35, at [some, near];
        "size" "a read of 32 KiB costs as much as eight of 4 KiB":
            p95, (LARGE.0) / "100 %" <= 1.5, at [some, near];
    }
}
