//! This very program in processes of its own: targets and loads for experiments.
//!
//! A process must never outlive the one that started it.

mod configuration;
mod foreign;
mod interface;
mod load;
mod runner;
mod target;
mod threads;

pub use foreign::found;
pub use runner::MachineRunner;
pub use target::{RAM_BYTES, Target, prefill};

use anyhow::{Context as _, Result};
use std::fs;
use std::process::Command;

/// This program, to be started again.
fn program() -> Result<Command> {
    let path = std::env::current_exe().context("cannot find this program itself")?;
    Ok(Command::new(path))
}

/// Processor time of a running process, user and system, in seconds; in steps of 10 ms.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    // Fields 14 and 15 of proc(5).
    ticks(&format!("/proc/{pid}/stat"), [14, 15])
}

/// Memory of a running process in bytes, by a line of /proc/PID/status: VmRSS is what it has now,
/// VmHWM the most that it had.
pub fn memory_bytes(pid: u32, line: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let number = text.lines().find_map(|text| {
        let number = text.strip_prefix(line)?.strip_prefix(':')?;
        number.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    Ok(number.with_context(|| format!("{path} has an unknown form"))? * 1024)
}

/// Processor time of all processes that this one has started and seen the end of.
fn ended_children_cpu_seconds() -> Result<f64> {
    // Fields 16 and 17 of proc(5).
    ticks("/proc/self/stat", [16, 17])
}

fn ticks(path: &str, fields: [usize; 2]) -> Result<f64> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    // The name, in parentheses, may hold anything; what follows it is numbers, from field 3 on.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let words: Vec<_> = rest.split_whitespace().collect();
    let number = |field: usize| words.get(field - 3)?.parse::<u64>().ok();
    let [first, second] = fields.map(number);
    let used = first.zip(second).map(|(user, system)| user + system);
    let used = used.with_context(|| format!("{path} has an unknown form"))?;
    Ok(used as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_process_has_memory() {
        let [now, most] = ["VmRSS", "VmHWM"].map(|line| memory_bytes(std::process::id(), line));
        assert!(now.unwrap() > 100_000 && most.unwrap() > 100_000);
    }

    #[test]
    fn this_very_process_has_used_time() {
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
        let before = ended_children_cpu_seconds().unwrap();
        let ended = Command::new("true").status().unwrap();
        assert!(ended.success());
        assert!(ended_children_cpu_seconds().unwrap() >= before);
    }
}
