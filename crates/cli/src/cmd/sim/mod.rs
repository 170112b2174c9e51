//! `switchyard sim`: the performance model, what it charges, and how near it comes; and runs with
//! faults in them.

mod check;
mod mutations;
mod run;
mod worker;

use crate::args::{CalibrateArgs, SimArgs, SimCommand};
use crate::exit::Outcome;
use crate::output::{Output, print};
use anyhow::{Context as _, Result};
use lab::model::{self, ValidateArgs};
use sim::model::Costs;
use std::path::Path;

/// Does what the command says.
///
/// # Errors
/// A run that cannot be, a costs file that cannot be used, a machine that cannot be measured.
pub fn run(args: &SimArgs, output: Output) -> Result<Outcome> {
    match &args.command {
        SimCommand::Run(args) => run::run(args, output),
        SimCommand::Check(args) => check::run(args, output),
        SimCommand::Mutations(args) => mutations::run(args, output),
        SimCommand::Calibrate(args) => calibrate(args, output),
        SimCommand::Validate(args) => validate(args, output),
    }
}

/// Measures what this machine charges, and writes the costs file.
fn calibrate(args: &CalibrateArgs, output: Output) -> Result<Outcome> {
    let costs = model::calibrate(&args.cores, &|text| output.note(text))?;
    let text = costs.to_toml();
    if let Some(path) = &args.output {
        std::fs::write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if output.json {
        output.result(&costs, "")?;
    } else if args.output.is_none() {
        print(format_args!("{text}"))?;
    }
    Ok(Outcome::Done)
}

/// Compares the model with this machine, and prints both.
fn validate(args: &ValidateArgs, output: Output) -> Result<Outcome> {
    let given = args.costs.as_deref().map(|path| costs(Some(path)));
    let report = model::validate(args, given.transpose()?, &|text| output.note(text))?;
    output.result(&report, &report)?;
    Ok(Outcome::of(report.good()))
}

/// The costs in a file, or those that come with the program.
pub fn costs(file: Option<&Path>) -> Result<Costs> {
    let Some(path) = file else {
        return Ok(Costs::shipped());
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the costs in {}", path.display()))?;
    Costs::from_toml(&text).with_context(|| {
        format!(
            "{} cannot be used; `switchyard sim calibrate --output FILE` writes a good one",
            path.display()
        )
    })
}
