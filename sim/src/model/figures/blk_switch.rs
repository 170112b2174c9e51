//! blk-switch: L-apps and T-apps on 1 to 16 cores. `[blk-switch §5.2]`

use super::{
    Axis, BLK_SWITCH, Effort, L_AVERAGE, L_P99, L_P999, LINUX, PER_CORE, POLL, Panel, SWITCHYARD,
    Series, System, TOTAL, sweep,
};
use crate::model::{AppSpec, Config, Costs, Link, ModelReport, Topology};

const SYSTEMS: [System; 4] = [LINUX, POLL, BLK_SWITCH, SWITCHYARD];
const PANELS: [Panel; 5] = [L_AVERAGE, L_P99, L_P999, TOTAL, PER_CORE];

/// Cores of each side, unless the figure varies them.
const CORES: usize = 6;

const L_APPS: Axis = Axis::number_of("L-apps");
const L_THREADS: Axis = Axis::number_of("L-threads");
const T_DEPTH: Axis = Axis {
    name: "T-app I/O depth",
    unit: "requests",
};

const CORES_AXIS: Axis = Axis::number_of("cores");

/// Parameters of a run that differ between points.
#[derive(Clone, Copy)]
struct Case {
    cores: usize,
    l_apps: usize,
    t_apps: usize,
    t_bytes: u32,
    t_depth: u32,
    link: Link,
}

impl Case {
    const fn of(system: System, cores: usize, l_apps: usize) -> Self {
        Self {
            cores,
            l_apps,
            t_apps: cores,
            t_bytes: system.t_bytes,
            t_depth: system.t_depth,
            link: Link::GBPS_100,
        }
    }

    fn run(self, system: System, effort: Effort, costs: &Costs) -> ModelReport {
        let topology = Topology::Network {
            host_cores: self.cores,
            target_cores: self.cores,
            link: self.link,
        };
        let apps = vec![
            AppSpec::latency(self.l_apps),
            AppSpec::throughput(self.t_apps, self.t_bytes, self.t_depth),
        ];
        let config = Config::new(topology, system.preset.knobs(), apps);
        effort.run(config, costs)
    }
}

/// Figure 7: 6 cores, 6 T-apps, 1 to 12 L-apps.
#[must_use]
pub fn blk_switch_7(quick: bool, seed: u64, costs: &Costs) -> Vec<Series> {
    let effort = Effort { quick, seed };
    let values = effort.sweep(&[1, 2, 4, 6, 8, 10, 12]);
    sweep(L_APPS, &values, &SYSTEMS, &PANELS, |system, l_apps| {
        Some(Case::of(system, CORES, l_apps).run(system, effort, costs))
    })
}

/// Figure 9: 6 cores, one T-app of 6 threads, one L-app of 1 to 12 threads. The model has threads
/// only, so only the polling system differs from figure 7: it has at most one thread of an
/// application per core.
#[must_use]
pub fn blk_switch_9(quick: bool, seed: u64, costs: &Costs) -> Vec<Series> {
    let effort = Effort { quick, seed };
    let values = effort.sweep(&[1, 2, 4, 6, 8, 10, 12]);
    sweep(L_THREADS, &values, &SYSTEMS, &PANELS, |system, threads| {
        let can = system.name != POLL.name || threads <= CORES;
        can.then(|| Case::of(system, CORES, threads).run(system, effort, costs))
    })
}

/// Figure 10: 6 cores, 6 L-apps, 6 T-apps of 64 KiB at depths 1 to 64.
#[must_use]
pub fn blk_switch_10(quick: bool, seed: u64, costs: &Costs) -> Vec<Series> {
    let effort = Effort { quick, seed };
    let values = effort.sweep(&[1, 2, 4, 8, 16, 32, 64]);
    sweep(T_DEPTH, &values, &SYSTEMS, &PANELS, |system, depth| {
        let mut case = Case::of(system, CORES, CORES);
        case.t_bytes = 65_536;
        case.t_depth = u32::try_from(depth).expect("a depth of the sweep");
        Some(case.run(system, effort, costs))
    })
}

/// Figure 11: 1 to 10 cores, with one L-app and one T-app per core.
#[must_use]
pub fn blk_switch_11(quick: bool, seed: u64, costs: &Costs) -> Vec<Series> {
    let effort = Effort { quick, seed };
    let values = effort.sweep(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    sweep(CORES_AXIS, &values, &SYSTEMS, &PANELS, |system, cores| {
        Some(Case::of(system, cores, cores).run(system, effort, costs))
    })
}

/// Figure 12: 16 cores, 16 L-apps and 16 T-apps over 200 Gbit/s.
#[must_use]
pub fn blk_switch_12(quick: bool, seed: u64, costs: &Costs) -> Vec<Series> {
    let effort = Effort { quick, seed };
    sweep(CORES_AXIS, &[16], &SYSTEMS, &PANELS, |system, cores| {
        let mut case = Case::of(system, cores, cores);
        case.link.bits_per_second *= 2;
        Some(case.run(system, effort, costs))
    })
}
