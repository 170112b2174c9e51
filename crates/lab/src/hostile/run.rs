//! `lab hostile`: effects of hostile hosts on a well-behaved host.
//!
//! The target is this program, `serve` in a separate process for each pair of runs, so that its
//! memory is that of a single load. The neighbour and the loads run in this process, on another
//! core.

use super::HostileArgs;
use super::confined::Confined;
use super::handshake::KEY;
use super::loads::{Load, Size, beside};
use super::neighbour::{Measured, Neighbour};
use super::report::{HostileReport, LoadResult, RATE_RATIO_MIN, RATIO_MAX, RATIO_MAX_HANDSHAKES};
use crate::Note;
use crate::folder::Folder;
use crate::peer::Peer;
use crate::proc::{cpu_seconds, memory_bytes};
use crate::process::Target;
use anyhow::{Context as _, Result, ensure};
use base::units::CoreId;
use block::Device as _;
use host::Host;
use load::Machine;
use load::RunSummary;
use reactor::{PollPolicy, placement};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

/// Memory of the target's namespace, in bytes.
const RAM_BYTES: u64 = 64 << 20;

/// Limit on the target's open files in [`Load::NoFiles`]: more than it opens without hosts.
const FILES: u64 = 200;

/// Limit on the target's memory in [`Load::LittleMemory`], in bytes.
const MEMORY_BYTES: u64 = 256 << 20;

/// Time for which a new host retries its connection after a load has ended.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same during the load: less than a target takes to detect peers that do not read.
const PATIENCE_BESIDE: Duration = Duration::from_secs(10);

/// New hosts that connect during a load, one after the other.
const NEWCOMERS: usize = 3;

/// The warm-up is the measured time of a run divided by this number.
const WARMUP_DIVISOR: u32 = 4;

/// Size of a load in a smoke test, in hundredths.
const SMOKE_PERCENT: usize = 4;

/// Runs the loads and reports their effects.
///
/// # Errors
/// A core that may not be used, a target that does not start, or a load that cannot be established.
pub fn run(args: &HostileArgs, note: Note<'_>) -> Result<HostileReport> {
    let chosen = |name: &str| args.loads.is_empty() || args.loads.iter().any(|load| load == name);
    let mut lines = Vec::new();
    for load in Load::ALL.into_iter().filter(|load| chosen(load.name())) {
        let name = load.name();
        let own = matches!(load, Load::NoFiles | Load::LittleMemory | Load::Handshakes);
        if own && args.target.is_some() {
            note(format_args!(
                "{name}: needs a target started for it; skipped"
            ));
            continue;
        }
        lines.push(measure(load, args, note).context(name)?);
    }
    Ok(HostileReport {
        loads: lines,
        judged: !args.smoke,
        machine: Machine::look(),
    })
}

/// Results of one pair of runs.
struct Pair {
    undisturbed: Measured,
    disturbed: Measured,
    cpu_percent: Option<f64>,
    memory_bytes: Option<u64>,
    done: u64,
    confined_by: Option<&'static str>,
}

fn measure(load: Load, args: &HostileArgs, note: Note<'_>) -> Result<LoadResult> {
    let name = load.name();
    let mut pairs = Vec::new();
    for run in 1..=args.runs {
        note(format_args!("{name}: pair {run} of {}", args.runs));
        // On a separate thread, the neighbour's, which is pinned to its core.
        let pair = std::thread::scope(|scope| {
            let thread = scope.spawn(|| pair(load, args));
            thread.join().expect("a neighbour does not panic")
        });
        pairs.push(pair?);
    }
    Ok(line(name, &pairs, args.smoke))
}

