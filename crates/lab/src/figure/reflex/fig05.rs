//! Fig. 5: promises to tenants, on the emulated device A at full scale in virtual
//! time. `[ReFlex §5.4]`
//!
//! The registry, the schedulers and the device are the production's; processors and the network
//! take no time there (`sim::tenants`).

use crate::figure::plan::{Panel, Plan, claims};
use crate::figure::sample::Metric;
use crate::figure::simulation::{READ_TAIL, REQUESTS, Simulation, TOKENS};
use crate::figure::{Figure, Work};
use base::Nanos;
use qos::Percentile;
use sim::model::Costs;
use sim::model::figures::{Axis, Point, Series};
use sim::tenants::fig5::{self, Scenario};
use sim::tenants::{Report, TenantReport, calibrate, run};

const PANELS: &[Panel] = &[
    Panel::bars(Metric::ReadTail).logarithmic(),
    Panel::bars(Metric::Requests),
    Panel::bars(Metric::Tokens),
];

/// Lines: without and with the scheduler, and what was promised or asked for.
const OFF: &str = "scheduler off";
const ON: &str = "scheduler on";
const PROMISED: &str = "promised";

/// The device's seed: the same in every repetition, as a device is calibrated once.
const DEVICE_SEED: u64 = 1;

/// Threads that serve each tenant.
const THREADS: u32 = 2;

const WORKLOAD: &str = "emulated device A in virtual time, two threads: A reads 120 K/s and B 70 K/s \
                        of which a fifth write, p95 of 500 µs promised; C (95 % reads) and D (25 %) \
                        are best effort, 256 at a time";

/// Fig. 5, scenario 1.
pub(in crate::figure) const FIRST: Figure = Figure {
    name: "sim-reflex-5a",
    title: "Promises to tenants: all that is reserved is used (emulated, in virtual time)",
    paper: "ReFlex §5.4, Fig. 5",
    workload: WORKLOAD,
    work: figure(
        |quick, seed, _| scenario(Scenario::First, quick, seed),
        |plan| {
            claims(plan);
            claims! { plan;
                "broken" "without a scheduler, best effort makes A's reads late":
                    Metric::ReadTail, (OFF, "A") / (PROMISED, "A") >= 2.0;
            }
        },
    ),
};

/// Fig. 5, scenario 2.
pub(in crate::figure) const SECOND: Figure = Figure {
    name: "sim-reflex-5b",
    title: "Promises to tenants: B asks for 45 K/s, and best effort has the rest (emulated, in virtual time)",
    paper: "ReFlex §5.4, Fig. 5",
    workload: WORKLOAD,
    work: figure(
        |quick, seed, _| scenario(Scenario::Second, quick, seed),
        claims,
    ),
};

const fn figure(simulate: fn(bool, u64, &Costs) -> Vec<Series>, claims: fn(&mut Plan)) -> Work {
    Simulation::over(&fig5::NAMES, simulate, PANELS, claims)
}

fn scenario(scenario: Scenario, quick: bool, seed: u64) -> Vec<Series> {
    let device = calibrate("A".parse().expect("a profile of ours"), DEVICE_SEED);
    let mut lines = Vec::new();
    for (system, scheduled) in [(OFF, false), (ON, true)] {
        let mut setup = fig5::setup(&device, scenario, scheduled, 1, THREADS, seed);
        if quick {
            setup.measured = Nanos::from_millis(300);
        }
        let report = run(&setup).expect("the paper's tenants are admitted");
        lines.extend(measured(system, &report));
    }
    let asked = match scenario {
        Scenario::First => fig5::IOPS,
        Scenario::Second => [fig5::IOPS[0], fig5::IOPS_B_LESS],
    };
    let latency = fig5::SLO.0 as f64 / 1e3;
    lines.push(line(READ_TAIL, "µs", PROMISED, [latency; 2]));
    lines.push(line(
        REQUESTS,
        "1000/s",
        PROMISED,
        asked.map(|iops| iops as f64 / 1e3),
    ));
    lines
}

/// Returns the results of all tenants.
fn measured(system: &'static str, report: &Report) -> [Series; 3] {
    let each = |of: fn(&TenantReport) -> f64| report.tenants.iter().map(of);
    [
        line(
            READ_TAIL,
            "µs",
            system,
            each(|tenant| tenant.read_latency(Percentile::P95).0 as f64 / 1e3),
        ),
        line(
            REQUESTS,
            "1000/s",
            system,
            each(|tenant| tenant.iops() / 1e3),
        ),
        line(
            TOKENS,
            "1000/s",
            system,
            each(|tenant| tenant.tokens_per_second() / 1e3),
        ),
    ]
}

fn line(
    panel: &'static str,
    unit: &'static str,
    system: &'static str,
    values: impl IntoIterator<Item = f64>,
) -> Series {
    let places = (1_u32..).map(f64::from);
    Series {
        panel,
        x: Axis {
            name: "Tenant",
            unit: "",
        },
        y: Axis { name: panel, unit },
        system,
        points: places.zip(values).map(|(x, y)| Point { x, y }).collect(),
    }
}

fn claims(plan: &mut Plan) {
    claims! { plan;
        "latency" "with it, A and B have the latency that they were promised":
            Metric::ReadTail, ON / PROMISED <= 1.0, at ["A", "B"];
        "requests" "and all the requests that they ask for":
            Metric::Requests, ON / PROMISED >= 0.99, at ["A", "B"];
        "even-least" "best effort shares what is left evenly, in tokens":
            Metric::Tokens, (ON, "C") / (ON, "D") >= 0.95;
        "even-most" "and neither way":
            Metric::Tokens, (ON, "C") / (ON, "D") <= 1.05;
    }
}
