//! `lab hostile`.

use super::loads::Load;
use clap::Args;
use control::model::DEFAULT_NQN;
use host::resolve;
use load::measured_seconds;
use std::net::SocketAddr;
use std::time::Duration;
use wire::tcp::limits::IO_PORT;

/// Measure what a well-behaved host notices of hostile ones
///
/// A neighbour reads 4 KiB at a time, writes now and then, and checks every answer: first
/// undisturbed, then beside a load, in turns. For each load this prints the target's memory and
/// processor time, and the neighbour's 99th percentiles with their ratio; and those of the time
/// until the neighbour's kernel had the answer, which leave out how long the neighbour waited for
/// the processor that it shares with the load; and the longest time of any command, and the ratio
/// of the commands in the same time, in which one that waits long counts for all that it kept from
/// being sent. A load is within its bound if no command of the neighbour fails, the median of the
/// percentiles' ratios is at most 1.5, that of the commands' ratios at least a third, and a host
/// can connect afterwards.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Loads:
  half_open      1,000 connections that send half an ICReq
  idle           10,000 connected queues that do nothing
  connect_storm  50 hosts that connect 127 I/O queues each, again and again
  deaf           a host with 16 I/O queues, and 200 discovery controllers, that ask and do not read
  slow           100 connections that send a byte a second
  flood          a host that keeps four queues of 128 entries full of small reads
  overrun        hosts that send more commands than their queues have entries
  keep_alives    16 admin queues full of Keep Alive commands
  aborts         16 admin queues full of Abort commands, beside reads to abort
  no_files       400 connections to a target that may open 200 files
  little_memory  hosts that do not read, and 2,000 idle queues, at a target with 256 MiB

Examples:
  lab hostile
  lab hostile --load deaf --runs 9 --json
  lab hostile --target 127.0.0.1:4420 --pid 1234 --load flood

Exit codes: 0 every load is within its bound, 1 one is not, 2 an error")]
pub struct HostileArgs {
    /// Only this load (repeatable) [default: all]
    #[arg(long = "load", value_name = "NAME", value_parser = loads())]
    pub loads: Vec<String>,
    /// A target that runs already; OVERWRITES THE FIRST 4 MiB OF THE NAMESPACE [default: one is
    /// started for each load]
    #[arg(long, value_name = "ADDRESS", value_parser = |text: &str| resolve(text, IO_PORT))]
    pub target: Option<SocketAddr>,
    /// The process of that target, on this machine
    #[arg(long, value_name = "PID", requires = "target")]
    pub pid: Option<u32>,
    /// The subsystem's name
    #[arg(long, value_name = "NQN", default_value = DEFAULT_NQN)]
    pub nqn: String,
    /// The namespace's identifier
    #[arg(long, value_name = "NSID", default_value_t = 1)]
    pub nsid: u32,
    /// Pairs of runs for each load
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,
    /// Measure for so many seconds in each run
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = measured_seconds)]
    pub seconds: Duration,
    /// The processor of the target that is started
    #[arg(
        long,
        value_name = "CORE",
        default_value_t = 0,
        conflicts_with = "target"
    )]
    pub target_core: u32,
    /// The processor of the neighbour and the loads
    #[arg(long, value_name = "CORE", default_value_t = 1)]
    pub load_core: u32,
    /// The neighbour's queue is of class L (must finish soon), as hosts of this program can say
    #[arg(long)]
    pub latency: bool,
    /// Small loads, and no judgement of times: only whether the neighbour's commands succeed
    #[arg(long)]
    pub smoke: bool,
}

fn loads() -> clap::builder::PossibleValuesParser {
    Load::ALL.map(Load::name).into()
}
