//! `lab goals`, `lab hostile`, `lab limit`, `lab take-over` and `lab curves`.

use super::figure::show;
use anyhow::Result;
use cli::exit::Outcome;
use cli::output::Output;
use switchyard_lab::curves::{self, CurvesArgs};
use switchyard_lab::figure::{self, Effort, GoalsArgs, measure_goals};
use switchyard_lab::hostile::{self, HostileArgs};
use switchyard_lab::limit::{self, LimitArgs};
use switchyard_lab::take_over::{self, TakeOverArgs};

/// Measures goals and prints which of them hold.
///
/// # Errors
/// A machine without two processors, and runs that fail.
pub fn goals(args: &GoalsArgs, output: Output) -> Result<Outcome> {
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

/// Measures and prints the effect of hostile hosts on a well-behaved host.
///
/// # Errors
/// As [`hostile::run`].
pub fn hostile(args: &HostileArgs, output: Output) -> Result<Outcome> {
    let report = hostile::run(args, &|text| output.note(text))?;
    output.result(&report, &report)?;
    Ok(Outcome::of(report.within()))
}

/// Measures and prints the target's performance as a fraction of the raw socket exchange.
///
/// # Errors
/// As [`limit::run`].
pub fn limit(args: &LimitArgs, output: Output) -> Result<Outcome> {
    let report = limit::run(args, &|text| output.note(text))?;
    output.result(&report, &report)?;
    Ok(Outcome::of(report.within()))
}

/// Measures and prints the waits of hosts in take-overs.
///
/// # Errors
/// As [`take_over::run`].
pub fn take_over(args: &TakeOverArgs, output: Output) -> Result<Outcome> {
    let report = take_over::run(args, &|text| output.note(text))?;
    output.result(&report, &report)?;
    Ok(Outcome::of(report.within()))
}

/// Draws the measurements of a calibration.
///
/// # Errors
/// A calibration that cannot be read, and a picture that cannot be written.
pub fn curves(args: &CurvesArgs, output: Output) -> Result<Outcome> {
    output.file(&args.output, &curves::svg(&args.calibration)?)?;
    Ok(Outcome::Done)
}
