//! `switchyard bench goals`: what this stack promises against the baselines, measured.

use super::child::MachineRunner;
use super::figure::{show, warmup};
use crate::args::GoalsArgs;
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Result, ensure};
use bench::figure::{Effort, Verdict, aligned, goals, measure, short};
use bench::load::Machine;
use serde::Serialize;
use std::fmt;

/// Every goal's name.
pub fn row_names() -> Vec<&'static str> {
    goals::all().iter().map(|goal| goal.name).collect()
}

/// Everything, as JSON and as a table.
#[derive(Debug, Serialize)]
struct Report {
    goals: Vec<Verdict>,
    runs: usize,
    seconds: f64,
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
    let mut runner = MachineRunner::new(&std::env::temp_dir())?;
    let bar = output.count_bar();
    let measured = measure(&plan, &effort, &mut runner, &mut |progress| {
        show(&bar, "goals", progress);
    });
    bar.finish_and_clear();
    let report = Report {
        goals: goals::judge(&plan, &measured?)?,
        runs: effort.runs,
        seconds: effort.measured.as_secs_f64(),
        machine: Machine::look(),
    };
    output.result(&report, &report)?;
    Ok(if report.goals.iter().all(|goal| goal.holds) {
        Outcome::Done
    } else {
        Outcome::Negative
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = [
            "goal", "what", "number", "of", "to", "ratio", "spread", "bound", "",
        ];
        let row = |goal: &Verdict| {
            let ratio = goal.quotient;
            let cells = [
                goal.name,
                goal.says,
                goal.metric,
                &short(goal.of.median),
                &short(goal.to.median),
                &short(ratio.median),
                &format!("{}..{}", short(ratio.min), short(ratio.max)),
                &goal.bound.to_string(),
                if goal.holds { "ok" } else { "MISSED" },
            ];
            cells.map(str::to_owned).to_vec()
        };
        let rows: Vec<_> = std::iter::once(header.map(str::to_owned).to_vec())
            .chain(self.goals.iter().map(row))
            .collect();
        write!(f, "{}", aligned(&rows, 3))?;
        write!(
            f,
            "medians of {} interleaved runs of {} s, on {}",
            self.runs, self.seconds, self.machine
        )
    }
}
