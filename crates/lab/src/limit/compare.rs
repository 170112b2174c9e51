//! Runs a workload and its limit in turns, and reports the fraction of the limit that is reached.

use anyhow::{Context as _, Result, ensure};
use load::RunSummary;
use serde::Serialize;

use super::limits;
use crate::Note;

/// The compared quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Exchanges per second: higher is better; a fraction of 0.8 is 80 % of the limit's rate.
    RequestsPerSecond,
    /// Median latency in microseconds: lower is better; a fraction of 1.25 is 25 % above the limit.
    P50Us,
}

impl Metric {
    /// The unit in reports.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "requests/s",
            Self::P50Us => "µs p50",
        }
    }

    /// The better direction.
    #[must_use]
    pub const fn better(self) -> Better {
        match self {
            Self::RequestsPerSecond => Better::Higher,
            Self::P50Us => Better::Lower,
        }
    }
}

/// The better direction of a number and of its fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Higher is better.
    Higher,
    /// Lower is better.
    Lower,
}

/// One case of `lab limit`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseReport {
    /// Name of the case.
    pub case: String,
    /// Unit of `ours` and `limit`.
    pub unit: &'static str,
    /// The better direction of `ours` and of `fraction`.
    pub better: Better,
    /// Number of pairs of runs.
    pub runs: usize,
    /// Median of this stack's runs.
    pub ours: f64,
    /// Median of the limit's runs.
    pub limit: f64,
    /// `ours` divided by `limit`, per pair.
    pub fraction: RunSummary,
}

/// Runs `runs` pairs of `run_ours` and `run_limit` and divides each pair.
///
/// The two runs of a pair are adjacent and alternate in order, so that a slow change of the
/// machine's speed affects both alike. Quote `fraction`, not the quotient of the two medians, which
/// may come from different runs. Each run begins with a `note`.
///
/// # Errors
/// The first error of a run, with the number of its pair; or a run without a positive result.
pub fn compare(
    case: &str,
    metric: Metric,
    runs: usize,
    run_ours: &mut dyn FnMut() -> Result<f64>,
    run_limit: &mut dyn FnMut() -> Result<f64>,
    note: Note<'_>,
) -> Result<CaseReport> {
    let most = limits::RUNS_MAX;
    ensure!(
        (1..=most).contains(&runs),
        "{case}: choose 1 to {most} runs, not {runs}"
    );
    let mut ours = Vec::with_capacity(runs);
    let mut limit = Vec::with_capacity(runs);
    for run in 0..runs {
        let measured = |whose, measure: &mut dyn FnMut() -> Result<f64>| {
            note(format_args!("{case}: {whose} run {} of {runs}", run + 1));
            measured(case, whose, run, measure)
        };
        let mut measure_ours = || measured("our", run_ours);
        let mut measure_limit = || measured("the limit's", run_limit);
        let (of_ours, of_limit) = if run % 2 == 0 {
            let first = measure_ours()?;
            (first, measure_limit()?)
        } else {
            let first = measure_limit()?;
            (measure_ours()?, first)
        };
        ours.push(of_ours);
        limit.push(of_limit);
    }
    let fractions: Vec<f64> = ours
        .iter()
        .zip(&limit)
        .map(|(ours, limit)| ours / limit)
        .collect();
    let spread = |runs: &[f64]| RunSummary::of(runs).expect("there is at least one run");
    Ok(CaseReport {
        case: case.to_owned(),
        unit: metric.unit(),
        better: metric.better(),
        runs,
        ours: spread(&ours).median,
        limit: spread(&limit).median,
        fraction: spread(&fractions),
    })
}

fn measured(
    case: &str,
    whose: &str,
    run: usize,
    measure: &mut dyn FnMut() -> Result<f64>,
) -> Result<f64> {
    let value = measure().with_context(|| format!("{case}: {whose} run {} failed", run + 1))?;
    ensure!(
        value.is_finite() && value > 0.0,
        "{case}: {whose} run {} measured {value}; was the measured time too short?",
        run + 1
    );
    Ok(value)
}
