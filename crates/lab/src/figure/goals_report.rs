//! Measured and judged goals, as JSON and as a table.

use super::goals::{self, Goal, Judged, QuotientVerdict};
use super::{Disturbances, Effort, Progress, Quiet, measure, short};
use crate::folder::Folder;
use crate::process::MachineRunner;
use anyhow::Result;
use load::{Machine, RunSummary};
use serde::Serialize;
use std::fmt;

/// Every measured goal, and whether it is reached.
#[derive(Debug, Serialize)]
pub struct GoalsReport {
    goals: Vec<Judged>,
    runs: usize,
    seconds: f64,
    disturbances: Disturbances,
    machine: Machine,
}

/// Measures goals. A disturbed run is repeated, up to `tries` times in all.
///
/// # Errors
/// A machine without two processors, and runs that fail.
pub fn measure_goals(
    rows: &[Goal],
    effort: &Effort,
    tries: u8,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<GoalsReport> {
    let plan = goals::plan(rows);
    let folder = Folder::new("goals")?;
    let mut runner = Quiet::new(MachineRunner::new(folder.path()), tries);
    let measured = measure(&plan, effort, &mut runner, progress)?;
    let mut cost = |depth| goals::cost_of_passing(depth, effort.measured);
    Ok(GoalsReport {
        goals: goals::judge(rows, &plan, &measured, effort, &mut cost)?,
        runs: effort.runs,
        seconds: effort.measured.as_secs_f64(),
        disturbances: runner.take(),
        machine: Machine::look(),
    })
}

impl GoalsReport {
    /// Returns true if every goal is reached.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.goals.iter().all(Judged::holds)
    }
}

/// An empty table cell.
const NOTHING: &str = "-";

/// A goal's row; a quotient also shows the divided numbers and the machine's limit.
fn row(goal: &Judged) -> Vec<String> {
    let (says, divided, number) = match goal {
        Judged::Quotient(QuotientVerdict { verdict, limit }) => {
            let limit = limit.map_or_else(|| NOTHING.to_owned(), |limit| short(limit.median));
            (
                [verdict.name, verdict.says, verdict.metric],
                [short(verdict.of.median), short(verdict.to.median), limit],
                (verdict.quotient, verdict.bound),
            )
        }
        Judged::Number(verdict) => (
            [verdict.name, verdict.says, verdict.metric],
            [NOTHING; 3].map(str::to_owned),
            (verdict.number, verdict.bound),
        ),
    };
    let result = match goal {
        goal if goal.holds() => "ok",
        Judged::Quotient(quotient) if quotient.is_out_of_reach() => "OUT OF REACH",
        _ => "MISSED",
    };
    let [of, to, limit] = divided;
    let (RunSummary { median, min, max }, bound) = number;
    let mut row = says.map(str::to_owned).to_vec();
    row.extend([of, to, short(median)]);
    row.push(format!("{}..{}", short(min), short(max)));
    row.extend([bound.to_string(), limit, result.to_owned()]);
    row
}

impl fmt::Display for GoalsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = [
            "goal", "what", "number", "of", "to", "result", "spread", "bound", "limit", "",
        ];
        let rows = self.goals.iter().map(row);
        f.write_str(&load::aligned(&header, rows, 3))?;
        write!(
            f,
            "limit: the same quotient without load next to L, the best that this machine allows; a \
             bound beyond it is out of reach\n\
             medians of {} interleaved runs of {} s, on {}\n{}",
            self.runs, self.seconds, self.machine, self.disturbances
        )
    }
}
