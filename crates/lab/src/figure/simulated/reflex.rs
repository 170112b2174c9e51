//! What flash does to reads, by the emulated devices at full scale in virtual time. `[ReFlex §2.2,
//! §3.2.1]`
//!
//! The devices are those of `block::device::flash`, loaded as calibration loads them: independent
//! requests, in an open loop. The costs model of the other simulated figures has no part in it.

use super::{MEASURED, MEASURED_QUICK, Simulation};
use crate::calibrate::{Emulated, Probe as _};
use crate::figure::Figure;
use crate::figure::claim::{Bound, Claim, Comparison, Quantifier};
use crate::figure::plan::{Panel, Plan, cell};
use crate::figure::sample::Metric;
use base::Nanos;
use qos::Percentile;
use qos::fit::Kind;
use sim::model::Costs;
use sim::model::figures::{Axis, Point, Series};

/// What the panels show.
pub(super) const PANEL: &str = "p95 latency of reads";

const PANELS: &[Panel] = &[Panel::lines(Metric::ReadTail)];

/// Bytes of each device; latencies do not depend on them.
const DEVICE_BYTES: u64 = 1 << 40;

/// Lines end where reads are later than this: it is how far the paper shows them.
const TOP: Nanos = Nanos::from_millis(2);

/// The lines: a name, thousandths of reads, bytes of a request.
const SHARES: [(&str, u16, u32); 6] = [
    ("100 %", 1000, 4096),
    ("99 %", 990, 4096),
    ("95 %", 950, 4096),
    ("90 %", 900, 4096),
    ("75 %", 750, 4096),
    ("50 %", 500, 4096),
];
const LARGE: (&str, u16, u32) = ("32 KiB", 1000, 32 * 1024);

/// Fig. 1: requests.
pub(in crate::figure) const FIG01: Figure = Figure {
    name: "reflex-1",
    title: "p95 of reads by load and share of reads",
    paper: "ReFlex §2.2, Fig. 1",
    workload: "emulated device A in virtual time: 4 KiB at random, open loop, 50 to 100 % reads",
    work: Simulation::of(requests, PANELS, interference),
};

/// Fig. 3(a): tokens, device A.
pub(in crate::figure) const FIG03A: Figure = tokens_figure(
    "reflex-3a",
    "p95 of reads by tokens, device A",
    Simulation::of(
        |quick, seed, _| tokens(&A, quick, seed),
        PANELS,
        |plan| coincide(plan, &A),
    ),
);

/// Fig. 3(b): device B.
pub(in crate::figure) const FIG03B: Figure = tokens_figure(
    "reflex-3b",
    "p95 of reads by tokens, device B",
    Simulation::of(
        |quick, seed, _| tokens(&B, quick, seed),
        PANELS,
        |plan| coincide(plan, &B),
    ),
);

/// Fig. 3(c): device C.
pub(in crate::figure) const FIG03C: Figure = tokens_figure(
    "reflex-3c",
    "p95 of reads by tokens, device C",
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
                   and reads of 32 KiB; 1 token is a 4 KiB read beside writes",
        work,
    }
}

/// A device, and what the paper says that its requests cost.
struct Device {
    profile: &'static str,
    write: f64,
    read_only: f64,
    /// Thousands of tokens a second that are shown: up to so many, in such steps.
    most: u32,
    step: u32,
    /// And in short.
    quick: &'static [u32],
    /// Where curves are compared: with some load, and near the knee.
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

/// Thousands of requests a second of Fig. 1.
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
        .map(|line| series(A.profile, line, x, &steps, 1.0, quick, seed))
        .collect()
}

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

/// A line: the p95 at each step, of so many thousand times `1 / weight` requests a second.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates of a few millions"
)]
fn series(
    profile: &str,
    &(system, read_permille, request_bytes): &(&'static str, u16, u32),
    x: Axis,
    steps: &[u32],
    weight: f64,
    quick: bool,
    seed: u64,
) -> Series {
    let kind = Kind {
        request_bytes,
        read_permille,
    };
    let span = if quick { MEASURED_QUICK } else { MEASURED };
    let profile = profile.parse().expect("a profile of ours");
    let mut device = Emulated::for_time(profile, DEVICE_BYTES, span.into(), seed);
    let points = steps.iter().map_while(|&step| {
        let iops = f64::from(step) * 1e3 / weight;
        let measured = device
            .measure(kind, iops as u64)
            .expect("the device is large enough");
        let p95 = measured.latency[Percentile::P95 as usize];
        (p95 <= TOP).then(|| Point {
            x: step.into(),
            y: p95.0 as f64 / 1e3,
        })
    });
    Series {
        panel: PANEL,
        x,
        y: Axis {
            name: PANEL,
            unit: "µs",
        },
        system,
        points: points.collect(),
    }
}

/// Latency depends on the load, and on the share of reads in it.
fn interference(plan: &mut Plan) {
    let p95 = Metric::ReadTail;
    plan.claim(
        "load",
        "reads wait for each other: a load near the limit makes them late",
        p95,
        (cell("100 %", 1_000), cell("100 %", 50)),
        Bound::AtLeast(4.0),
    );
    let shares = SHARES.windows(2).map(|pair| Comparison {
        of: cell(pair[1].0, 100),
        to: cell(pair[0].0, 100),
    });
    plan.claims.push(Claim {
        name: "shares",
        says: "at 100 K requests a second, the more of them write, the later reads are",
        metric: p95,
        comparisons: shares.collect(),
        quantifier: Quantifier::Every,
        bound: Bound::AtLeast(1.0),
    });
    plan.claim(
        "writes",
        "at 100 K requests a second, writes as many as reads make these ten times as late",
        p95,
        (cell("50 %", 100), cell("100 %", 100)),
        Bound::AtLeast(5.0),
    );
    plan.claim(
        "read-only",
        "1 M reads a second alone are no later than 400 K requests of which 1 % write",
        p95,
        (cell("100 %", 1_000), cell("99 %", 400)),
        Bound::AtMost(1.3),
    );
}

/// In tokens, all lines are about the same one.
fn coincide(plan: &mut Plan, device: &Device) {
    const MIXED: [&str; 4] = ["99 %", "95 %", "75 %", "50 %"];
    let p95 = Metric::ReadTail;
    let [some, near] = device.compared;
    plan.claim(
        "knee",
        "latency follows the tokens",
        p95,
        (cell("90 %", near), cell("90 %", 50)),
        Bound::AtLeast(2.0),
    );
    for (name, says, bound) in [
        (
            "mixed-late",
            "one price of a write explains all mixed loads: none is later than that of 90 % reads",
            Bound::AtMost(1.35),
        ),
        ("mixed-early", "and none is earlier", Bound::AtLeast(0.7)),
    ] {
        let places = MIXED.iter().flat_map(|&share| {
            device.compared.map(|tick| Comparison {
                of: cell(share, tick),
                to: cell("90 %", tick),
            })
        });
        plan.claims.push(Claim {
            name,
            says,
            metric: p95,
            comparisons: places.collect(),
            quantifier: Quantifier::Every,
            bound,
        });
    }
    plan.claim_at_each(
        "read-only",
        "and with its own price a load of nothing but reads is not later either",
        p95,
        ("100 %", "90 %"),
        [some, near],
        Bound::AtMost(1.35),
    );
    plan.claim_at_each(
        "size",
        "a read of 32 KiB costs as much as eight of 4 KiB",
        p95,
        (LARGE.0, "100 %"),
        [some, near],
        Bound::AtMost(1.5),
    );
}
