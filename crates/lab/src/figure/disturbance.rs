//! Processor time that a run loses to the hypervisor and to other processes of this machine.

use crate::proc::Scheduled;
use base::Nanos;
use reactor::placement;
use rustix::param::clock_ticks_per_second;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Disturbances, as parts of the time of all processors, in permille.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disturbance {
    /// Time taken by the hypervisor.
    pub stolen: f64,
    /// Time of processes other than this one and its descendants, including kernel threads.
    pub others: f64,
    /// Nanoseconds that a cache line takes from one processor to another after the run; 0 if there
    /// is only one processor. Not a disturbance, but a condition of the run: a hypervisor moves its
    /// virtual processors, and two that share a cache exchange lines several times faster than two
    /// that do not.
    pub apart_ns: f64,
}

impl Disturbance {
    /// Above either value a run counts as disturbed. The kernel counts stolen time in hundredths of
    /// a second, so a short run may lose none; hardly any machine leaves a run entirely
    /// undisturbed.
    pub const QUIET: Self = Self {
        stolen: 2.0,
        others: 5.0,
        apart_ns: 0.0,
    };

    /// Returns the disturbance since `before`, and the present distance between the processors.
    ///
    /// # Errors
    /// As [`ProcessorTime::now`].
    pub fn since(before: &ProcessorTime) -> io::Result<Self> {
        let since = ProcessorTime::now()?.since(before);
        Ok(Self {
            apart_ns: apart().as_secs_f64() * 1e9,
            ..since
        })
    }

    /// Returns the disturbance as a multiple of [`QUIET`](Self::QUIET).
    #[must_use]
    pub fn degree(self) -> f64 {
        let stolen = self.stolen / Self::QUIET.stolen;
        stolen.max(self.others / Self::QUIET.others)
    }
}

/// Processor time by user since boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// Time of all processors, in the kernel's ticks.
    all: u64,
    /// The part of it taken by the hypervisor; zero on real processors.
    stolen: u64,
    /// Run time of each other process's threads, in nanoseconds.
    others: HashMap<u32, u64>,
}

impl ProcessorTime {
    /// Reads the present values.
    ///
    /// # Errors
    /// `/proc` cannot be read. A process that ended meanwhile is no error.
    pub fn now() -> io::Result<Self> {
        let mut now = Self::parse(&fs::read_to_string("/proc/stat")?).unwrap_or_default();
        now.others = others(std::process::id())?;
        Ok(now)
    }

    /// Parses the line of all processors: user, nice, system, idle, iowait, irq, softirq, steal;
    /// the later fields are parts of user and nice. `[proc_stat(5)]`
    fn parse(text: &str) -> Option<Self> {
        let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields = all.split_ascii_whitespace().take(8);
        let fields = fields
            .map(str::parse)
            .collect::<Result<Vec<u64>, _>>()
            .ok()?;
        Some(Self {
            all: fields.iter().sum(),
            stolen: *fields.get(7)?,
            others: HashMap::new(),
        })
    }

    /// Returns the disturbance of this process and its descendants since `before`.
    fn since(&self, before: &Self) -> Disturbance {
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        let stolen = self.stolen.saturating_sub(before.stolen) as f64;
        let ran = |(pid, &ran): (&u32, &u64)| {
            let before = before.others.get(pid).copied().unwrap_or_default();
            // A PID may be reused, by a process that ran for less time.
            ran.checked_sub(before).unwrap_or(ran)
        };
        let others = self.others.iter().map(ran).sum::<u64>() as f64;
        Disturbance {
            stolen: stolen / all * 1e3,
            others: others / 1e9 * clock_ticks_per_second() as f64 / all * 1e3,
            apart_ns: 0.0,
        }
    }
}

/// Number of samples, each of [`WAYS`] transfers of the line in both directions. The median counts,
/// because other processes may occupy a processor for a while.
const STRETCHES: usize = 9;
/// See [`STRETCHES`].
const WAYS: u32 = 256;

/// Longest wait for the line: an end that waits longer has lost the other processor.
const PATIENCE: Duration = Duration::from_millis(20);

/// Returns the transfer time of a cache line between the first two allowed processors; zero if
/// there is only one, or if it cannot be measured.
fn apart() -> Duration {
    let Ok(cores) = placement::allowed_cores() else {
        return Duration::ZERO;
    };
    let &[first, second, ..] = &cores[..] else {
        return Duration::ZERO;
    };
    let line = AtomicU32::new(0);
    // The ends take turns: one writes when the value is even, the other when it is odd.
    let end = |core, odd: u32| {
        placement::pin_to(core).ok()?;
        let mut stretches = [Duration::ZERO; STRETCHES];
        let mut way = 0;
        for stretch in &mut stretches {
            let start = Instant::now();
            for _ in 0..WAYS {
                let mut looks = 0_u32;
                while line.load(Ordering::Acquire) != 2 * way + odd {
                    std::hint::spin_loop();
                    looks += 1;
                    if looks.is_multiple_of(1_024) && start.elapsed() > PATIENCE {
                        return None;
                    }
                }
                line.store(2 * way + odd + 1, Ordering::Release);
                way += 1;
            }
            *stretch = start.elapsed();
        }
        stretches.sort_unstable();
        Some(stretches[STRETCHES / 2] / (2 * WAYS))
    };
    let way = thread::scope(|scope| {
        let there = scope.spawn(|| end(first, 0));
        scope.spawn(|| end(second, 1));
        there.join()
    });
    way.ok().flatten().unwrap_or_default()
}

