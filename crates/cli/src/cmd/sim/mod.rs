//! `switchyard sim`: the performance model, what it charges, and how near it comes; and runs with
//! faults in them.

mod calibrate;
mod check;
mod machine;
mod mutations;
mod run;
mod validate;
mod worker;

use crate::args::{SimArgs, SimCommand};
use crate::exit::Outcome;
use crate::output::Output;
use anyhow::{Context as _, Result};
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
        SimCommand::Calibrate(args) => calibrate::run(args, output),
        SimCommand::Validate(args) => validate::run(args, output),
    }
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
