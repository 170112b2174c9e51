//! Runs a figure's points repeatedly, in turns.

use super::plan::{Cell, Extent, Plan};
use super::sample::{Metric, Sample};
use super::scenario::Scenario;
use anyhow::{Context as _, Result, ensure};
use std::time::Duration;

/// Repetitions and times of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Repetitions of each point: 1 to [`RUNS_MAX`].
    pub runs: usize,
    /// Measured time of each run.
    pub measured: Duration,
    /// Warm-up of each run.
    pub warmup: Duration,
    /// Seed of the order of requests; each repetition has a different one.
    pub seed: u64,
}

/// Repetitions and measured time of a full measurement, and of a quick one.
const FULL: (usize, Duration) = (5, Duration::from_secs(3));
const QUICK: (usize, Duration) = (3, Duration::from_millis(500));

/// The warm-up is the measured time of a run divided by this number, at most one second.
const WARMUP_DIVISOR: u32 = 2;

impl Effort {
    /// `runs` repetitions of `measured` each.
    #[must_use]
    pub fn new(runs: usize, measured: Duration, seed: u64) -> Self {
        Self {
            runs,
            measured,
            warmup: (measured / WARMUP_DIVISOR).min(Duration::from_secs(1)),
            seed,
        }
    }

    /// The effort for a figure of this extent; `runs` and `measured` override the defaults.
    #[must_use]
    pub fn of(extent: Extent, runs: Option<usize>, measured: Option<Duration>, seed: u64) -> Self {
        let default = match extent {
            Extent::Full => FULL,
            Extent::Quick => QUICK,
        };
        Self::new(
            runs.unwrap_or(default.0),
            measured.unwrap_or(default.1),
            seed,
        )
    }
}

/// Most repetitions: all results are kept in memory.
pub const RUNS_MAX: usize = 1000;

/// An executor of scenarios.
pub trait Runner {
    /// Runs the scenario once.
    ///
    /// # Errors
    /// It cannot be set up, or requests fail.
    fn run(&mut self, scenario: &Scenario, effort: &Effort) -> Result<Sample>;
}

/// Progress of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Completed runs.
    pub done: usize,
    /// All runs.
    pub total: usize,
    /// The next point, if it is one of several.
    pub next: Option<&'a Cell>,
}

/// The runs of each of a plan's points.
#[derive(Clone, Debug)]
pub struct Measured {
    /// By point, then by repetition.
    pub samples: Vec<Vec<Sample>>,
}

impl Measured {
    /// Returns the value of each repetition at a cell of the measured `plan`.
    #[must_use]
    pub fn numbers(&self, plan: &Plan, cell: &Cell, metric: Metric) -> Option<Vec<f64>> {
        let samples = self.samples.get(plan.position(cell)?)?;
        samples.iter().map(|sample| metric.of(sample)).collect()
    }
}

/// Runs all points of `plan`, `effort.runs` times.
///
/// Each repetition runs every point once, so that a slow change of the machine's speed affects all
/// points alike. Each repetition begins with a different point, so that no point always follows the
/// same one.
///
/// # Errors
/// The first error of a run, with the point and the repetition.
pub fn measure(
    plan: &Plan,
    effort: &Effort,
    runner: &mut dyn Runner,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Measured> {
    ensure!(
        (1..=RUNS_MAX).contains(&effort.runs),
        "choose 1 to {RUNS_MAX} runs, not {}",
        effort.runs
    );
    ensure!(
        !effort.measured.is_zero(),
        "no measured time: choose at least 0.1 seconds"
    );
    let points = plan.points.len();
    let mut samples = vec![Vec::with_capacity(effort.runs); points];
    for run in 0..effort.runs {
        let effort = Effort {
            seed: effort.seed.wrapping_add(run as u64),
            ..*effort
        };
        for turn in 0..points {
            let index = (turn + run) % points;
            let point = &plan.points[index];
            progress(Progress {
                done: run * points + turn,
                total: effort.runs * points,
                next: Some(&point.cell),
            });
            let sample = runner
                .run(&point.scenario, &effort)
                .with_context(|| format!("{}, run {}", point.cell, run + 1))?;
            samples[index].push(sample);
        }
    }
    Ok(Measured { samples })
}
