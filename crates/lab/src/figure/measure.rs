//! Runs a figure's points, again and again, in turns.

use super::plan::{Cell, Extent, Plan};
use super::sample::{Metric, Sample};
use super::scenario::Scenario;
use anyhow::{Context as _, Result, ensure};
use std::time::Duration;

/// Repetitions and times of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Repetitions of everything: 1 to [`RUNS_MAX`].
    pub runs: usize,
    /// Measured time of each run.
    pub measured: Duration,
    /// Time that each run takes before it is measured.
    pub warmup: Duration,
    /// Fixes the order of requests; each repetition has another.
    pub seed: u64,
}

/// Repetitions and measured time: to quote, and to look.
const FULL: (usize, Duration) = (5, Duration::from_secs(3));
const QUICK: (usize, Duration) = (3, Duration::from_millis(500));

/// Of each run's measured time, this part is run before; never longer than a second.
const WARMUP_DIVISOR: u32 = 2;

impl Effort {
    /// So many runs of this length.
    #[must_use]
    pub fn new(runs: usize, measured: Duration, seed: u64) -> Self {
        Self {
            runs,
            measured,
            warmup: (measured / WARMUP_DIVISOR).min(Duration::from_secs(1)),
            seed,
        }
    }

    /// The effort for a figure of this extent, where nothing else is asked for.
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

/// Repetitions at most: their results are kept.
pub const RUNS_MAX: usize = 1000;

/// An executor of scenarios.
pub trait Runner {
    /// Runs it once.
    ///
    /// # Errors
    /// When it cannot be set up, or when requests fail.
    fn run(&mut self, scenario: &Scenario, effort: &Effort) -> Result<Sample>;
}

/// Progress of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Runs that are done.
    pub done: usize,
    /// Runs in all.
    pub total: usize,
    /// Point that is measured next, if it is one of several.
    pub next: Option<&'a Cell>,
}

/// The runs of each of a plan's points.
#[derive(Clone, Debug)]
pub struct Measured {
    /// By point, then by repetition.
    pub samples: Vec<Vec<Sample>>,
}

impl Measured {
    /// Each repetition's number at a place of `plan`, which is what was measured.
    #[must_use]
    pub fn numbers(&self, plan: &Plan, cell: &Cell, metric: Metric) -> Option<Vec<f64>> {
        let samples = self.samples.get(plan.position(cell)?)?;
        samples.iter().map(|sample| metric.of(sample)).collect()
    }
}

/// Runs all points of `plan`, `effort.runs` times over.
///
/// A repetition runs every point once, so that a machine that grows slower or faster over the
/// minutes bears on all alike; each repetition begins with another point, so that none always
/// follows the same one.
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
