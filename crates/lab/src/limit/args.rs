//! Options of `lab limit`.

use super::limits::{IDLE_CONNECTIONS, IDLE_NAME};
use super::many::ManyCase;
use super::own::CASES;
use clap::Args;
use load::measured_seconds;
use std::time::Duration;

/// Warm-up as a fraction of the measured time: 1/4, at most 1 s.
const WARMUP_DIVISOR: u32 = 4;

/// Compare the target with raw sockets
///
/// For each case, runs of a target process on one CPU with a load on another CPU alternate with runs
/// of a plain socket program that exchanges messages of the same sizes with the same depth,
/// batching and polling. The result is the ratio of both.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab limit
  lab limit --case read_4k_qd128 --runs 9 --seconds 5 --json

Exit codes: 0 all cases within their bounds, 1 a bound missed, 2 error")]
pub struct LimitArgs {
    /// Measure only this case (repeatable) [default: all]
    #[arg(long = "case", value_name = "NAME", value_parser = bench_cases())]
    pub cases: Vec<String>,
    /// Number of pairs of runs per case
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,
    /// Measured time of each run
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = measured_seconds)]
    pub seconds: Duration,
    /// CPU of the target and the raw server
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub target_core: u32,
    /// CPU of the load and the raw client
    #[arg(long, value_name = "CORE", default_value_t = 1)]
    pub load_core: u32,
    /// Connections of the idle case.
    #[arg(long, hide = true, default_value_t = IDLE_CONNECTIONS)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub idle_connections: u16,
}

fn bench_cases() -> clap::builder::PossibleValuesParser {
    let compared = CASES.iter().map(|case| case.raw.name);
    let many = ManyCase::read_4k_2500_connections().raw.name;
    let names: Vec<_> = compared.chain([many, IDLE_NAME]).collect();
    names.into()
}

impl LimitArgs {
    /// Returns the time that a run takes before it is measured.
    pub(super) fn warmup(&self) -> Duration {
        (self.seconds / WARMUP_DIVISOR).min(Duration::from_secs(1))
    }
}
