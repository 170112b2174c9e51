//! i10: 4 KiB requests on up to 24 cores and to up to 48 targets. `[i10 §4.2]`

use super::{Axis, Effort, LINUX, Panel, SWITCHYARD, Series, System, sweep};
use crate::model::{AppSpec, Config, Costs, Link, Topology};
use switch::knobs::Preset;

/// Enough outstanding requests for full caravans on every core.
const DEPTH: u32 = 128;
const BYTES: u32 = 4096;

/// Cores of each side, unless the figure varies them.
const CORES: usize = 24;

const NVME_TCP: System = System {
    name: "nvme-tcp",
    preset: Preset::NvmeTcp,
    ..LINUX
};

/// i10, which the blk-switch paper compares with as Linux.
const I10: System = System {
    name: "i10",
    ..LINUX
};

const SYSTEMS: [System; 3] = [NVME_TCP, I10, SWITCHYARD];

const READS: Panel = Panel {
    name: "random read",
    unit: "K/s",
    value: |report| report.throughput.iops / 1e3,
};

const WRITES: Panel = Panel {
    name: "random write",
    ..READS
};

/// Figure 7 (c) and (d): 1 to 24 cores with one application each, a RAM device.
#[must_use]
pub fn i10_7(quick: bool, seed: u64, costs: &Costs) -> Vec<Series> {
    let effort = Effort { quick, seed };
    let x = Axis::number_of("cores");
    let values = effort.sweep(&[1, 2, 4, 8, 12, 16, 20, 24]);
    let mut all = Vec::new();
    for (panel, write_permille) in [(READS, 0), (WRITES, 1_000)] {
        all.extend(sweep(x, &values, &SYSTEMS, &[panel], |system, cores| {
            let mut apps = AppSpec::throughput(cores, BYTES, DEPTH);
            apps.write_permille = write_permille;
            let config = Config::new(machines(cores), system.preset.knobs(), vec![apps]);
            Some(effort.run(config, costs))
        }));
    }
    all
}

/// Figure 9: 24 cores, 1 to 48 targets with one application each, on the cores in turn.
#[must_use]
pub fn i10_9(quick: bool, seed: u64, costs: &Costs) -> Vec<Series> {
    let effort = Effort { quick, seed };
    let x = Axis::number_of("targets");
    let values = effort.sweep(&[1, 8, 16, 24, 36, 48]);
    sweep(x, &values, &SYSTEMS, &[READS], |system, targets| {
        let apps = vec![AppSpec::throughput(targets, BYTES, DEPTH)];
        let mut config = Config::new(machines(CORES), system.preset.knobs(), apps);
        config.targets = targets;
        Some(effort.run(config, costs))
    })
}

const fn machines(cores: usize) -> Topology {
    Topology::Network {
        host_cores: cores,
        target_cores: cores,
        link: Link::GBPS_100,
    }
}
