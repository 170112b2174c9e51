//! `lab sim`.

use clap::{Args, Subcommand, ValueEnum};
use cli::knobs::SwitchArgs;
use load::{Cores, measured_seconds, seconds};
use std::path::PathBuf;
use std::time::Duration;

/// Simulate other machines, and test with injected faults
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab sim run --cores 6 --l-apps 6 --t-apps 6
  lab sim check --seeds 100

Exit codes: 0 success, 1 a check failed, 2 error")]
pub struct SimArgs {
    #[command(subcommand)]
    pub command: SimCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum SimCommand {
    Run(Box<SimRunArgs>),
    Check(switchyard_lab::check::CheckArgs),
    Mutations(switchyard_lab::check::MutationsArgs),
    Calibrate(CalibrateArgs),
    Validate(switchyard_lab::model::ValidateArgs),
}

/// The simulated machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// A host and a target with --cores each, connected by a network
    #[default]
    Network,
    /// One machine with two cores: the target on core 0, applications on core 1, loopback
    Split,
    /// One machine: target and applications on all cores, loopback
    Shared,
}

/// Threads that send and receive for the applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hosting {
    /// One I/O thread per core
    Worker,
    /// The application's threads
    Inline,
}

/// Simulate latency and throughput applications on a given number of cores
///
/// The production code decides order, core, batching and timing of the requests; the costs file has
/// the CPU time of each step. L-apps are latency applications, T-apps throughput applications. The
/// same seed gives the same result on every machine.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab sim run --cores 6 --l-apps 6 --t-apps 6
  lab sim run --cores 6 --l-apps 6 --t-apps 6 --baseline linux --t-depth 32 --json
  lab sim run --cores 16 --l-apps 16 --t-apps 16 --seconds 10 --gbps 200
  lab sim run --layout split --l-apps 1 --t-apps 1 --baseline poll --knob quantum_bytes=16384

Exit codes: 0 success, 2 error")]
pub struct SimRunArgs {
    /// Simulated machines
    #[arg(long, value_enum, default_value_t)]
    pub layout: Layout,
    /// Cores of each machine [default: 6]
    #[arg(long, value_name = "NUMBER")]
    pub cores: Option<usize>,
    /// Number of L-apps: 4 KiB random reads at depth 1
    #[arg(long, value_name = "NUMBER", default_value_t = 6)]
    pub l_apps: usize,
    /// Requests per second of each L-app, sent at fixed times (open loop) [default: closed loop]
    #[arg(long, value_name = "IOPS")]
    pub l_rate: Option<u64>,
    /// Number of T-apps
    #[arg(long, value_name = "NUMBER", default_value_t = 6)]
    pub t_apps: usize,
    /// Request size of T-apps
    #[arg(long, value_name = "BYTES", default_value_t = 65536)]
    pub t_bytes: u32,
    /// Requests in flight per T-app
    #[arg(long, value_name = "NUMBER", default_value_t = 16)]
    pub t_depth: u32,
    /// Percentage of writes in the requests of T-apps
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=100))]
    pub t_writes: u16,
    #[command(flatten)]
    pub switch: SwitchArgs,
    /// Threads that send and receive [default: inline with presets that poll, otherwise worker]
    #[arg(long, value_enum)]
    pub hosting: Option<Hosting>,
    /// Number of targets on the target machine; applications use them round-robin
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub targets: usize,
    /// Network bandwidth in each direction [default: 100]
    #[arg(long, value_name = "GBIT/S")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub gbps: Option<u64>,
    /// Device latency
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    pub device_us: u64,
    /// Measured time, in simulated seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = measured_seconds)]
    pub seconds: Duration,
    /// Warm-up before measuring, in simulated seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = seconds)]
    pub warmup: Duration,
    /// Seed of all random decisions
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Costs file, written by `lab sim calibrate` [default: built-in costs]
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
}

/// Measure the CPU costs of this machine for the simulator
///
/// Measures thread wake-ups, timers, loopback sockets, and a target with a load. Needs two idle CPUs
/// and about 45 s.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab sim calibrate --output costs.toml
  lab sim calibrate --cores 2,3

Exit codes: 0 success, 2 error")]
pub struct CalibrateArgs {
    /// Costs file to write [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The two CPUs
    #[arg(long, value_name = "A,B", default_value = "0,1")]
    pub cores: Cores,
}