/// Summarises the pairs and judges them; a smoke test has no bounds on times.
fn line(load: &'static str, pairs: &[Pair], smoke: bool) -> LoadResult {
    let spread = |value: &dyn Fn(&Pair) -> f64| {
        let values: Vec<_> = pairs.iter().map(value).collect();
        RunSummary::of(&values).expect("at least one pair")
    };
    let ratio = spread(&|pair| pair.disturbed.p99_us / pair.undisturbed.p99_us);
    let rate_ratio =
        spread(&|pair| pair.disturbed.commands as f64 / pair.undisturbed.commands as f64);
    let runs = || pairs.iter().flat_map(|p| [&p.undisturbed, &p.disturbed]);
    let failed = runs().map(|run| run.failed).sum();
    let cpu: Vec<_> = pairs.iter().filter_map(|pair| pair.cpu_percent).collect();
    // Half of each handshake is computed on the neighbour's own core.
    let is_prompt = if load == Load::Handshakes.name() {
        let of = |pair: &Pair| pair.disturbed.answer_p99_us / pair.undisturbed.answer_p99_us;
        spread(&of).median <= RATIO_MAX_HANDSHAKES
    } else {
        ratio.median <= RATIO_MAX
    };
    let in_time = is_prompt && rate_ratio.median >= RATE_RATIO_MIN;
    LoadResult {
        load,
        done: pairs.iter().map(|pair| pair.done).sum(),
        memory_bytes: pairs.iter().filter_map(|pair| pair.memory_bytes).max(),
        cpu_percent: RunSummary::of(&cpu),
        undisturbed_p50_us: spread(&|pair| pair.undisturbed.p50_us),
        disturbed_p50_us: spread(&|pair| pair.disturbed.p50_us),
        undisturbed_p99_us: spread(&|pair| pair.undisturbed.p99_us),
        disturbed_p99_us: spread(&|pair| pair.disturbed.p99_us),
        undisturbed_answer_p99_us: spread(&|pair| pair.undisturbed.answer_p99_us),
        disturbed_answer_p99_us: spread(&|pair| pair.disturbed.answer_p99_us),
        disturbed_max_us: spread(&|pair| pair.disturbed.max_us),
        ratio,
        rate_ratio,
        commands: runs().map(|run| run.commands).sum(),
        failed,
        failure: runs().find_map(|run| run.failure.clone()),
        confined_by: pairs.iter().find_map(|pair| pair.confined_by),
        within: failed == 0 && (smoke || in_time),
    }
}

/// Runs the neighbour undisturbed, and then under the load.
fn pair(load: Load, args: &HostileArgs) -> Result<Pair> {
    let key = (load == Load::Handshakes).then(key_file).transpose()?;
    let path = key.as_ref().map(|(_, path)| path.as_str());
    let tls = path.map(|path| ["--tls", "allowed", "--tls-key", path]);
    let further: Vec<_> = ["--log", "error"]
        .into_iter()
        .chain(tls.into_iter().flatten())
        .collect();
    let target = match args.target {
        Some(_) => None,
        None => Some(Target::start(&[args.target_core], RAM_BYTES, &further)?),
    };
    // Only now, because a process inherits the processor affinity of its parent.
    let core = CoreId(args.load_core);
    placement::pin_to(core)?;
    let pid = target.as_ref().map(Target::pid).or(args.pid);
    let confined = match (load, pid) {
        (Load::NoFiles, Some(pid)) => Some(Confined::files(pid, FILES)?),
        (Load::LittleMemory, Some(pid)) => Some(Confined::memory(pid, MEMORY_BYTES)?),
        _ => None,
    };
    let address = target.as_ref().map(Target::address).or(args.target);
    let peer = Peer {
        address: address.context("a target is given or started")?,
        nqn: args.nqn.clone(),
        nsid: args.nsid,
        block_bytes: match &target {
            Some(_) => 4096,
            None => block_bytes(args)?,
        },
    };
    let mut neighbour = Neighbour::connect(&peer, args.latency)?;
    neighbour.run(args.seconds / WARMUP_DIVISOR);
    let undisturbed = neighbour.run(args.seconds);
    let cpu = |pid: Option<u32>| pid.map(cpu_seconds).transpose();
    let size = Size(if args.smoke { SMOKE_PERCENT } else { 100 });
    let ((disturbed, cpu_percent, came_in), done) = beside(load, &peer, size, Some(core), || {
        let (before, begun) = (cpu(pid), Instant::now());
        let disturbed = neighbour.run(args.seconds);
        let watched = begun.elapsed().as_secs_f64();
        let used = before.ok().flatten().zip(cpu(pid).ok().flatten());
        let percent = used.map(|(before, after)| 100.0 * (after - before) / watched);
        let newcomers = if load.keeps_out() { NEWCOMERS } else { 0 };
        let came_in = (0..newcomers).try_for_each(|_| comes_in(&peer, PATIENCE_BESIDE));
        (disturbed, percent, came_in.context("during the load"))
    })?;
    let memory_bytes = pid.map(|pid| memory_bytes(pid, "VmHWM")).transpose()?;
    let mut disturbed = disturbed;
    for came_in in [came_in, comes_in(&peer, PATIENCE)] {
        if let Err(error) = came_in {
            disturbed.failed += 1;
            disturbed.failure.get_or_insert(format!("{error:#}"));
        }
    }
    // Before the control group that confines it, which can only be removed when empty.
    drop(target);
    Ok(Pair {
        undisturbed,
        disturbed,
        cpu_percent,
        memory_bytes,
        done,
        confined_by: confined.as_ref().map(|confined| confined.by),
    })
}

