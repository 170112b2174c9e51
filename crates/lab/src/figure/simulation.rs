//! Simulated figures: by the performance model, or by emulated devices in virtual time.
//!
//! A simulation returns plain numbers, which become a report like that of a measured figure, with
//! the paper's claims. A repetition is a seed. Whiskers show the spread over seeds, not the
//! accuracy of the model.

use super::measure::{Effort, measure};
use super::paths::Simulator;
use super::plan::{Axis, Cell, Extent, Panel, Plan, cell};
use super::report::FigureReport;
use super::sample::{Metric, Statistic};
use super::{Figure, Work};
use anyhow::{Result, ensure};
use sim::model::Costs;
use sim::model::figures::{self, Series};
use std::time::Duration;
use switch::Class;

/// Simulated time of a point, the same as in the simulator's figures.
pub(super) const MEASURED: Duration = Duration::from_secs(1);
pub(super) const MEASURED_QUICK: Duration = Duration::from_millis(60);

/// Panels of simulations in addition to those of the model: the 95th percentile of reads, and each
/// tenant's served requests and tokens.
pub(super) const READ_TAIL: &str = "p95 latency of reads";
/// See [`READ_TAIL`].
pub(super) const REQUESTS: &str = "requests of each tenant";
/// See [`READ_TAIL`].
pub(super) const TOKENS: &str = "tokens of each tenant";

/// A line of one of these panels.
pub(super) fn line(
    panel: &'static str,
    x: figures::Axis,
    system: &'static str,
    points: Vec<figures::Point>,
) -> Series {
    let unit = shows(panel).map_or("", Metric::unit);
    let y = figures::Axis { name: panel, unit };
    Series {
        panel,
        x,
        y,
        system,
        points,
    }
}

/// Lines, extended point by point.
#[derive(Debug)]
pub(super) struct Lines {
    x: figures::Axis,
    lines: Vec<Series>,
}

impl Lines {
    /// No lines yet; `name` is the varied quantity.
    pub(super) const fn over(name: &'static str) -> Self {
        Self {
            x: figures::Axis { name, unit: "" },
            lines: Vec::new(),
        }
    }

    /// Adds a point, and its line if it is new.
    pub(super) fn add(&mut self, panel: &'static str, system: &'static str, x: u32, y: f64) {
        let point = figures::Point { x: x.into(), y };
        let there = |line: &&mut Series| line.panel == panel && line.system == system;
        match self.lines.iter_mut().find(there) {
            Some(line) => line.points.push(point),
            None => self.lines.push(line(panel, self.x, system, vec![point])),
        }
    }

    /// Returns the lines in the order of their first points.
    pub(super) fn finish(self) -> Vec<Series> {
        self.lines
    }
}

/// Source of a simulated figure's numbers.
#[derive(Clone, Copy, Debug)]
pub struct Simulation {
    /// Simulates all points once, quick or full, with a seed.
    pub simulate: fn(bool, u64, &Costs) -> Vec<Series>,
    /// The one simulated panel that the figure shows; empty for all panels.
    pub only: &'static str,
    /// Panels.
    pub panels: &'static [Panel],
    /// Names of the ticks, from 1 on; empty for numbers.
    pub names: &'static [&'static str],
    /// Adds the claims to the plan of the simulated points.
    pub claims: fn(&mut Plan),
}

impl Simulation {
    /// A figure with all simulated panels.
    pub(super) const fn of(
        simulate: fn(bool, u64, &Costs) -> Vec<Series>,
        panels: &'static [Panel],
        claims: fn(&mut Plan),
    ) -> Work {
        Self::panel("", simulate, panels, claims)
    }

    /// A figure with one of the simulated panels.
    pub(super) const fn panel(
        only: &'static str,
        simulate: fn(bool, u64, &Costs) -> Vec<Series>,
        panels: &'static [Panel],
        claims: fn(&mut Plan),
    ) -> Work {
        Work::Simulated(Self {
            simulate,
            only,
            panels,
            names: &[],
            claims,
        })
    }

    /// A figure with all simulated panels, over named ticks.
    pub(super) const fn over(
        names: &'static [&'static str],
        simulate: fn(bool, u64, &Costs) -> Vec<Series>,
        panels: &'static [Panel],
        claims: fn(&mut Plan),
    ) -> Work {
        Work::Simulated(Self {
            simulate,
            only: "",
            panels,
            names,
            claims,
        })
    }

    /// Returns the name of a tick.
    fn tick(&self, x: f64) -> String {
        let mut places = (1_u32..).map(f64::from).zip(self.names);
        let name = places.find(|(place, _)| *place == x);
        name.map_or_else(|| x.to_string(), |(_, name)| (*name).to_owned())
    }
}

