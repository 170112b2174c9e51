//! The command line: every command of the laboratory.

mod sim;

pub use sim::{CalibrateArgs, Hosting, Layout, SimArgs, SimCommand, SimRunArgs};

use clap::{Parser, Subcommand};
use cli::common::{Common, share_examples};
use switchyard_lab::curves::CurvesArgs;
use switchyard_lab::figure::{FigureArgs, GoalsArgs};
use switchyard_lab::hostile::HostileArgs;
use switchyard_lab::limit::LimitArgs;
use switchyard_lab::take_over::TakeOverArgs;

/// Measure and simulate Switchyard
///
/// Measurements run the `switchyard` binary in the directory of this program, or the one named by
/// the environment variable SWITCHYARD_BIN. Build both with:
///
///   cargo build --release -p switchyard -p switchyard-lab
#[derive(Debug, Parser)]
#[command(name = "lab", version, propagate_version = true, verbatim_doc_comment)]
#[command(after_help = concat!(
    "Examples:\n",
    "  lab figure list                    list the figures\n",
    "  lab limit                          compare the target with raw sockets\n",
    "  lab sim check --seeds 10000        check correctness under injected faults\n",
    "\n",
    "Exit codes:\n",
    "  0  success\n",
    "  1  negative result: a claim does not hold, a bound is missed, a check failed\n",
    "  2  error: the message on stderr names the cause and the remedy",
))]
#[command(mut_subcommands = share_examples)]
pub struct Lab {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    Figure(FigureArgs),
    Limit(LimitArgs),
    Goals(GoalsArgs),
    Hostile(HostileArgs),
    TakeOver(TakeOverArgs),
    Sim(SimArgs),
    Curves(CurvesArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Lab::command().debug_assert();
    }
}
