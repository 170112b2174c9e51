//! `lab take-over`: the longest wait of hosts while another process takes the target over.
//!
//! The target and its successors are processes of the program. The hosts are connections
//! [by hand](testing::Client) of this process: none reconnects, so one that breaks fails the run.

mod load;

use crate::Note;
use crate::limit::IdleHosts;
use crate::peer::Peer;
use crate::process::Target;
use ::load::{Latency, Machine};
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use config::schema::DEFAULT_NQN;
use load::{Load, Phase};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest wait of 99.9 % of the connections that is within the goal, in milliseconds.
const P999_MAX_MS: f64 = 100.0;

/// Bytes of a block.
const BLOCK_BYTES: u32 = 4096;

/// Rounds of the load before and after each take-over.
const ROUNDS: u64 = 3;

/// Measure how long hosts wait while another process takes the target over
///
/// Each connection writes and reads its own block, one command at a time, and compares the data.
/// The result is the longest latency of each connection in each take-over.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  lab take-over
  lab take-over --connections 100 --times 100 --json
  lab take-over --other ./switchyard-1.0.0-rc.1

Exit codes: 0 within the goal, 1 not within it, 2 error: a lost connection, wrong data")]
pub struct TakeOverArgs {
    /// Connections
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub connections: u16,
    /// Take-overs in a row
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub times: u32,
    /// CPU of the target
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub target_core: u32,
    /// Other build of switchyard, such as an earlier version: every second successor is this program
    #[arg(long, value_name = "PROGRAM")]
    pub other: Option<PathBuf>,
}

/// The waits of all connections in all take-overs.
#[derive(Debug, Serialize)]
pub struct TakeOverReport {
    connections: u16,
    times: u32,
    /// Longest latency of each connection during each take-over.
    wait_us: Latency,
    /// The same between take-overs.
    undisturbed_us: Latency,
    /// Commands completed.
    commands: u64,
    /// Mean time from the start of a successor until it serves.
    start_ms: f64,
    machine: Machine,
}

impl TakeOverReport {
    /// Returns true if the goal is met.
    #[must_use]
    pub fn within(&self) -> bool {
        self.wait_us.p999 <= P999_MAX_MS * 1e3
    }
}

impl fmt::Display for TakeOverReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            connections,
            times,
            commands,
            start_ms,
            ..
        } = self;
        let line = |f: &mut fmt::Formatter<'_>, name: &str, of: &Latency| {
            let [p50, p99, p999, max] = [of.p50, of.p99, of.p999, of.max].map(|us| us / 1e3);
            writeln!(
                f,
                "{name:12}  p50 {p50:7.2} ms  p99 {p99:7.2} ms  p99.9 {p999:7.2} ms  max {max:7.2} ms"
            )
        };
        writeln!(
            f,
            "{times} take-overs, {connections} connections, {commands} commands; a successor serves \
             after {start_ms:.0} ms"
        )?;
        line(f, "take-over", &self.wait_us)?;
        line(f, "undisturbed", &self.undisturbed_us)?;
        let verdict = if self.within() {
            "within"
        } else {
            "not within"
        };
        write!(f, "{verdict} the goal: p99.9 at most {P999_MAX_MS} ms")
    }
}

/// Measures the waits.
///
/// # Errors
/// A target that is not taken over, a lost connection, or data that differ.
pub fn run(args: &TakeOverArgs, note: Note<'_>) -> Result<TakeOverReport> {
    let cores = [args.target_core];
    let ram = u64::from(args.connections) * u64::from(BLOCK_BYTES);
    let mut target = Target::start(&cores, ram, &[])?;
    let peer = Peer {
        address: target.address(),
        nqn: DEFAULT_NQN.to_owned(),
        nsid: 1,
        block_bytes: BLOCK_BYTES,
    };
    let queues = IdleHosts::connect(&peer, args.connections)?.into_queues();
    let load = Load::start(peer, queues)?;
    let mut starting = Duration::ZERO;
    for number in 1..=args.times {
        note(format_args!("take-over {number} of {}", args.times));
        load.enter(Phase::Undisturbed, ROUNDS)?;
        load.enter(Phase::TakeOver, 1)?;
        let began = Instant::now();
        let other = args.other.as_deref().filter(|_| number % 2 == 1);
        let next = target.successor(other, &cores, ram)?;
        starting += began.elapsed();
        let ended = std::mem::replace(&mut target, next).end()?;
        ensure!(ended.success(), "the target that was taken over: {ended}");
        load.pass(ROUNDS)?;
    }
    let waits = load.end().context("the load during the take-overs")?;
    Ok(TakeOverReport {
        connections: args.connections,
        times: args.times,
        wait_us: Latency::of(&waits.taken_over),
        undisturbed_us: Latency::of(&waits.undisturbed),
        commands: waits.commands,
        start_ms: starting.as_secs_f64() * 1e3 / f64::from(args.times),
        machine: Machine::look(),
    })
}
