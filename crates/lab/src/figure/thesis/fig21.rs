//! Fig. 21: merging on slower devices. `[Yu §6.6]`

use super::{STM, SYNC, THROUGHPUT, in_virtual_time, threads};
use crate::figure::plan::{Extent, Panel, Plan, claims};
use crate::figure::scenario::Storage;
use crate::figure::{Figure, Work};

/// (a): a fixed delay for each command.
pub(in crate::figure) const COMMAND: Figure = Figure {
    name: "thesis-21a",
    title: "Delay for each command",
    paper: "Yu §6.6, Fig. 21(a)",
    workload: "32 threads, 4 KiB random reads at depth 1 of the emulated device, slower by F for \
               each command",
    work: Work::Machine(by_command),
};

/// (b): a delay for each page.
pub(in crate::figure) const PAGE: Figure = Figure {
    name: "thesis-21b",
    title: "Delay for each page",
    paper: "Yu §6.6, Fig. 21(b)",
    workload: "32 threads, 4 KiB random reads at depth 1 of the emulated device with 5 µs of \
               software for each command, slower by C for each 4 KiB",
    work: Work::Machine(by_page),
};

/// (a) with eight processors.
pub(in crate::figure) const COMMAND_SIMULATED: Figure = in_virtual_time(
    COMMAND,
    "sim-thesis-21a",
    "Delay for each command (simulated, costs of the thesis' table 6)",
    "32 threads on 8 processors in virtual time, 4 KiB random reads at depth 1 of the emulated \
     device, slower by F for each command",
);

/// (b) with eight processors.
pub(in crate::figure) const PAGE_SIMULATED: Figure = in_virtual_time(
    PAGE,
    "sim-thesis-21b",
    "Delay for each page (simulated, costs of the thesis' table 6)",
    "32 threads on 8 processors in virtual time, 4 KiB random reads at depth 1 of the emulated \
     device with 5 µs of software for each command, slower by C for each 4 KiB",
);

const THREADS: u32 = 32;

fn by_command(extent: Extent) -> Plan {
    let delays = extent.sweep(&[0, 5, 25, 100, 500], &[0, 500]);
    let systems = [SYNC, STM];
    let mut plan = Plan::sweep("F", "µs", &delays, &systems, |system, command_us| {
        let storage = Storage::DramSsd {
            command_us,
            page_us: 0,
        };
        threads(system, storage, THREADS, 100)
    });
    claims! { plan;
        "gain" "at 500 µs STM has 11.1 times the throughput of the synchronous path":
            THROUGHPUT, (STM.name) / (SYNC.name) in 7.4..=16.7, at [500];
        "kept" "and keeps 16 % of what it has without a delay":
            THROUGHPUT, (STM.name, 500) / (STM.name, 0) in 0.107..=0.24;
    }
    plan.showing([Panel::lines(THROUGHPUT).logarithmic()])
}

fn by_page(extent: Extent) -> Plan {
    let delays = extent.sweep(&[0, 5, 10, 15, 20, 25, 30], &[0, 20, 25, 30]);
    let systems = [SYNC, STM];
    let mut plan = Plan::sweep("C", "µs", &delays, &systems, |system, page_us| {
        let storage = Storage::DramSsd {
            command_us: 5,
            page_us,
        };
        threads(system, storage, THREADS, 100)
    });
    claims! { plan;
        "fast" "without a delay merging gains 1.94 times":
            THROUGHPUT, (STM.name) / (SYNC.name) in 1.3..=2.9, at [0];
        "break-even" "at 25 µs for each 4 KiB merging gains nothing any more":
            THROUGHPUT, (STM.name) / (SYNC.name) in 0.8..=1.35, at [25];
        "gain-at-20" "(ours) it turns from gain to loss between 20 and 30 µs":
            THROUGHPUT, (STM.name) / (SYNC.name) in 1.0..=1.55, at [20];
        "loss-at-30" "(ours) it turns from gain to loss between 20 and 30 µs":
            THROUGHPUT, (STM.name) / (SYNC.name) in 0.67..=1.0, at [30];
    }
    plan.showing([Panel::lines(THROUGHPUT)])
}