/// Returns the run time in nanoseconds of each process, except `own`, its descendants, and kernel
/// threads that receive packets: these packets belong to the measurement.
fn others(own: u32) -> io::Result<HashMap<u32, u64>> {
    let mut parents = HashMap::new();
    let mut receivers = HashSet::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let stat = fs::read_to_string(entry.path().join("stat")).ok();
        let Some((pid, (name, parent))) = pid.zip(stat.as_deref().and_then(name_and_parent)) else {
            continue;
        };
        parents.insert(pid, parent);
        if name.starts_with("ksoftirqd/") {
            receivers.insert(pid);
        }
    }
    let is_ours = |pid: &u32| {
        let ancestors = std::iter::successors(Some(*pid), |pid| parents.get(pid).copied());
        // Parents that change during the scan could form a cycle.
        ancestors.take(parents.len()).any(|pid| pid == own)
    };
    let foreign = parents
        .keys()
        .filter(|pid| !is_ours(pid) && !receivers.contains(pid));
    Ok(foreign.map(|&pid| (pid, ran(pid))).collect())
}

/// Parses `stat`: the PID, the name in parentheses, which may contain any character, the state, and
/// the parent's PID. `[proc_pid_stat(5)]`
fn name_and_parent(stat: &str) -> Option<(&str, u32)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    Some((name, after.split_ascii_whitespace().nth(1)?.parse().ok()?))
}

/// Returns the run time in nanoseconds of a process's live threads; zero if it has ended.
fn ran(pid: u32) -> u64 {
    Nanos::from(Scheduled::of(pid, "").run).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_kernel_counts_what_was_taken_from_all_processors() {
        let text = "cpu  1 2 3 4 5 6 7 89 9 10\ncpu0 1 2 3 4 5 6 7 45 9 10\n";
        let before = ProcessorTime::parse(text).unwrap();
        let after = ProcessorTime::parse("cpu 101 2 3 184 5 6 7 109 9 10\n").unwrap();
        assert_eq!(after.since(&before).stolen, 20.0 * 1e3 / 300.0);
        assert_eq!(before.since(&before), Disturbance::default());
        assert_eq!(ProcessorTime::parse("cpu0 1 2 3 4 5 6 7 45\n"), None);
        assert_eq!(ProcessorTime::parse("cpu 1 2 3 4\n"), None);
        assert!(ProcessorTime::now().unwrap().all > 0);
    }

    #[test]
    fn others_are_counted_from_where_they_were() {
        let ticks = 1_000 * clock_ticks_per_second();
        let at = |all, others: &[(u32, u64)]| ProcessorTime {
            all,
            stolen: 0,
            others: others.iter().copied().collect(),
        };
        let before = at(0, &[(1, 500), (2, 7_000_000_000), (3, 9)]);
        // PID 2 is a different process by now, and 4 is new.
        let after = at(
            ticks,
            &[(1, 1_000_000_500), (2, 2_000_000_000), (4, 1_000_000_000)],
        );
        assert_eq!(after.since(&before).others, 4.0);
    }

    #[test]
    fn a_name_may_hold_anything() {
        assert_eq!(
            name_and_parent("7 (a) b (c) S 42 7 7"),
            Some(("a) b (c", 42))
        );
        assert_eq!(name_and_parent("7 (a"), None);
        assert_eq!(name_and_parent("7 (a) S"), None);
    }

    #[test]
    fn what_one_started_is_not_others() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let own = std::process::id();
        let seen = others(own).unwrap();
        assert!(!seen.contains_key(&own));
        assert!(!seen.contains_key(&child.id()));
        // From the child's view, this process is another process.
        assert!(others(child.id()).unwrap()[&own] > 0);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_line_takes_its_time_from_one_processor_to_another() {
        let several = placement::allowed_cores().unwrap().len() > 1;
        // If other processes occupy the processors all the time, it cannot be measured.
        let ways = (0..50).map(|_| apart());
        assert_eq!(ways.max().unwrap() > Duration::ZERO, several);
    }

    #[test]
    fn the_larger_part_of_what_is_allowed_counts() {
        let of = |stolen, others| {
            let lost = Disturbance {
                stolen,
                others,
                apart_ns: 40.0,
            };
            lost.degree()
        };
        assert_eq!((of(2.0, 0.0), of(0.0, 5.0)), (1.0, 1.0));
        assert_eq!((of(1.0, 10.0), of(6.0, 5.0)), (2.0, 3.0));
    }
}