/// Writes the key of the hosts that shake hands to a file, in a folder that is removed afterwards.
fn key_file() -> Result<(Folder, String)> {
    let folder = Folder::new("hostile")?;
    let path = folder.path().join("key");
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    file.write_all(KEY.as_bytes())?;
    let path = path
        .to_str()
        .context("the temporary folder's name is no text")?;
    Ok((folder, path.to_owned()))
}

/// Checks that a host can connect and is served; retries for `patience`.
fn comes_in(peer: &Peer, patience: Duration) -> Result<()> {
    let begun = Instant::now();
    loop {
        let served = Neighbour::connect(peer, false).and_then(|mut neighbour| {
            let run = neighbour.run(Duration::from_millis(1));
            ensure!(run.failed == 0, "commands of a new host fail");
            Ok(())
        });
        match served {
            Err(error) if begun.elapsed() < patience => {
                tracing::debug!("{error:#}");
                std::thread::sleep(Duration::from_millis(100));
            }
            served => return served.context("a new host cannot connect"),
        }
    }
}

/// Returns the block size of the namespace in bytes.
fn block_bytes(args: &HostileArgs) -> Result<u32> {
    let address = args.target.context("a target is given")?;
    let host = Host::builder().poll(PollPolicy::Never).build()?;
    let subsystem = host.connect(&address.to_string(), &args.nqn)?;
    Ok(subsystem
        .namespace(args.nsid)?
        .device()
        .geometry()
        .block_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(commands: u64, max_us: f64) -> Measured {
        Measured {
            commands,
            failed: 0,
            p50_us: 20.0,
            p99_us: 40.0,
            max_us,
            answer_p99_us: 15.0,
            failure: None,
        }
    }

    /// One command waits for nearly all of the time, which no percentile shows.
    #[test]
    fn a_neighbour_that_stands_still_is_not_within_the_bound() {
        let beside = |disturbed| {
            let pair = Pair {
                undisturbed: measured(40_000, 300.0),
                disturbed,
                cpu_percent: None,
                memory_bytes: None,
                done: 1,
                confined_by: None,
            };
            line("deaf", &[pair], false)
        };
        assert!(beside(measured(38_000, 400.0)).within);
        let stalled = beside(measured(4_000, 900_000.0));
        assert!(!stalled.within);
        assert!((stalled.ratio.median - 1.0).abs() < 1e-9);
        let report = HostileReport {
            loads: vec![stalled],
            judged: true,
            machine: Machine::look(),
        };
        let text = report.to_string();
        for part in ["900000", "0.10 (0.10–0.10)", "MISSED"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
