//! The command line: every command of the laboratory.

mod sim;

pub use sim::{CalibrateArgs, Hosting, Layout, SimArgs, SimCommand, SimRunArgs};

use clap::{Parser, Subcommand};
use cli::common::{Common, share_examples};
use switchyard_lab::curves::CurvesArgs;
use switchyard_lab::figure::{FigureArgs, GoalsArgs};
use switchyard_lab::hostile::HostileArgs;
use switchyard_lab::limit::LimitArgs;

/// Measure the program `switchyard`, and simulate it
///
/// Measurements start the program `switchyard` that lies beside this one, or the one that the
/// environment variable SWITCHYARD_BIN names. Build both with:
///
///   cargo build --release -p switchyard -p switchyard-lab
#[derive(Debug, Parser)]
#[command(name = "lab", version, propagate_version = true, verbatim_doc_comment)]
#[command(after_help = concat!(
    "Examples:\n",
    "  lab figure list                    which figures are there?\n",
    "  lab limit                          how far from raw sockets is it?\n",
    "  lab sim check --seeds 10000        does it keep its promises under faults?\n",
    "\n",
    "Exit codes:\n",
    "  0  done\n",
    "  1  a negative result: a claim does not hold, a bound is missed, a check failed\n",
    "  2  an error: the message on stderr says what to do",
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
    /// Run the papers' figures again on this machine
    Figure(FigureArgs),
    /// Measure our own target against the raw socket exchange
    Limit(LimitArgs),
    /// Measure this stack against its baselines
    Goals(GoalsArgs),
    /// Measure what a well-behaved host notices of hostile ones
    Hostile(HostileArgs),
    /// Ask the model how the stack does on other machines
    Sim(SimArgs),
    /// Draw the curves of a calibration
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
