//! `switchyard bench goals`: what this stack promises against the baselines, measured.

use super::child::MachineRunner;
use super::figure::{show, warmup};
use crate::args::GoalsArgs;
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Result, ensure};
use lab::figure::goals::{self, Judged, QuotientVerdict};
use lab::figure::{Disturbances, Effort, Quiet, aligned, measure, short};
use load::Machine;
use load::RunSummary;
use serde::Serialize;
use std::fmt;

/// Every goal's name.
pub fn row_names() -> Vec<&'static str> {
    goals::all().iter().map(|goal| goal.name).collect()
}

/// Everything, as JSON and as a table.
#[derive(Debug, Serialize)]
struct Report {
    goals: Vec<Judged>,
    runs: usize,
    seconds: f64,
    disturbances: Disturbances,
    machine: Machine,
}

/// Measures goals and prints which hold.
///
/// # Errors
/// A machine without two processors, and runs that fail.
pub fn run(args: &GoalsArgs, output: Output) -> Result<Outcome> {
    ensure!(
        !args.seconds.is_zero(),
        "--seconds 0 measures nothing; choose at least 0.1"
    );
    let mut rows = goals::all();
    rows.retain(|goal| args.rows.is_empty() || args.rows.iter().any(|row| row == goal.name));
    let plan = goals::plan(&rows);
    let effort = Effort {
        runs: args.runs.into(),
        measured: args.seconds,
        warmup: warmup(args.seconds),
        seed: args.seed,
    };
    let runner = MachineRunner::new(&std::env::temp_dir())?;
    let mut runner = Quiet::new(runner, args.tries);
    let bar = output.count_bar();
    let measured = measure(&plan, &effort, &mut runner, &mut |progress| {
        show(&bar, "goals", progress);
    });
    let measured = measured.and_then(|measured| {
        bar.set_message("goals: passing through the switchboard");
        let mut cost = |depth| goals::cost_of_passing(depth, args.seconds);
        goals::judge(&rows, &plan, &measured, &effort, &mut cost)
    });
    bar.finish_and_clear();
    let report = Report {
        goals: measured?,
        runs: effort.runs,
        seconds: effort.measured.as_secs_f64(),
        disturbances: runner.take(),
        machine: Machine::look(),
    };
    output.result(&report, &report)?;
    Ok(if report.goals.iter().all(Judged::holds) {
        Outcome::Done
    } else {
        Outcome::Negative
    })
}

/// What is left empty in a line.
const NOTHING: &str = "-";

/// A goal's line: of a quotient also what was divided, and what the machine allowed.
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = [
            "goal", "what", "number", "of", "to", "result", "spread", "bound", "limit", "",
        ];
        let rows: Vec<_> = std::iter::once(header.map(str::to_owned).to_vec())
            .chain(self.goals.iter().map(row))
            .collect();
        write!(f, "{}", aligned(&rows, 3))?;
        write!(
            f,
            "limit: the same quotient where nothing runs beside L, so what the machine allowed; what \
             it does not allow is out of reach\n\
             medians of {} interleaved runs of {} s, on {}\n{}",
            self.runs, self.seconds, self.machine, self.disturbances
        )
    }
}