/// Simulates a figure once per repetition, and judges it.
///
/// # Errors
/// A figure that is measured on the machine; a claim about a cell that was not simulated.
pub fn simulate(
    figure: &Figure,
    extent: Extent,
    effort: &Effort,
    costs: &Costs,
    progress: &mut dyn FnMut(usize),
) -> Result<FigureReport> {
    ensure!(effort.runs > 0, "choose at least 1 run");
    let effort = &Effort {
        measured: if extent == Extent::Quick {
            MEASURED_QUICK
        } else {
            MEASURED
        },
        ..*effort
    };
    let simulation = match figure.work {
        Work::Simulated(simulation) => simulation,
        Work::Paths(plan, machine) => {
            let simulator = Simulator(machine(costs));
            return run_paths(figure, &plan(extent), extent, effort, simulator, progress);
        }
        Work::Machine(_) => anyhow::bail!("{} is measured, not simulated", figure.name),
    };
    let mut runs = Vec::with_capacity(effort.runs);
    for run in 0..effort.runs {
        progress(run);
        let seed = effort.seed.wrapping_add(run as u64);
        let mut series = (simulation.simulate)(extent == Extent::Quick, seed, costs);
        series.retain(|series| simulation.only.is_empty() || series.panel == simulation.only);
        runs.push(series);
    }
    let (mut plan, cells) = shape(&runs[0], &simulation);
    (simulation.claims)(&mut plan);
    let numbers = |cell: &Cell, metric| {
        let of = |run: &Vec<Series>| number(run, &simulation, cell, metric);
        runs.iter().map(of).collect()
    };
    FigureReport::of(figure, &plan, &cells, extent, effort, numbers)
}

/// Runs the plan of a figure of I/O paths.
fn run_paths(
    figure: &Figure,
    plan: &Plan,
    extent: Extent,
    effort: &Effort,
    mut simulator: Simulator,
    progress: &mut dyn FnMut(usize),
) -> Result<FigureReport> {
    let points = plan.points.len();
    let measured = measure(plan, effort, &mut simulator, &mut |at| {
        if at.done.is_multiple_of(points) {
            progress(at.done / points);
        }
    })?;
    let numbers = |cell: &Cell, metric| measured.numbers(plan, cell, metric);
    FigureReport::of(figure, plan, &plan.cells(), extent, effort, numbers)
}

/// Returns the plan (axis, series) and the cells of the simulated points.
fn shape(run: &[Series], simulation: &Simulation) -> (Plan, Vec<Cell>) {
    let mut ticks: Vec<f64> = Vec::new();
    for point in run.iter().flat_map(|series| &series.points) {
        if !ticks.contains(&point.x) {
            ticks.push(point.x);
        }
    }
    ticks.sort_by(f64::total_cmp);
    let (label, unit) = run
        .first()
        .map_or(("", ""), |line| (line.x.name, line.x.unit));
    let names = ticks.iter().map(|&tick| simulation.tick(tick));
    let mut plan =
        Plan::over(Axis::new(label, unit, names)).showing(simulation.panels.iter().copied());
    for series in run {
        if !plan.series.contains(&series.system) {
            plan.series.push(series.system);
        }
    }
    let mut cells = Vec::new();
    for &tick in &ticks {
        for &system in &plan.series {
            let there = |series: &Series| {
                series.system == system && series.points.iter().any(|point| point.x == tick)
            };
            if run.iter().any(there) {
                cells.push(cell(system, simulation.tick(tick)));
            }
        }
    }
    (plan, cells)
}

/// Returns the number of one simulation at a cell.
fn number(run: &[Series], simulation: &Simulation, cell: &Cell, metric: Metric) -> Option<f64> {
    let mut lines = run.iter();
    let line =
        lines.find(|line| line.system == cell.series && shows(line.panel) == Some(metric))?;
    let mut points = line.points.iter();
    let point = points.find(|point| simulation.tick(point.x) == cell.tick)?;
    Some(point.y)
}

/// Returns the metric of a simulator's panel; both use the same units.
fn shows(panel: &str) -> Option<Metric> {
    match panel {
        "average latency of L" => Some(Metric::Latency(Class::Latency, Statistic::Average)),
        "p99 latency of L" => Some(Metric::Latency(Class::Latency, Statistic::P99)),
        "p99.9 latency of L" => Some(Metric::Latency(Class::Latency, Statistic::P999)),
        "total throughput" => Some(Metric::Throughput(None)),
        "throughput per core" => Some(Metric::ThroughputPerCore),
        "random read" | "random write" => Some(Metric::Requests),
        READ_TAIL => Some(Metric::ReadTail),
        REQUESTS => Some(Metric::Requests),
        TOKENS => Some(Metric::Tokens),
        _ => None,
    }
}
