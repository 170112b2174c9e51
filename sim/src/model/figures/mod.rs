//! The papers' figures that need more cores than the machine has, with the runs of each.
//!
//! Plain data, one [`Series`] for each line or group of bars of each panel; the caller draws. Every
//! system is a preset of the production knobs, with the T-apps at that system's knee. `[blk-switch
//! §5.1]`

mod blk_switch;
mod i10;

pub use blk_switch::{blk_switch_7, blk_switch_9, blk_switch_10, blk_switch_11, blk_switch_12};
pub use i10::{i10_7, i10_9};

use super::{Config, Costs, ModelReport, simulate};
use base::Nanos;
use serde::Serialize;
use switch::knobs::{Ablation, Preset};

/// Data of one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Panel: lines with the same panel belong together.
    pub panel: &'static str,
    /// The varied quantity.
    pub x: Axis,
    /// The simulated quantity.
    pub y: Axis,
    /// Name of the preset.
    pub system: &'static str,
    /// Points in the order of `x`.
    pub points: Vec<Point>,
}

/// A quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Axis {
    /// Name.
    pub name: &'static str,
    /// Unit; empty for a count.
    pub unit: &'static str,
}

impl Axis {
    /// A count.
    const fn number_of(name: &'static str) -> Self {
        Self { name, unit: "" }
    }
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Value of the varied quantity.
    pub x: f64,
    /// Simulated value.
    pub y: f64,
}

/// A compared system: its name, its knobs, and the knee of its T-apps.
#[derive(Clone, Copy, Debug)]
struct System {
    name: &'static str,
    preset: Preset,
    t_bytes: u32,
    t_depth: u32,
}

const LINUX: System = System {
    name: "linux",
    preset: Preset::Linux,
    t_bytes: 65_536,
    t_depth: 32,
};

const POLL: System = System {
    name: "poll",
    preset: Preset::Poll,
    t_bytes: 131_072,
    t_depth: 8,
};

const BLK_SWITCH: System = System {
    name: "blk-switch",
    preset: Preset::Ablation(Ablation::ApplicationSteering),
    t_bytes: 65_536,
    t_depth: 16,
};

const SWITCHYARD: System = System {
    name: "switchyard",
    preset: Preset::Switchyard,
    ..BLK_SWITCH
};

/// A value of a report, and its presentation in a panel.
#[derive(Clone, Copy, Debug)]
struct Panel {
    name: &'static str,
    unit: &'static str,
    value: fn(&ModelReport) -> f64,
}

const L_AVERAGE: Panel = Panel {
    name: "average latency of L",
    unit: "µs",
    value: |report| report.latency.latency_us.avg,
};

const L_P99: Panel = Panel {
    name: "p99 latency of L",
    unit: "µs",
    value: |report| report.latency.latency_us.p99,
};

const L_P999: Panel = Panel {
    name: "p99.9 latency of L",
    unit: "µs",
    value: |report| report.latency.latency_us.p999,
};

const TOTAL: Panel = Panel {
    name: "total throughput",
    unit: "Gbit/s",
    value: |report| report.bytes_per_second * 8e-9,
};

const PER_CORE: Panel = Panel {
    name: "throughput per core",
    unit: "Gbit/s",
    value: |report| report.bytes_per_second_per_core * 8e-9,
};

/// Duration of a figure's runs, and their seed.
#[derive(Clone, Copy, Debug)]
struct Effort {
    quick: bool,
    seed: u64,
}

impl Effort {
    /// All values of a sweep, or in a quick run every third and the last.
    fn sweep(self, all: &[usize]) -> Vec<usize> {
        let last = all.len().saturating_sub(1);
        all.iter()
            .enumerate()
            .filter(|(place, _)| !self.quick || place % 3 == 0 || *place == last)
            .map(|(_, value)| *value)
            .collect()
    }

    /// Runs a configuration for the duration of this effort.
    fn run(self, mut config: Config, costs: &Costs) -> ModelReport {
        config.seed = self.seed;
        config.warmup = Nanos::from_millis(if self.quick { 30 } else { 200 });
        config.measured = Nanos::from_millis(if self.quick { 60 } else { 1_000 });
        simulate(&config, costs).expect("a figure's configuration is valid")
    }
}

/// Runs each system at each value of the sweep, and takes every panel's number from the report.
///
/// `config` returns `None` if a system does not support a value.
fn sweep(
    x: Axis,
    values: &[usize],
    systems: &[System],
    panels: &[Panel],
    mut report: impl FnMut(System, usize) -> Option<ModelReport>,
) -> Vec<Series> {
    let mut all = Vec::new();
    for &system in systems {
        let first = all.len();
        for panel in panels {
            all.push(Series {
                panel: panel.name,
                x,
                y: Axis {
                    name: panel.name,
                    unit: panel.unit,
                },
                system: system.name,
                points: Vec::new(),
            });
        }
        for &value in values {
            let Some(report) = report(system, value) else {
                continue;
            };
            for (series, panel) in all[first..].iter_mut().zip(panels) {
                series.points.push(Point {
                    x: value as f64,
                    y: (panel.value)(&report),
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(series: &[Series], panel: Panel, system: System, x: f64) -> f64 {
        let line = series
            .iter()
            .find(|line| line.panel == panel.name && line.system == system.name);
        let point = line.and_then(|line| line.points.iter().find(|point| point.x == x));
        point.expect("it was simulated").y
    }

    #[test]
    fn six_cores_show_the_shape_of_the_paper() {
        let series = blk_switch_7(true, 1, &Costs::shipped());
        for x in [1.0, 12.0] {
            let ours = at(&series, L_P99, SWITCHYARD, x);
            assert!(at(&series, L_P99, LINUX, x) > 2.0 * ours, "{x} L-apps");
            let total = at(&series, TOTAL, SWITCHYARD, x);
            assert!(total > 0.6 * at(&series, TOTAL, LINUX, x), "{x} L-apps");
        }
    }

    #[test]
    fn caravans_multiply_what_24_cores_do_until_the_link_is_full() {
        let series = i10_9(true, 1, &Costs::shipped());
        let of = |system: &str, x: f64| {
            let line = series.iter().find(|line| line.system == system);
            let point = line.and_then(|line| line.points.iter().find(|point| point.x == x));
            point.expect("it was simulated").y
        };
        assert!(of("i10", 1.0) > 1.5 * of("nvme-tcp", 1.0));
        // 100 Gbit/s are 3 million answers of 4 KiB per second.
        assert!(of("i10", 48.0) < 3_050.0, "more than the link carries");
    }

    #[test]
    fn the_same_seed_draws_the_same_figure() {
        let costs = Costs::shipped();
        assert_eq!(
            blk_switch_12(true, 5, &costs),
            blk_switch_12(true, 5, &costs)
        );
    }

    #[test]
    fn a_polling_load_has_no_more_threads_than_cores() {
        let series = blk_switch_9(true, 1, &Costs::shipped());
        let polling = series.iter().filter(|line| line.system == POLL.name);
        for line in polling {
            assert!(line.points.iter().all(|point| point.x <= 6.0));
        }
    }
}
