//! Cost of an idle target with a thousand open connections.

use super::args::LimitArgs;
use super::idle_hosts::IdleHosts;
use super::limits::{IDLE_CONNECTIONS, IDLE_NAME};
use crate::peer::Peer;
use crate::proc::{cpu_seconds, memory_bytes};
use crate::process::{RAM_BYTES, Target};
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::time::{Duration, Instant};

/// Bounds: percent of a core, and bytes of memory per connection.
const CPU_PERCENT_MAX: f64 = 1.0;
const BYTES_PER_CONNECTION_MAX: f64 = 64.0 * 1024.0;

/// The shortest observation. The kernel counts a process's time in steps of 10 ms, which are
/// negligible over this time.
const WATCH_MIN: Duration = Duration::from_secs(10);

/// Time for new connections to settle before the measurement.
const SETTLE: Duration = Duration::from_secs(2);

/// Cost of an idle target.
#[derive(Debug, Serialize)]
pub(super) struct IdleReport {
    case: &'static str,
    connections: u16,
    /// Percent of one core.
    cpu_percent: f64,
    cpu_percent_bound: f64,
    bytes_per_connection: f64,
    bytes_per_connection_bound: f64,
    pub(super) within: bool,
}

impl fmt::Display for IdleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = |bytes: f64| bytes / 1024.0;
        write!(
            f,
            "{}: {:.2} % of a core (< {} %), {:.1} KiB per connection (< {:.0} KiB)",
            self.case,
            self.cpu_percent,
            self.cpu_percent_bound,
            kib(self.bytes_per_connection),
            kib(self.bytes_per_connection_bound)
        )
    }
}

/// Opens the connections, waits, and measures the target's process.
///
/// # Errors
/// The target does not start; a connection cannot be made or does not last.
pub(super) fn run(args: &LimitArgs) -> Result<IdleReport> {
    let target = Target::start(&[args.target_core], RAM_BYTES, &["--poll", "auto"])?;
    // One host causes the target's one-time allocations.
    drop(target.connect(1)?);
    let before = memory_bytes(target.pid(), "VmRSS")?;
    let connections = args.idle_connections;
    let peer = Peer {
        address: target.address(),
        nqn: config::schema::DEFAULT_NQN.to_owned(),
        nsid: 1,
        block_bytes: 4096,
    };
    let mut hosts = IdleHosts::connect(&peer, connections)?;
    // With fewer connections than the case has, times are not judged.
    let (settle, watch) = if connections < IDLE_CONNECTIONS {
        (Duration::ZERO, args.seconds)
    } else {
        (SETTLE, args.seconds.max(WATCH_MIN))
    };
    std::thread::sleep(settle);
    let cpu_before = cpu_seconds(target.pid())?;
    let started = Instant::now();
    std::thread::sleep(watch);
    let watched = started.elapsed();
    let cpu = cpu_seconds(target.pid())? - cpu_before;
    let after = memory_bytes(target.pid(), "VmRSS")?;
    hosts.prove_alive()?;
    // Before its hosts, which need no orderly disconnect.
    drop(target);
    let cpu_percent = 100.0 * cpu / watched.as_secs_f64();
    let bytes_per_connection = after.saturating_sub(before) as f64 / f64::from(connections);
    Ok(IdleReport {
        case: IDLE_NAME,
        connections,
        cpu_percent,
        cpu_percent_bound: CPU_PERCENT_MAX,
        bytes_per_connection,
        bytes_per_connection_bound: BYTES_PER_CONNECTION_MAX,
        within: cpu_percent < CPU_PERCENT_MAX && bytes_per_connection < BYTES_PER_CONNECTION_MAX,
    })
}
