//! Fig. 13: L-apps on flash, whose latency hides most of the stack's latency.

use super::fig07::{SYSTEMS, T_APPS};
use super::{AVERAGE, P99, TOTAL};
use crate::figure::plan::{Extent, Panel, Plan, claims};
use crate::figure::sample::Metric;
use crate::figure::scenario::{FLASH_READ_US, Layout, LoadProcess, Scenario, Storage, System};
use crate::figure::{Figure, Work};
use switch::Class;

pub(in crate::figure) const FIGURE: Figure = Figure {
    name: "blk-switch-13",
    title: "L-apps on flash with T-apps on memory",
    paper: "blk-switch §5.2, Fig. 13",
    workload: "as Fig. 7, but the L-apps, in a separate process, read from memory behind a delay \
               of 80 µs, the access time of the paper's SSD",
    work: Work::Machine(plan),
};

const _: () = assert!(FLASH_READ_US == 80, "the figure's text says so");

fn plan(extent: Extent) -> Plan {
    let sweep = extent.sweep(&[1, 2, 4, 8], &[1, 4]);
    let mut plan = Plan::sweep("L-apps", "", &sweep, &SYSTEMS, |system, l| {
        on_flash(system, l, T_APPS)
    });
    // The latency that the switch adds to flash is compared with the latency without T-apps.
    let alone = "switchyard, no T-apps";
    for &l in &sweep {
        plan.run(alone, l, on_flash(System::SWITCHYARD, l, 0));
    }
    claims! { plan;
        "average-linux" "the trends of Fig. 7: much lower average latency than Linux":
            AVERAGE, "linux" / "switchyard" >= 3.0, at &sweep;
        "p99-linux" "and a much lower p99":
            P99, "linux" / "switchyard" >= 3.0, at &sweep;
        "overshadowed" "the switch's latency is largely overshadowed by that of the SSD":
            AVERAGE, ("switchyard", sweep[0]) / (alone, sweep[0]) <= 2.0;
        "throughput-linux" "at 5 to 10 % less throughput":
            TOTAL, "switchyard" / "linux" >= 0.9, at &sweep;
    }
    plan.showing([AVERAGE, P99, TOTAL, Metric::ThroughputPerCore].map(Panel::bars))
}

/// The mix of Fig. 7 as two processes, one per storage.
fn on_flash(system: System, l: u32, t: u32) -> Scenario {
    let mixed = Scenario::mix(system, Layout::Shared, l, t);
    let of = |class| -> Vec<_> {
        let apps = mixed.apps().copied();
        apps.filter(|app| app.class == class).collect()
    };
    let flash = LoadProcess {
        storage: Storage::Flash,
        ..LoadProcess::of(of(Class::Latency))
    };
    let memory = LoadProcess::of(of(Class::Throughput));
    let processes = [flash, memory].into_iter();
    Scenario {
        processes: processes
            .filter(|process| !process.apps.is_empty())
            .collect(),
        ..mixed
    }
}
