//! Fig. 4: larger requests use the device and its channel better. `[Yu §3.2]`

use super::{BARE, SYNC, THROUGHPUT, of_apps};
use crate::figure::plan::{Axis, Extent, Panel, Plan, claims};
use crate::figure::scenario::Workload;
use crate::figure::{Figure, Work};
use switch::Class;

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-4",
    title: "Throughput by the size of a request",
    paper: "Yu §3.2, Fig. 4",
    workload: "1 thread, random reads at depth 1 of the emulated device",
    work: Work::Machine(plan),
};

const SERIES: &str = "sync";

fn plan(extent: Extent) -> Plan {
    let sizes = extent.sweep(&[4, 8, 16, 32, 64, 128], &[4, 128]);
    let mut plan = Plan::over(Axis::new("request", "KiB", &sizes));
    for &kib in &sizes {
        let app = Workload {
            class: Class::Throughput,
            bytes: kib << 10,
            ..Workload::latency(1)
        };
        plan.run(SERIES, kib, of_apps(SYNC, BARE, vec![app]));
    }
    claims! { plan;
        "128k"
            "128 KiB in 177 µs against 4 KiB in 7: 1.27 times the throughput, and what software took":
            THROUGHPUT, (SERIES, 128) / (SERIES, 4) in 1.1..=1.6;
    }
    plan.showing([Panel::lines(THROUGHPUT)])
}
