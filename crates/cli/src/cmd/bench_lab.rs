//! `switchyard bench goals`, `bench hostile` and `bench limit`.

use super::figure::show;
use crate::args::BenchCommand;
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::Result;
use lab::figure::{self, Effort, GoalsArgs, measure_goals};
use lab::hostile::{self, HostileArgs};
use lab::limit::{self, LimitArgs};

/// Measures, and prints what holds.
///
/// # Errors
/// A machine without two processors, runs that fail, and as [`hostile::run`] and [`limit::run`].
pub fn run(command: &BenchCommand, output: Output) -> Result<Outcome> {
    match command {
        BenchCommand::Limit(args) => limit(args, output),
        BenchCommand::Hostile(args) => hostile(args, output),
        BenchCommand::Goals(args) => goals(args, output),
    }
}

/// Measures goals and prints which hold.
fn goals(args: &GoalsArgs, output: Output) -> Result<Outcome> {
    let mut rows = figure::goals::all();
    rows.retain(|goal| args.rows.is_empty() || args.rows.iter().any(|row| row == goal.name));
    let effort = Effort::new(args.runs.into(), args.seconds, args.seed);
    let bar = output.count_bar();
    let report = measure_goals(&rows, &effort, args.tries, &mut |progress| {
        show(&bar, "goals", progress);
    });
    bar.finish_and_clear();
    let report = report?;
    output.result(&report, &report)?;
    Ok(Outcome::of(report.holds()))
}

/// Measures the effect of hostile hosts on a neighbour, and prints it.
fn hostile(args: &HostileArgs, output: Output) -> Result<Outcome> {
    let report = hostile::run(args, &|text| output.note(text))?;
    output.result(&report, &report)?;
    Ok(Outcome::of(report.within()))
}

/// Measures our target as a fraction of the raw socket exchange, and prints it.
fn limit(args: &LimitArgs, output: Output) -> Result<Outcome> {
    let report = limit::run(args, &|text| output.note(text))?;
    output.result(&report, &report)?;
    Ok(Outcome::of(report.within()))
}
