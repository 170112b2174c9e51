//! The command line.

use clap::{Args, Parser, Subcommand, value_parser};
use cli::common::{Common, share_examples};
use qos::limits::{NODES_MAX, VOLUMES_MAX};

/// Manage the volumes of many Switchyard targets
#[derive(Debug, Parser)]
#[command(name = "switchyard-cluster", version, propagate_version = true)]
#[command(after_help = concat!(
    "Examples:\n",
    "  switchyard-cluster placement simulate --volumes 100000 --nodes 1000\n",
    "      compare the placement of 100,000 volumes on 1,000 targets with a lower bound\n",
    "\n",
    "Exit codes:\n",
    "  0  success\n",
    "  2  error: the message on stderr names the cause and the remedy",
))]
#[command(mut_subcommands = share_examples)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Placement(PlacementArgs),
}

/// Placement of volumes on targets
#[derive(Args, Debug)]
pub struct PlacementArgs {
    #[command(subcommand)]
    pub command: PlacementCommand,
}

#[derive(Debug, Subcommand)]
pub enum PlacementCommand {
    Simulate(SimulateArgs),
}

/// Simulate volumes that arrive, grow and end on equal targets
///
/// Compares the targets in use at the end with a lower bound, and with two other algorithms:
/// first-fit decreasing, which places all volumes anew, and spreading by free space. Every twentieth
/// of the events, rebalancing moves at most 1 % of the volumes.
#[derive(Args, Clone, Debug)]
pub struct SimulateArgs {
    /// Volumes placed at the start
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = value_parser!(u32).range(1..=(VOLUMES_MAX / 2) as i64))]
    pub volumes: u32,
    /// Targets
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    #[arg(value_parser = value_parser!(u32).range(1..=NODES_MAX as i64))]
    pub nodes: u32,
    /// Arrivals, ends and growths after the start [default: number of volumes]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=1_000_000))]
    pub events: Option<u32>,
    /// Seed of the random volumes; a seed always gives the same placements
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
