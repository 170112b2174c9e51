//! `lab sim`.

use clap::{Args, Subcommand, ValueEnum};
use cli::knobs::SwitchArgs;
use load::{Cores, measured_seconds, seconds};
use std::path::PathBuf;
use std::time::Duration;

/// Ask the model how the stack does on other machines
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab sim run --cores 6 --l-apps 6 --t-apps 6
  lab sim check --seeds 100

Exit codes: 0 done, 1 a check failed, 2 an error")]
pub struct SimArgs {
    #[command(subcommand)]
    pub command: SimCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum SimCommand {
    /// Simulate L-apps and T-apps on so many cores
    Run(Box<SimRunArgs>),
    /// Run hosts and a target through faults, and check every answer
    Check(switchyard_lab::check::CheckArgs),
    /// Make deliberate mistakes, and see that the checks find each
    Mutations(switchyard_lab::check::MutationsArgs),
    /// Measure what this machine charges, for the model
    Calibrate(CalibrateArgs),
    /// Compare the model with this machine
    Validate(switchyard_lab::model::ValidateArgs),
}

/// Which machines are simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// A host and a target with so many cores each, and a network between them
    #[default]
    Network,
    /// One machine of two cores and its loopback: the target on the one, applications on the other
    Split,
    /// One machine and its loopback: target and applications on all cores
    Shared,
}

/// Threads that send and receive for the applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hosting {
    /// A dataplane thread per core
    Worker,
    /// Each application's own thread
    Inline,
}

/// Simulate L-apps and T-apps on so many cores
///
/// The production rules decide what goes first, by which core, with how many others and when; the
/// model charges for it what the costs file says. The same seed gives the same result, and no
/// clock is read: ten simulated seconds take as long as they have events.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab sim run --cores 6 --l-apps 6 --t-apps 6
  lab sim run --cores 6 --l-apps 6 --t-apps 6 --baseline linux --t-depth 32 --json
  lab sim run --cores 16 --l-apps 16 --t-apps 16 --seconds 10 --gbps 200
  lab sim run --layout split --l-apps 1 --t-apps 1 --baseline poll --knob quantum_bytes=16384

Exit codes: 0 done, 2 an error")]
pub struct SimRunArgs {
    /// Which machines there are
    #[arg(long, value_enum, default_value_t)]
    pub layout: Layout,
    /// Cores of the host and of the target; of the machine with --layout shared [default: 6]
    #[arg(long, value_name = "NUMBER")]
    pub cores: Option<usize>,
    /// L-apps: 4 KiB random reads, one at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 6)]
    pub l_apps: usize,
    /// Requests per second of each L-app, whatever is in flight [default: a closed loop]
    #[arg(long, value_name = "IOPS")]
    pub l_rate: Option<u64>,
    /// T-apps
    #[arg(long, value_name = "NUMBER", default_value_t = 6)]
    pub t_apps: usize,
    /// Bytes of a T-app's request
    #[arg(long, value_name = "BYTES", default_value_t = 65536)]
    pub t_bytes: u32,
    /// Requests that a T-app keeps in flight
    #[arg(long, value_name = "NUMBER", default_value_t = 16)]
    pub t_depth: u32,
    /// Percent of a T-app's requests that are writes
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=100))]
    pub t_writes: u16,
    #[command(flatten)]
    pub switch: SwitchArgs,
    /// Threads that send and receive [default: inline for presets that poll, worker for others]
    #[arg(long, value_enum)]
    pub hosting: Option<Hosting>,
    /// Targets on the target's machine; applications take them in turn
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub targets: usize,
    /// Rate of the network, each way [default: 100]
    #[arg(long, value_name = "GBIT/S")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub gbps: Option<u64>,
    /// Time that the device takes for a request
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    pub device_us: u64,
    /// Simulated seconds that are measured
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = measured_seconds)]
    pub seconds: Duration,
    /// Simulated seconds before
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = seconds)]
    pub warmup: Duration,
    /// Decides everything that is random
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// A file of `lab sim calibrate` [default: the costs that come with the program]
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
}

/// Measure what this machine charges, for the model
///
/// Needs two processors that are otherwise idle, and about 45 seconds: threads that wake each
/// other, timers, sockets on the loopback, and our own target and load in processes of their own.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab sim calibrate --output costs.toml
  lab sim calibrate --cores 2,3

Exit codes: 0 done, 2 an error")]
pub struct CalibrateArgs {
    /// Write the costs here [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The two processors
    #[arg(long, value_name = "A,B", default_value = "0,1")]
    pub cores: Cores,
}
