//! Options of `lab limit`.

use super::limits::{IDLE_CONNECTIONS, IDLE_NAME};
use super::many::ManyCase;
use super::own::CASES;
use clap::Args;
use load::measured_seconds;
use std::time::Duration;

/// Of each run's measured time, this part is run before.
const WARMUP_DIVISOR: u32 = 4;

/// Measure our own target against the raw socket exchange
///
/// For each case this starts a target in a process of its own on one core, loads it from another,
/// and runs in turns with it an exchange of messages of the same sizes over raw sockets, with the
/// same depth, batching and polling and nothing else. The result is the fraction of that limit.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab limit
  lab limit --case read_4k_qd128 --runs 9 --seconds 5 --json

Exit codes: 0 every case is within its bound, 1 one is not, 2 an error")]
pub struct LimitArgs {
    /// Only this case (repeatable) [default: all]
    #[arg(long = "case", value_name = "NAME", value_parser = bench_cases())]
    pub cases: Vec<String>,
    /// Pairs of runs of each case
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,
    /// Measure for so many seconds in each run
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = measured_seconds)]
    pub seconds: Duration,
    /// The processor of the target and the raw server
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub target_core: u32,
    /// The processor of the load and the raw client
    #[arg(long, value_name = "CORE", default_value_t = 1)]
    pub load_core: u32,
    /// Connections of the idle case; fewer are for trying it out.
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
