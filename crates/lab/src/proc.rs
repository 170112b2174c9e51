//! Processor time and memory of other processes, from `/proc`.

use anyhow::{Context as _, Result};
use std::fs;
use std::time::Duration;

/// Run time of threads, their time on run queues, and their number of time slices, since the
/// threads' start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheduled {
    pub(crate) run: Duration,
    pub(crate) wait: Duration,
    pub(crate) slices: u64,
}

impl Scheduled {
    /// The sum over threads of process `pid` whose name begins with `name` (all if empty). Threads
    /// that have ended do not count.
    pub(crate) fn of(pid: u32, name: &str) -> Self {
        let mut sum = Self::default();
        for thread in fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let file = |name: &str| fs::read_to_string(thread.path().join(name));
            let ours = name.is_empty() || file("comm").is_ok_and(|comm| comm.starts_with(name));
            let scheduled = file("schedstat").ok().and_then(|text| Self::parse(&text));
            if let Some(scheduled) = scheduled.filter(|_| ours) {
                sum = sum.plus(scheduled);
            }
        }
        sum
    }

    /// Parses nanoseconds run, nanoseconds waited, number of slices.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Self {
            run: Duration::from_nanos(next()?),
            wait: Duration::from_nanos(next()?),
            slices: next()?,
        })
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            run: self.run + other.run,
            wait: self.wait + other.wait,
            slices: self.slices + other.slices,
        }
    }
}

/// Returns the processor time of a running process, user and system, in seconds, with a resolution
/// of 10 ms.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    Ok(seconds(ticks(&path, 14)? + ticks(&path, 15)?))
}

/// Returns the user time of a running process, in seconds, with a resolution of 10 ms.
pub(crate) fn user_seconds(pid: u32) -> Result<f64> {
    Ok(seconds(ticks(&format!("/proc/{pid}/stat"), 14)?))
}

/// Returns the processor time of all children of this process that have ended and been waited for.
pub(crate) fn ended_children_cpu_seconds() -> Result<f64> {
    Ok(seconds(ticks(OWN, 16)? + ticks(OWN, 17)?))
}

/// Returns their user time.
pub(crate) fn ended_children_user_seconds() -> Result<f64> {
    Ok(seconds(ticks(OWN, 16)?))
}

const OWN: &str = "/proc/self/stat";

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Returns a number of a `stat` file by its field from 1 on, except the name. `[proc_pid_stat(5)]`
fn ticks(path: &str, field: usize) -> Result<u64> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    // The name, in parentheses, may contain any character; field 3 follows it.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let number = rest.split_whitespace().nth(field - 3);
    number
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("{path} has an unknown format"))
}

/// Memory of a running process in bytes, by a line of /proc/PID/status: VmRSS is the current size,
/// VmHWM the peak.
pub(crate) fn memory_bytes(pid: u32, line: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let number = text.lines().find_map(|text| {
        let number = text.strip_prefix(line)?.strip_prefix(':')?;
        number.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    Ok(number.with_context(|| format!("{path} has an unknown format"))? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_s_numbers_are_read_and_added() {
        let of = |text| Scheduled::parse(text).unwrap();
        let sum = of("8000 4000 2\n").plus(of("0 0 2"));
        let expected = Scheduled {
            run: Duration::from_micros(8),
            wait: Duration::from_micros(4),
            slices: 4,
        };
        assert_eq!(sum, expected);
        assert_eq!(Scheduled::parse("1 2"), None);
    }

    #[test]
    fn threads_are_found_by_their_name() {
        let thread = std::thread::Builder::new().name("Lfound/0".to_owned());
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = thread.spawn(move || stopped.recv()).unwrap();
        let pid = std::process::id();
        while Scheduled::of(pid, "Lfound/0").slices == 0 {
            std::thread::yield_now();
        }
        assert_eq!(Scheduled::of(pid, "no thread is called so").slices, 0);
        drop(stop);
        assert!(thread.join().unwrap().is_err());
    }

    #[test]
    fn this_very_process_has_memory() {
        let [now, most] = ["VmRSS", "VmHWM"].map(|line| memory_bytes(std::process::id(), line));
        assert!(now.unwrap() > 100_000 && most.unwrap() > 100_000);
    }

    #[test]
    fn this_very_process_has_used_time() {
        let pid = std::process::id();
        assert!(cpu_seconds(pid).unwrap() >= user_seconds(pid).unwrap());
        let before = ended_children_cpu_seconds().unwrap();
        let ended = std::process::Command::new("true").status().unwrap();
        assert!(ended.success());
        assert!(ended_children_cpu_seconds().unwrap() >= before);
    }
}
