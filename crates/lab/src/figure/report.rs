//! Results of a figure, as JSON, as CSV, and as a table.

use super::claim::{self, Verdict, short};
use super::measure::Effort;
use super::plan::{Axis, Cell, Extent, Panel, Plan};
use super::quiet::Disturbances;
use super::sample::Metric;
use super::{Figure, Work};
use anyhow::Result;
use load::{Machine, RunSummary, aligned};
use serde::Serialize;
use std::fmt;

/// The results of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct FigureReport {
    /// The figure's name.
    pub figure: &'static str,
    /// Title.
    pub title: &'static str,
    /// Place in the paper.
    pub paper: &'static str,
    /// Workload.
    pub workload: &'static str,
    /// Only a part of the sweep was run.
    pub quick: bool,
    /// Repetitions.
    pub runs: usize,
    /// Measured time of each run.
    pub seconds: f64,
    /// Seed of the order of requests.
    pub seed: u64,
    /// The varied quantity.
    pub x: Axis,
    /// Names of the series.
    pub series: Vec<&'static str>,
    /// Values of each cell.
    pub points: Vec<PointReport>,
    /// Verdicts on the claims.
    pub claims: Vec<Verdict>,
    /// The numbers come from a model, not from a machine.
    pub simulated: bool,
    /// Disturbances of runs on a machine.
    pub disturbances: Option<Disturbances>,
    /// Omitted series, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Machine on which it was measured or simulated.
    pub machine: Machine,
    /// The diagrams.
    #[serde(skip)]
    pub panels: Vec<Panel>,
}

/// Numbers of a series at a tick.
#[derive(Clone, Debug, Serialize)]
pub struct PointReport {
    /// The series.
    pub series: &'static str,
    /// The tick.
    pub x: String,
    /// Each metric that could be measured there.
    pub values: Vec<Value>,
}

/// A metric's value, summarised over the repetitions.
#[derive(Clone, Debug, Serialize)]
pub struct Value {
    /// The metric.
    #[serde(serialize_with = "key")]
    pub metric: Metric,
    /// Its unit.
    pub unit: &'static str,
    /// Median, minimum, maximum.
    #[serde(flatten)]
    pub spread: RunSummary,
    /// The value of each repetition.
    pub runs: Vec<f64>,
}

fn key<S: serde::Serializer>(metric: &Metric, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(metric.key())
}

impl FigureReport {
    /// Summarises the measurements of `plan`, and judges its claims.
    ///
    /// # Errors
    /// A claim about a cell that was not measured.
    pub fn of(
        figure: &Figure,
        plan: &Plan,
        cells: &[Cell],
        extent: Extent,
        effort: &Effort,
        numbers: impl Fn(&Cell, Metric) -> Option<Vec<f64>>,
    ) -> Result<Self> {
        let metrics = plan.metrics();
        let points = cells.iter().map(|cell| {
            let values = metrics.iter().filter_map(|&metric| {
                let runs = numbers(cell, metric)?;
                Some(Value {
                    metric,
                    unit: metric.unit(),
                    spread: RunSummary::of(&runs)?,
                    runs,
                })
            });
            PointReport {
                series: cell.series,
                x: cell.tick.clone(),
                values: values.collect(),
            }
        });
        let claims = plan.claims.iter().map(|claim| claim.judge(&numbers));
        Ok(Self {
            figure: figure.name,
            title: figure.title,
            paper: figure.paper,
            workload: figure.workload,
            quick: extent == Extent::Quick,
            runs: effort.runs,
            seconds: effort.measured.as_secs_f64(),
            seed: effort.seed,
            x: plan.x.clone(),
            series: plan.series.clone(),
            points: points.collect(),
            claims: claims.collect::<Result<_>>()?,
            simulated: !matches!(figure.work, Work::Machine(_)),
            disturbances: None,
            left_out: Vec::new(),
            machine: Machine::look(),
            panels: plan.panels.clone(),
        })
    }

    /// Returns true if every claim holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }

    /// Median, minimum and maximum of a metric at a cell.
    #[must_use]
    pub fn at(&self, series: &str, tick: &str, metric: Metric) -> Option<RunSummary> {
        let here = |point: &&PointReport| point.series == series && point.x == tick;
        let values = &self.points.iter().find(here)?.values;
        let value = values.iter().find(|value| value.metric == metric)?;
        Some(value.spread)
    }

    /// Returns one line per number: figure, series, tick, metric, unit, median, minimum, maximum,
    /// repetitions. No field needs quotes.
    #[must_use]
    pub fn csv(&self) -> String {
        use fmt::Write as _;
        let mut text = "figure,series,x,metric,unit,median,min,max,runs\n".to_owned();
        for point in &self.points {
            for Value {
                metric,
                unit,
                spread: RunSummary { median, min, max },
                runs,
            } in &point.values
            {
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{},{},{},{},{unit},{median},{min},{max},{}",
                    self.figure,
                    point.series,
                    point.x,
                    metric.key(),
                    runs.len()
                );
            }
        }
        text
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = Vec::new();
        for value in self.points.iter().flat_map(|point| &point.values) {
            if !metrics.contains(&value.metric) {
                metrics.push(value.metric);
            }
        }
        metrics
    }

    fn table(&self) -> String {
        let metrics = self.metrics();
        let title = self.x.title();
        let keys = metrics.iter().map(|metric| metric.key());
        let header: Vec<_> = [&*title, "series"].into_iter().chain(keys).collect();
        let row = |point: &PointReport| {
            let number = |metric: &Metric| {
                let mut values = point.values.iter();
                let value = values.find(|value| value.metric == *metric);
                value.map_or_else(
                    || "-".to_owned(),
                    |value| {
                        let RunSummary { median, min, max } = value.spread;
                        format!("{} [{}..{}]", short(median), short(min), short(max))
                    },
                )
            };
            let names = [point.x.clone(), point.series.to_owned()];
            names
                .into_iter()
                .chain(metrics.iter().map(number))
                .collect()
        };
        let by_tick = self.x.ticks.iter().flat_map(|tick| {
            let points = self.points.iter();
            points.filter(move |point| point.x == *tick)
        });
        aligned(&header, by_tick.map(row), 2)
    }
}

impl fmt::Display for FigureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} ({})", self.figure, self.title, self.paper)?;
        writeln!(f, "{}", self.workload)?;
        let runs = if self.runs == 1 { "run" } else { "runs" };
        writeln!(
            f,
            "median [min..max] of {} {runs} of {} s{}{}",
            self.runs,
            self.seconds,
            if self.simulated { ", simulated" } else { "" },
            if self.quick {
                ", part of the sweep"
            } else {
                ""
            }
        )?;
        f.write_str(&self.table())?;
        write!(f, "{}", claim::lines(&self.claims))?;
        for reason in &self.left_out {
            writeln!(f, "omitted: {reason}")?;
        }
        if self.simulated {
            f.write_str("simulated")
        } else {
            write!(f, "on {}", self.machine)?;
            self.disturbances
                .map_or(Ok(()), |disturbances| write!(f, "\n{disturbances}"))
        }
    }
}
