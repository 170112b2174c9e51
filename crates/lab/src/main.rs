//! The program of the laboratory: it reads the command line, and hands it to the module of its
//! command.

// A binary has no public interface: what modules share is as visible as it needs to be.
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
    // Simulated hosts and targets log each of the faults that they are there to suffer.
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
        // What a measurement opens too many of is told by the one that cannot be opened.
        let _ = control::process::open_files::raise();
    }
    match &lab.command {
        LabCommand::Figure(args) => cmd::figure::run(args, output),
        LabCommand::Limit(args) => cmd::measured::limit(args, output),
        LabCommand::Goals(args) => cmd::measured::goals(args, output),
        LabCommand::Hostile(args) => cmd::measured::hostile(args, output),
        LabCommand::Sim(args) => cmd::sim::run(args, output),
        LabCommand::Curves(args) => cmd::measured::curves(args, output),
    }
}
