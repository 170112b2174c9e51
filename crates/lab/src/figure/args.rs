//! Options of `lab figure` and `lab goals`.

use super::goals;
use super::quiet::TRIES_MAX;
use clap::Args;
use load::measured_seconds;
use std::path::PathBuf;
use std::time::Duration;

/// Reproduce figures of the papers on this machine
///
/// A measured figure runs targets and loads as processes on CPUs 0 and 1, and alternates between the
/// compared systems. A figure "sim-..." is simulated in virtual time. Each figure writes NAME.json,
/// NAME.csv, NAME.svg and NAME.png, and reports for each claim of the paper whether it holds.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab figure list
  lab figure blk-switch-7 --quick
  lab figure all --output target/figures

Exit codes: 0 all claims hold, 1 a claim does not hold, 2 error")]
pub struct FigureArgs {
    /// Figures, such as blk-switch-7 or i10-6; a prefix such as blk-switch-3 runs all its parts;
    /// "all" runs all figures; "list" lists them
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Fewer and shorter runs: a quick, inaccurate result
    #[arg(long)]
    pub quick: bool,
    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "target/figures")]
    pub output: PathBuf,
    /// Repetitions of each point [default: 5; with --quick: 3]
    #[arg(long, value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: Option<u16>,
    /// Measured time of each run of a measured figure [default: 3; with --quick: 0.5]
    #[arg(long, value_name = "SECONDS", value_parser = measured_seconds)]
    pub seconds: Option<Duration>,
    /// Most attempts per run: a run is repeated while other processes or the hypervisor use the
    /// CPUs; the least disturbed attempt counts
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(TRIES_MAX)))]
    pub tries: u8,
    /// Costs file of the simulator, written by `lab sim calibrate` [default: built-in costs]
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Seed of the random addresses and arrivals
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

/// Measure Switchyard against its baselines
///
/// A goal is a bound on the ratio of two measurements. Runs of both alternate, so that changes of
/// the machine's speed affect both sides, and the median of the ratios counts. The cost of the
/// switchboard is measured alone, at the end. Goals "split-...": target on CPU 0, applications on
/// CPU 1. Goals "shared-...": both on both CPUs.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab goals
  lab goals --row split-linux-p99 --runs 9 --seconds 5 --json

Exit codes: 0 all goals reached, 1 a goal missed, 2 error")]
pub struct GoalsArgs {
    /// Measure only this goal (repeatable) [default: all]
    #[arg(long = "row", value_name = "NAME", value_parser = rows())]
    pub rows: Vec<String>,
    /// Repetitions of each run
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,
    /// Measured time of each run
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = measured_seconds)]
    pub seconds: Duration,
    /// Most attempts per run: a run is repeated while other processes or the hypervisor use the
    /// CPUs; the least disturbed attempt counts
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(TRIES_MAX)))]
    pub tries: u8,
    /// Seed of the random addresses and arrivals
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

fn rows() -> clap::builder::PossibleValuesParser {
    let names: Vec<&str> = goals::all().iter().map(|goal| goal.name).collect();
    names.into()
}
