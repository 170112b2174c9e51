//! Fig. 5: tenants' SLOs, on the emulated device A at full scale in virtual time. `[ReFlex §5.4]`
//!
//! The registry, the schedulers and the device are production code; processors and the network take
//! no time (`sim::tenants`).

use crate::figure::plan::{Panel, Plan, claims};
use crate::figure::sample::Metric;
use crate::figure::simulation::{Lines, READ_TAIL, REQUESTS, Simulation, TOKENS};
use crate::figure::{Figure, Work};
use base::Nanos;
use qos::{Percentile, TokenPoolRules};
use sim::model::Costs;
use sim::model::figures::Series;
use sim::tenants::fig5::{self, Scenario};
use sim::tenants::{calibrate, run};

const PANELS: &[Panel] = &[
    Panel::bars(Metric::ReadTail).logarithmic(),
    Panel::bars(Metric::Requests),
    Panel::bars(Metric::Tokens),
];

/// Lines: without the scheduler, with the paper's, with this project's, and the SLO or the offered
/// load.
const OFF: &str = "scheduler off";
const PAPER: &str = "reflex-paper";
const ON: &str = "scheduler on";
const PROMISED: &str = "promised";

/// The device's seed: the same in every repetition, because a device is calibrated once.
const DEVICE_SEED: u64 = 1;

/// Threads that serve each tenant.
const THREADS: u32 = 2;

const WORKLOAD: &str = "emulated device A in virtual time, two threads: A reads 120 K/s and B 70 K/s \
                        (20 % writes), both with an SLO of p95 500 µs; C (95 % reads) and D (25 %) \
                        are best effort, depth 256";

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
                "advance" "(ours) B's reads are earlier than by the paper's Algorithm 1 alone":
                    Metric::ReadTail, (PAPER, "B") / (ON, "B") >= 1.1;
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
    let mut lines = Lines::over("Tenant");
    let ours = TokenPoolRules::default();
    for (system, scheduled, rules) in [
        (OFF, false, ours),
        (PAPER, true, TokenPoolRules::reflex_paper()),
        (ON, true, ours),
    ] {
        let mut setup = fig5::setup(&device, scenario, scheduled, 1, THREADS, seed);
        setup.rules = rules;
        if quick {
            setup.measured = Nanos::from_millis(300);
        }
        let report = run(&setup).expect("the paper's tenants are admitted");
        for (place, tenant) in (1..).zip(&report.tenants) {
            let latency = tenant.read_latency(Percentile::P95);
            lines.add(READ_TAIL, system, place, latency.0 as f64 / 1e3);
            lines.add(REQUESTS, system, place, tenant.iops() / 1e3);
            lines.add(TOKENS, system, place, tenant.tokens_per_second() / 1e3);
        }
    }
    let asked = match scenario {
        Scenario::First => fig5::IOPS,
        Scenario::Second => [fig5::IOPS[0], fig5::IOPS_B_LESS],
    };
    for (place, iops) in (1..).zip(asked) {
        lines.add(READ_TAIL, PROMISED, place, fig5::SLO.0 as f64 / 1e3);
        lines.add(REQUESTS, PROMISED, place, iops as f64 / 1e3);
    }
    lines.finish()
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
