//! Fig. 3: the causes. (a) Head-of-line blocking grows with the T-app's request size; (b) the
//! scheduler's time slices determine the wait of pollers; (c, d) a poller with priority starves
//! other threads, and the remedies cost latency.

use super::{AVERAGE, P99, THROUGHPUT};
use crate::figure::plan::{Axis, Extent, Panel, Plan, claims};
use crate::figure::sample::Metric;
use crate::figure::scenario::{LOAD_CORE, Layout, LoadProcess, Scenario, System, Workload};
use crate::figure::{Figure, Work};

/// (a) Request size of the T-app, in Linux.
pub(in crate::figure) const SIZE: Figure = Figure {
    name: "blk-switch-3a",
    title: "Head-of-line blocking grows with the T-app's request size",
    paper: "blk-switch §2.2, Fig. 3(a)",
    workload: "linux: 1 L-app (4 KiB, depth 1) and 1 T-app (depth 32) on one core, the target on \
               the other",
    work: Work::Machine(size),
};

fn size(extent: Extent) -> Plan {
    let sweep = extent.sweep(&[16, 32, 64, 128], &[16, 128]);
    let (first, last) = (sweep[0], sweep[sweep.len() - 1]);
    let mut plan = Plan::over(Axis::new("Request of the T-app", "KiB", &sweep));
    for kib in sweep {
        let system = System {
            t_bytes: kib << 10,
            ..System::LINUX
        };
        plan.run("linux", kib, Scenario::mix(system, Layout::Split, 1, 1));
    }
    claims! { plan;
        "grows" "the latency of L-apps grows linearly with the size of the T-app's requests":
            P99, ("linux", last) / ("linux", first) >= 2.0;
    }
    plan.showing([AVERAGE, P99, THROUGHPUT].map(Panel::bars))
}

/// (b) Time slices of polling L-apps.
pub(in crate::figure) const SLICES: Figure = Figure {
    name: "blk-switch-3b",
    title: "A polling L-app waits for the time slices of all other threads",
    paper: "blk-switch §2.2, Fig. 3(b)",
    workload: "poll: L-apps (4 KiB, depth 1) and 1 T-app (128 KiB × 8) on one core, each a \
               process; slices and waits as the kernel's scheduler counts them",
    work: Work::Machine(slices),
};

fn slices(extent: Extent) -> Plan {
    let sweep = extent.sweep(&[1, 2, 4], &[1, 4]);
    let last = sweep[sweep.len() - 1];
    let mut plan = Plan::over(Axis::new("L-apps", "", &sweep));
    for l in sweep {
        let scenario = Scenario::mix(System::POLL, Layout::Split, l, 1).in_processes();
        plan.run("poll", l, scenario);
    }
    claims! { plan;
        "waits-longer" "the more L-apps, the longer the time between the slices of each":
            Metric::SliceWait, ("poll", last) / ("poll", 1) >= 1.5;
        "runs-shorter" "the more L-apps, the shorter the slices":
            Metric::SliceRun, ("poll", last) / ("poll", 1) <= 1.0;
    }
    plan.showing([Metric::SliceRun, Metric::SliceWait].map(Panel::bars))
}

/// (c) Request rate of the L-app that polls with priority.
pub(in crate::figure) const PACE: Figure = Figure {
    name: "blk-switch-3c",
    title: "A polling L-app with priority leaves throughput to the T-app only while it sleeps",
    paper: "blk-switch §2.2, Fig. 3(c)",
    workload: "poll-priority: 1 L-app (4 KiB at a fixed rate, latency from the intended start) \
               and 1 T-app (128 KiB × 8) on one core, the target on the other",
    work: Work::Machine(pace),
};

fn pace(extent: Extent) -> Plan {
    let sweep = extent.sweep(&[100, 200, 500, 1000], &[100, 1000]);
    let (first, last) = (sweep[0], sweep[sweep.len() - 1]);
    let system = System::POLL_PRIORITY;
    let mut plan = Plan::over(Axis::new(
        "Interval between requests of the L-app",
        "µs",
        &sweep,
    ));
    for micros in sweep {
        let paced = Workload {
            rate: Some(1_000_000 / u64::from(micros)),
            ..Workload::latency(1)
        };
        let apps = [paced, Workload::throughput(1, &system)];
        plan.run(
            system.name,
            micros,
            Scenario::of(system, Layout::Split, &apps),
        );
    }
    claims! { plan;
        "more-throughput" "the longer the L-app sleeps, the more throughput the T-app gets":
            THROUGHPUT, (system.name, first) / (system.name, last) <= 0.67;
        "more-latency" "and the longer the tail of the L-app's latency":
            P99, (system.name, last) / (system.name, first) >= 1.0;
    }
    plan.showing([P99, THROUGHPUT].map(Panel::bars))
}

/// (d) The niceness of a polling L-app.
pub(in crate::figure) const NICENESS: Figure = Figure {
    name: "blk-switch-3d",
    title: "Niceness trades the T-app's throughput for the L-app's latency",
    paper: "blk-switch §2.2, Fig. 3(d)",
    workload: "poll: 1 L-app (4 KiB, depth 1) of each niceness and 1 T-app (128 KiB × 8) of \
               niceness 0 on one core, each a process; the target on the other",
    work: Work::Machine(niceness),
};

fn niceness(extent: Extent) -> Plan {
    let sweep: &[i32] = match extent {
        Extent::Full => &[-20, -15, -10, -5, 0],
        Extent::Quick => &[-20, 0],
    };
    let system = System::POLL;
    let mut plan = Plan::over(Axis::new("Niceness of the L-app", "", sweep));
    for &nice in sweep {
        let process = |app: Workload, nice| LoadProcess {
            nice,
            ..LoadProcess::of(vec![app.on(LOAD_CORE)])
        };
        let scenario = Scenario {
            system,
            layout: Layout::Split,
            processes: vec![
                process(Workload::latency(1), nice),
                process(Workload::throughput(1, &system), 0),
            ],
        };
        plan.run(system.name, nice, scenario);
    }
    claims! { plan;
        "throughput" "with less priority for the L-app, the T-app's throughput rises":
            THROUGHPUT, (system.name, -20) / (system.name, 0) <= 0.5;
        "latency" "and the L-app's average latency with it":
            AVERAGE, (system.name, 0) / (system.name, -20) >= 1.2;
    }
    plan.showing([AVERAGE, P99, THROUGHPUT].map(Panel::bars))
}
