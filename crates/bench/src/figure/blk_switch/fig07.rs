//! Fig. 7: the headline: more and more L-apps beside T-apps.

use crate::figure::claim::Bound;
use crate::figure::plan::{Axis, Extent, Panel, Plan};
use crate::figure::sample::{Metric, Statistic};
use crate::figure::scenario::{Layout, Scenario, System};
use crate::figure::{Figure, Work};
use switch::Class;

/// The figure.
pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "blk-switch-7",
    title: "Many L-apps beside T-apps: latency stays low, throughput high",
    paper: "blk-switch §5.2, Fig. 7",
    workload: "2 T-apps (64 KiB × 32 linux, 128 KiB × 8 poll, 64 KiB × 16 switchyard) and L-apps \
               (4 KiB, depth 1), all random reads; target and applications share two cores",
    work: Work::Machine(plan),
};

/// The systems that Figs. 7, 8, 10 and 13 compare.
pub(super) const SYSTEMS: [System; 3] = [System::LINUX, System::POLL, System::SWITCHYARD];

pub(super) const AVERAGE: Metric = Metric::Latency(Class::Latency, Statistic::Average);
pub(super) const P99: Metric = Metric::Latency(Class::Latency, Statistic::P99);
pub(super) const TOTAL: Metric = Metric::Throughput(None);

/// One T-app for each of the two cores, as the paper has six for six.
pub(super) const T_APPS: u32 = 2;

fn plan(extent: Extent) -> Plan {
    let sweep = extent.sweep(&[1, 2, 4, 8, 12], &[1, 4]);
    let mut plan = Plan::over(Axis::new("L-apps", "", &sweep));
    for &l in &sweep {
        for system in SYSTEMS {
            plan.run(
                system.name,
                l,
                Scenario::mix(system, Layout::Shared, l, T_APPS),
            );
        }
    }
    let against_linux = ("linux", "switchyard");
    let against_poll = ("poll", "switchyard");
    plan.claim_at_each(
        "average-linux",
        "28 to 110× lower average latency than Linux",
        AVERAGE,
        against_linux,
        &sweep,
        Bound::AtLeast(10.0),
    );
    plan.claim_at_each(
        "p99-linux",
        "10 to 25× lower p99 than Linux",
        P99,
        against_linux,
        &sweep,
        Bound::AtLeast(8.0),
    );
    plan.claim_at_each(
        "average-poll",
        "2 to 12× lower average latency than polling",
        AVERAGE,
        against_poll,
        &sweep,
        Bound::AtLeast(2.0),
    );
    plan.claim_at_each(
        "p99-poll",
        "2 to 15× lower p99 than polling",
        P99,
        against_poll,
        &sweep,
        Bound::AtLeast(2.0),
    );
    plan.claim_at_each(
        "throughput-linux",
        "all that for 5 to 10 % of Linux' throughput",
        TOTAL,
        ("switchyard", "linux"),
        &sweep,
        Bound::AtLeast(0.9),
    );
    plan.showing([AVERAGE, P99, TOTAL, Metric::ThroughputPerCore].map(Panel::bars))
}
