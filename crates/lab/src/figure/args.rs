//! Options of `lab figure` and `lab goals`.

use super::goals;
use super::quiet::TRIES_MAX;
use clap::Args;
use load::measured_seconds;
use std::path::PathBuf;
use std::time::Duration;

/// Run the papers' figures again on this machine
///
/// A figure of the machine starts targets and loads of `switchyard` in processes of their own, on
/// processors 0 and 1, system by system in turns; names that begin with "sim-" are simulated, by the
/// performance model or by emulated devices in virtual time. Each writes NAME.json, NAME.csv,
/// NAME.svg and NAME.png, and says for each claim of the paper whether it holds here.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab figure list
  lab figure blk-switch-7 --quick
  lab figure all --output target/figures

Exit codes: 0 all claims hold, 1 some do not, 2 an error")]
pub struct FigureArgs {
    /// Figures, such as blk-switch-7 or i10-6; "blk-switch-3" is all its parts, "all" is all,
    /// and "list" lists them
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Run fewer points, shorter: to look at, not to quote
    #[arg(long)]
    pub quick: bool,
    /// Write files here
    #[arg(long, value_name = "DIR", default_value = "target/figures")]
    pub output: PathBuf,
    /// Repetitions of every point [default: 5; quick: 3]
    #[arg(long, value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: Option<u16>,
    /// Measure for so many seconds in each run of a figure of the machine [default: 3; quick: 0.5]
    #[arg(long, value_name = "SECONDS", value_parser = measured_seconds)]
    pub seconds: Option<Duration>,
    /// Measure a run up to so many times, until the hypervisor and others on this machine take
    /// next to nothing of the processors meanwhile, and keep the quietest
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(TRIES_MAX)))]
    pub tries: u8,
    /// Costs that the simulator charges: a file of `lab sim calibrate` [default: the costs that
    /// come with the program]
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Fixes the order of requests
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

/// Measure this stack against its baselines
///
/// Each goal is a quotient of two runs and a bound. All runs are repeated in turns, so that a
/// machine that grows slower or faster bears on both sides alike; what counts is the median of
/// the quotients. What passing through the switchboard costs is no quotient: it is measured alone,
/// after them. Layout split: the target on processor 0, all applications on processor 1.
/// Layout shared: all on both.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab goals
  lab goals --row split-linux-p99 --runs 9 --seconds 5 --json

Exit codes: 0 every goal is reached, 1 one is not, 2 an error")]
pub struct GoalsArgs {
    /// Only this goal (repeatable) [default: all]
    #[arg(long = "row", value_name = "NAME", value_parser = rows())]
    pub rows: Vec<String>,
    /// Repetitions of every run
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,
    /// Measure for so many seconds in each run
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = measured_seconds)]
    pub seconds: Duration,
    /// Measure a run up to so many times, until the hypervisor and others on this machine take
    /// next to nothing of the processors meanwhile, and keep the quietest
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(TRIES_MAX)))]
    pub tries: u8,
    /// Fixes the order of requests
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

fn rows() -> clap::builder::PossibleValuesParser {
    let names: Vec<&str> = goals::all().iter().map(|goal| goal.name).collect();
    names.into()
}
