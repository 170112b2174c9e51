//! Options of `lab sim check` and `lab sim mutations`.

use base::Mutation;
use clap::Args;
use sim::check::{Feature, Options};

/// Test hosts and a target in simulation with injected faults
///
/// Each seed is one run of the production host and target code on simulated networks, disks and
/// clocks. The seed determines the faults and the configuration of host and target, so a run can be
/// repeated exactly. Checkers verify every response, the final content of the disks, and that no
/// resources leak.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab sim check --seeds 10000 --jobs 2
  lab sim check --seed 42 --trace
  lab sim check --seed 42 --without cuts,digests --requests 20

Exit codes: 0 all checks passed, 1 (or a signal) a check failed, 2 error")]
pub struct CheckArgs {
    /// Run only this seed
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Print each step
    #[arg(long, requires = "seed")]
    pub trace: bool,
    /// Number of seeds to run; failing ones are minimised
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 500,
        conflicts_with = "seed",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub seeds: u64,
    /// First seed [default: from the current time]
    #[arg(long, value_name = "SEED", conflicts_with = "seed")]
    pub from: Option<u64>,
    /// Number of parallel processes
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        conflicts_with = "seed",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub jobs: u16,
    /// Disable these features of the run
    #[arg(long, value_name = "FEATURE,…", value_delimiter = ',')]
    pub without: Vec<Feature>,
    /// Requests per application [default: from the seed]
    #[arg(long, value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Run seeds on behalf of another process
    #[arg(long, hide = true, conflicts_with = "seed")]
    pub worker: bool,
    /// Enable this mutation (deliberate bug)
    #[arg(long, value_name = "NAME", hide = !base::mutation::BUILT_IN)]
    pub mutation: Option<Mutation>,
}

/// Check that `sim check` finds deliberate bugs
///
/// A mutation is a deliberate bug in the production code, such as an ignored fence, an early
/// completion of Flush, or a duplicate completion. For each mutation, processes run `sim check`
/// with increasing seeds until a checker fails; the same seed must pass without the mutation.
/// Mutations need a special build:
///
///   cargo run --release -p switchyard-lab --features mutations -- sim mutations
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_long_help = "Examples:
  lab sim mutations --jobs 2
  lab sim mutations --only fence-ignored,fua-ignored --json
  lab sim check --seed 42 --mutation fence-ignored

Exit codes: 0 all mutations found, 1 a mutation not found, 2 error"
)]
pub struct MutationsArgs {
    /// Check only these mutations
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub only: Vec<Mutation>,
    /// Most seeds per mutation
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub from: u64,
    /// Number of parallel processes
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: u16,
}

impl CheckArgs {
    /// Returns the options of the run of `seed`.
    pub(super) fn options(&self, seed: u64) -> Options {
        Options {
            seed,
            without: self.without.iter().copied().collect(),
            requests: self.requests,
        }
    }
}
