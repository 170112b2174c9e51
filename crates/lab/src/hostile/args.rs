//! `lab hostile`.

use super::loads::Load;
use clap::Args;
use config::schema::DEFAULT_NQN;
use host::resolve;
use load::measured_seconds;
use std::net::SocketAddr;
use std::time::Duration;
use wire::tcp::limits::IO_PORT;

/// Measure the impact of hostile hosts on a well-behaved host
///
/// A well-behaved host ("neighbour") issues 4 KiB reads and occasional writes at depth 1, and
/// verifies the data. Runs without and with the hostile load alternate. For each load the command
/// prints:
///
///   - memory and CPU time of the target
///   - the neighbour's 99th percentiles and their ratio, from send to completion, and from send to
///     arrival in the neighbour's kernel (without the wait for the CPU shared with the load)
///   - the longest latency, and the ratio of completed commands
///
/// A load is within its bounds if no command of the neighbour fails, the median ratio of the 99th
/// percentiles is at most 1.5, that of the completed commands is at least 1/3, and a new host can
/// connect afterwards.
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
#[command(after_long_help = "Loads:
  half_open      1,000 connections that send half of an ICReq PDU
  idle           10,000 connected, idle queues
  connect_storm  50 hosts that connect 127 I/O queues each, repeatedly
  deaf           a host with 16 I/O queues, and 200 discovery hosts, that never read responses
  slow           100 connections that send one byte per second
  flood          a host that keeps four queues of 128 entries full of small reads
  overrun        hosts that send more commands than their queues have entries
  keep_alives    16 admin queues full of Keep Alive commands
  aborts         16 admin queues full of Abort commands, with reads to abort
  no_files       400 connections to a target with a limit of 200 open files
  little_memory  hosts that never read responses, and 2,000 idle queues, on a target with 256 MiB
  handshakes     1,000 TLS handshakes per second (bound: 1.2 times the p99 of answers)

Examples:
  lab hostile
  lab hostile --load deaf --runs 9 --json
  lab hostile --target 127.0.0.1:4420 --pid 1234 --load flood

Exit codes: 0 all loads within their bounds, 1 a bound missed, 2 error")]
pub struct HostileArgs {
    /// Run only this load (repeatable) [default: all]
    #[arg(long = "load", value_name = "NAME", value_parser = loads())]
    pub loads: Vec<String>,
    /// Running target to use; OVERWRITES THE FIRST 4 MiB OF THE NAMESPACE [default: start a target
    /// for each load]
    #[arg(long, value_name = "ADDRESS", value_parser = |text: &str| resolve(text, IO_PORT))]
    pub target: Option<SocketAddr>,
    /// Process ID of that target, if it runs on this machine
    #[arg(long, value_name = "PID", requires = "target")]
    pub pid: Option<u32>,
    /// NQN of the subsystem
    #[arg(long, value_name = "NQN", default_value = DEFAULT_NQN)]
    pub nqn: String,
    /// Namespace ID
    #[arg(long, value_name = "NSID", default_value_t = 1)]
    pub nsid: u32,
    /// Number of pairs of runs per load
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,
    /// Measured time of each run
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = measured_seconds)]
    pub seconds: Duration,
    /// CPU of the started target
    #[arg(
        long,
        value_name = "CORE",
        default_value_t = 0,
        conflicts_with = "target"
    )]
    pub target_core: u32,
    /// CPU of the neighbour and the loads
    #[arg(long, value_name = "CORE", default_value_t = 1)]
    pub load_core: u32,
    /// Give the neighbour's queue class L (latency)
    #[arg(long)]
    pub latency: bool,
    /// Small loads without bounds on times: check only that the neighbour's commands succeed
    #[arg(long)]
    pub smoke: bool,
}

fn loads() -> clap::builder::PossibleValuesParser {
    Load::ALL.map(Load::name).into()
}
