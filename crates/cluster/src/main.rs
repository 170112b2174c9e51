//! The program `switchyard-cluster`: many targets as one pool of volumes. Parses the command line,
//! and calls the command's module.

// A binary has no public interface, so the visibility of shared items has no effect.
#![allow(unreachable_pub)]

mod args;
mod simulation;

use args::{Cli, Command, PlacementCommand};
use clap::Parser as _;
use cli::exit::{self, Outcome};
use cli::log;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let started = cli.common.start_log("warn");
    let code = exit::code(started.and_then(|()| run(&cli)));
    log::flush();
    code
}

fn run(cli: &Cli) -> anyhow::Result<Outcome> {
    log::begin()?;
    let output = cli.common.output();
    match &cli.command {
        Command::Placement(args) => match &args.command {
            PlacementCommand::Simulate(args) => {
                let report = simulation::run(args)?;
                output.result(&report, &report)?;
            }
        },
    }
    Ok(Outcome::Done)
}
