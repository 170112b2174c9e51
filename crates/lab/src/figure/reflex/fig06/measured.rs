//! Tenants and connections that one core of a real target serves. `[ReFlex §5.5, Fig. 6(b), Fig.
//! 6(c)]`
//!
//! The target has one core and the load another. Over the kernel's TCP both are saturated long
//! before 5,000 connections at 100 requests per second each. There are therefore two lines: one
//! whose load grows with its connections, as in the paper, which shows the limit of a core; and one
//! that divides a constant load among more and more connections, which shows their own cost.

use crate::figure::plan::{Axis, Panel, Plan, claims};
use crate::figure::sample::{Metric, Statistic};
use crate::figure::scenario::{
    LOAD_CORE, Layout, LoadProcess, Scenario, Storage, System, Workload,
};
use crate::figure::{Figure, Work};
use switch::Class;

/// Lines.
const EACH: &str = "100/s each";
const TOGETHER: &str = "20,000/s in all";

/// Requests per second of each connection, and of all together.
const RATE_EACH: u64 = 100;
const RATE_TOGETHER: u64 = 20_000;

/// Connections of each host of Fig. 6(c).
const QUEUES: u16 = 25;

/// Most requests in flight: an open loop that never waits while the target keeps up.
const DEPTH: u32 = 1023;

const P95: Metric = Metric::Latency(Class::Throughput, Statistic::P95);

/// A small number, as the reference of the larger ones.
const FEW: u32 = 50;

/// Tenants of Fig. 6(b), and connections of Fig. 6(c); the last value is the paper's maximum per
/// core.
const TENANTS: [u32; 6] = [FEW, 100, 250, 500, 1_000, 2_500];
const TENANTS_QUICK: [u32; 3] = [FEW, 250, 2_500];
const CONNECTIONS: [u32; 8] = [FEW, 100, 250, 500, 750, 1_000, 2_500, 5_000];
const CONNECTIONS_QUICK: [u32; 3] = [FEW, 250, 5_000];

/// Largest value of lines of [`EACH`]: beyond it both cores are saturated.
const EACH_MOST: u32 = 2_500;

/// Number of connections at 100 requests per second each that a core serves with room to spare.
const SERVED: u32 = 250;

/// Fig. 6(b): tenants.
pub(in crate::figure) const TENANTS_FIGURE: Figure = Figure {
    name: "reflex-6b",
    title: "Tenants on one core of this machine",
    paper: "ReFlex §5.5, Fig. 6(b)",
    workload: "hosts with one tenant and one connection each: 1 KiB random reads, open loop, from \
               emulated flash whose requests cost tokens; target on core 0, load on core 1",
    work: Work::Machine(|extent| {
        let ticks = extent.sweep(&TENANTS, &TENANTS_QUICK);
        plan("Tenants", &ticks, Storage::TokensByHost, 1)
    }),
};

/// Fig. 6(c): connections.
pub(in crate::figure) const CONNECTIONS_FIGURE: Figure = Figure {
    name: "reflex-6c",
    title: "Connections to one core of this machine",
    paper: "ReFlex §5.5, Fig. 6(c)",
    workload: "connections of one tenant, 25 per host: 1 KiB random reads, open loop, from emulated \
               flash whose requests cost tokens; target on core 0, load on core 1",
    work: Work::Machine(|extent| {
        let ticks = extent.sweep(&CONNECTIONS, &CONNECTIONS_QUICK);
        plan("Connections", &ticks, Storage::Tokens, QUEUES)
    }),
};

fn plan(label: &'static str, ticks: &[u32], storage: Storage, queues: u16) -> Plan {
    let mut plan = Plan::over(Axis::new(label, "", ticks));
    for &count in ticks {
        plan.run(
            TOGETHER,
            count,
            scenario(count, RATE_TOGETHER, storage, queues),
        );
        if count <= EACH_MOST {
            let rate = RATE_EACH * u64::from(count);
            plan.run(EACH, count, scenario(count, rate, storage, queues));
        }
    }
    let mut plan = plan.showing([Panel::lines(Metric::Requests), Panel::lines(P95)]);
    claims(&mut plan, ticks);
    plan
}

/// `connections` connections in all, `queues` of each host, with `rate` requests per second in all.
fn scenario(connections: u32, rate: u64, storage: Storage, queues: u16) -> Scenario {
    let app = Workload {
        class: Class::Throughput,
        bytes: 1024,
        depth: DEPTH,
        rate: Some(rate),
        random: true,
        queues,
        ..Workload::latency(1)
    };
    let load = LoadProcess {
        storage,
        hosts: connections / u32::from(queues),
        ..LoadProcess::of(vec![app.on(LOAD_CORE)])
    };
    Scenario {
        system: System::OWN_LANES,
        layout: Layout::Split,
        processes: vec![load],
    }
}

fn claims(plan: &mut Plan, ticks: &[u32]) {
    let most = *ticks.last().expect("a sweep is not empty");
    claims! { plan;
        "served" "(ours) within this core's capacity, all requests are served":
            Metric::Requests, (EACH, SERVED) / (EACH, FEW) >= f64::from(SERVED / FEW) * 0.97;
        "idle" "the number that the paper's core serves gets the same total rate as a few":
            Metric::Requests, (TOGETHER, most) / (TOGETHER, FEW) >= 0.98;
        "late" "and their p95 is at most twice that of a few":
            P95, (TOGETHER, most) / (TOGETHER, FEW) <= 2.0;
    }
}
