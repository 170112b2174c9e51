//! Fig. 4: larger requests use the device and its channel more efficiently. `[Yu §3.2]`

use super::{BARE, SETTING, SYNC, THROUGHPUT, of_apps};
use crate::figure::plan::{Axis, Extent, Panel, Plan, claims};
use crate::figure::scenario::{Storage, Workload};
use crate::figure::{Figure, Work};
use sim::paths::Machine;
use switch::Class;

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "thesis-4",
    title: "Throughput by the size of a request",
    paper: "Yu §3.2, Fig. 4",
    workload: "1 thread, random reads at depth 1 of the emulated device",
    work: Work::Machine(plan),
};

/// The same with the thesis' costs in virtual time, with and without its 5 µs of software per
/// command of this path.
pub(in crate::figure) const SIMULATED: Figure = Figure {
    name: "sim-thesis-4",
    title: "Throughput by the size of a request (simulated, costs of the thesis' table 6)",
    workload: "1 thread in virtual time, random reads at depth 1 of the emulated device, alone and \
               with 5 µs of software for each command",
    work: Work::Paths(simulated, Machine::of_thesis),
    ..FIGURE
};

const SERIES: &str = "sync";

/// With the software of [`SETTING`].
const WITH_SOFTWARE: &str = "sync, with 5 µs of software";

fn plan(extent: Extent) -> Plan {
    sizes(extent, &[(SERIES, BARE)])
}

fn simulated(extent: Extent) -> Plan {
    let mut plan = sizes(extent, &[(SERIES, BARE), (WITH_SOFTWARE, SETTING)]);
    claims! { plan;
        "128k-software" "with the 5 µs of table 6, 182 µs against 12: 2.11 times":
            THROUGHPUT, (WITH_SOFTWARE, 128) / (WITH_SOFTWARE, 4) in 1.41..=3.16;
    }
    plan
}

fn sizes(extent: Extent, lines: &[(&'static str, Storage)]) -> Plan {
    let sizes = extent.sweep(&[4, 8, 16, 32, 64, 128], &[4, 128]);
    let mut plan = Plan::over(Axis::new("request", "KiB", &sizes));
    for &kib in &sizes {
        let app = Workload {
            class: Class::Throughput,
            bytes: kib << 10,
            ..Workload::latency(1)
        };
        for &(series, storage) in lines {
            plan.run(series, kib, of_apps(SYNC, storage, vec![app]));
        }
    }
    claims! { plan;
        "128k"
            "128 KiB in 177 µs against 4 KiB in 7: 1.27 times the throughput, and what software took":
            THROUGHPUT, (SERIES, 128) / (SERIES, 4) in 1.1..=1.6;
    }
    plan.showing([Panel::lines(THROUGHPUT)])
}
