//! The laboratory's program: parses the command line, and calls the command's module.

// A binary has no public interface, so the visibility of shared items has no effect.
#![allow(unreachable_pub)]

mod args;
mod cmd;

use args::{Lab, LabCommand};
use clap::Parser as _;
use cli::exit::{self, Outcome};
use cli::log;
use std::process::ExitCode;

fn main() -> ExitCode {
    let lab = Lab::parse();
    // Simulated hosts and targets log each injected fault.
    let is_simulated = matches!(lab.command, LabCommand::Sim(_));
    let log = lab
        .common
        .start_log(if is_simulated { "off" } else { "warn" });
    let code = exit::code(log.and_then(|()| run(&lab)));
    log::flush();
    code
}

fn run(lab: &Lab) -> anyhow::Result<Outcome> {
    log::begin()?;
    let output = lab.common.output();
    if !matches!(lab.command, LabCommand::Sim(_)) {
        // On failure, the measurement that runs out of descriptors reports the error.
        let _ = control::process::open_files::raise();
    }
    match &lab.command {
        LabCommand::Figure(args) => cmd::figure::run(args, output),
        LabCommand::Limit(args) => cmd::measured::limit(args, output),
        LabCommand::Goals(args) => cmd::measured::goals(args, output),
        LabCommand::Hostile(args) => cmd::measured::hostile(args, output),
        LabCommand::TakeOver(args) => cmd::measured::take_over(args, output),
        LabCommand::Sim(args) => cmd::sim::run(args, output),
        LabCommand::Curves(args) => cmd::measured::curves(args, output),
    }
}
