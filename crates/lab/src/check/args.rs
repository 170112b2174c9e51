//! Options of `lab sim check` and `lab sim mutations`.

use base::Mutation;
use clap::Args;
use sim::check::{Feature, Options};

/// Run hosts and a target through faults, and check every answer
///
/// Each seed is a run of production hosts and a production target on simulated networks, disks and
/// clocks: it draws which faults there are and how both ends are configured. Checkers look at every
/// answer, at what is on the disks in the end, and at what is left over. The same seed is the same
/// run, to the last step.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab sim check --seeds 10000 --jobs 2
  lab sim check --seed 42 --trace
  lab sim check --seed 42 --without cuts,digests --requests 20

Exit codes: 0 all is as promised, 1 or a signal something is not, 2 an error")]
pub struct CheckArgs {
    /// Run this one
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Say what happens, step by step
    #[arg(long, requires = "seed")]
    pub trace: bool,
    /// Run so many, and look for the shortest form of each that fails
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 500,
        conflicts_with = "seed",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub seeds: u64,
    /// Begin with this one [default: one of the present moment]
    #[arg(long, value_name = "SEED", conflicts_with = "seed")]
    pub from: Option<u64>,
    /// Processes that share them
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        conflicts_with = "seed",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub jobs: u16,
    /// Leave these things out, although the seed has them
    #[arg(long, value_name = "FEATURE,…", value_delimiter = ',')]
    pub without: Vec<Feature>,
    /// Requests of each application [default: as the seed says]
    #[arg(long, value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// This process runs seeds for another
    #[arg(long, hide = true, conflicts_with = "seed")]
    pub worker: bool,
    /// This deliberate mistake is in force
    #[arg(long, value_name = "NAME", hide = !base::mutation::BUILT_IN)]
    pub mutation: Option<Mutation>,
}

/// Make deliberate mistakes, and see that the checks find each
///
/// A mutation is one deliberate mistake in the production code: a fence that is ignored, a Flush
/// that is answered early, an answer that is sent twice. Each is put in force in processes of its
/// own, which run `sim check` by seed until a checker finds it; the same seed without it has to be
/// clean. Ordinary programs have no mutations; build one that has:
///
///   cargo run --release -p switchyard-lab --features mutations -- sim mutations
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_long_help = "Examples:
  lab sim mutations --jobs 2
  lab sim mutations --only fence-ignored,fua-ignored --json
  lab sim check --seed 42 --mutation fence-ignored

Exit codes: 0 each was found, 1 one was not, 2 an error"
)]
pub struct MutationsArgs {
    /// Only these
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub only: Vec<Mutation>,
    /// Seeds in which each must be found
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// Begin with this one
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub from: u64,
    /// Processes that share them
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
