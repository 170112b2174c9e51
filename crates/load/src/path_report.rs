//! Counters of the I/O path of a load: commands, elections and processor time.

use crate::measured::Marks;
use block::path::PathSnapshot;
use block::{Device, DeviceTime, PathDevice};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Counters of a path, over the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// Name of the path, which all apps share; the other counters cover the requests of all apps.
    pub path: String,
    /// Commands sent to the device.
    pub commands: u64,
    /// Mean number of requests per command.
    pub merged_mean: f64,
    /// Commands by number of requests, ascending.
    pub merged: Vec<(u32, u64)>,
    /// Elections that made a thread the runner of a queue.
    pub elections_won: u64,
    /// Requests whose thread found a runner on its queue, or that were plugged or left to the
    /// dispatcher. Requests of the runner itself are in neither count.
    pub elections_lost: u64,
    /// Queues taken over from a runner that was not scheduled.
    pub taken_over: u64,
    /// Processor time of the whole machine.
    pub cpu: CpuShares,
}

/// Shares of processor time, in percent of the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuShares {
    /// In user mode, including polling.
    pub user: f64,
    /// In the kernel, including interrupts.
    pub system: f64,
    /// Idle while a thread of the kernel's block layer waited.
    pub wait: f64,
    /// Idle.
    pub idle: f64,
}

/// The kernel's processor times by kind, in ticks since boot.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    user: u64,
    system: u64,
    wait: u64,
    idle: u64,
}

impl Ticks {
    fn now() -> Self {
        Self::of(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn of(stat: &str) -> Self {
        let line = stat.lines().next().unwrap_or_default();
        let fields = line.split_ascii_whitespace().skip(1);
        let fields: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        let at = |index: usize| fields.get(index).copied().unwrap_or(0);
        Self {
            user: at(0) + at(1),
            system: at(2) + at(5) + at(6),
            wait: at(4),
            idle: at(3),
        }
    }

    fn shares_since(&self, earlier: &Self) -> CpuShares {
        let user = self.user - earlier.user;
        let system = self.system - earlier.system;
        // These two may decrease a little, according to the kernel's documentation.
        let wait = self.wait.saturating_sub(earlier.wait);
        let idle = self.idle.saturating_sub(earlier.idle);
        let whole = (user + system + wait + idle).max(1) as f64;
        let share = |ticks: u64| 100.0 * ticks as f64 / whole;
        CpuShares {
            user: share(user),
            system: share(system),
            wait: share(wait),
            idle: share(idle),
        }
    }
}

/// Reads the counters of the path at both ends of the measured time.
#[derive(Debug)]
pub(super) struct PathWatch {
    device: Arc<dyn Device>,
    path: Option<PathDevice>,
    marks: Marks<Reading>,
}

#[derive(Clone, Debug, Default)]
struct Reading {
    device: Option<DeviceTime>,
    path: PathSnapshot,
    ticks: Ticks,
}

impl PathWatch {
    pub(super) fn new(device: Arc<dyn Device>, path: Option<PathDevice>) -> Self {
        Self {
            device,
            path,
            marks: Marks::default(),
        }
    }

    /// Marks the begin or the end of the measured time; only the first call of each counts.
    pub(super) fn mark(&mut self, ends: bool) {
        let path = self.path.as_ref();
        self.marks.set(ends, || Reading {
            device: self.device.device_time(),
            path: path.map(PathDevice::snapshot).unwrap_or_default(),
            ticks: Ticks::now(),
        });
    }

    /// Returns the mean time per request in the device itself, in microseconds.
    pub(super) fn device_us(&self) -> Option<f64> {
        let (began, ended) = self.marks.both()?;
        let (began, ended) = (began.device?, ended.device?);
        let requests = ended.requests.checked_sub(began.requests)?;
        let took = ended.took.0.checked_sub(began.took.0)?;
        (requests > 0).then(|| took as f64 / 1e3 / requests as f64)
    }

    pub(super) fn report(&self) -> Option<PathReport> {
        let path = self.path.as_ref()?;
        let (began, ended) = self.marks.both()?;
        let counted = ended.path.since(&began.path);
        Some(PathReport {
            path: path.path().to_string(),
            commands: counted.commands(),
            merged_mean: counted.mean_merged(),
            elections_won: counted.elections_won,
            elections_lost: counted.elections_lost,
            taken_over: counted.taken_over,
            merged: counted.merged,
            cpu: ended.ticks.shares_since(&began.ticks),
        })
    }
}

impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CpuShares {
            user,
            system,
            wait,
            idle,
        } = self.cpu;
        writeln!(
            f,
            "path {}: {} commands of {:.1} requests; elections {} won, {} lost, {} taken over; \
             CPU {user:.0} % user, {system:.0} % system, {wait:.0} % wait, {idle:.0} % idle",
            self.path,
            self.commands,
            self.merged_mean,
            self.elections_won,
            self.elections_lost,
            self.taken_over
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_passed() {
        let before = Ticks::of("cpu  100 0 50 1000 10 0 0 0 0 0\ncpu0 1 2 3 4");
        let after = Ticks::of("cpu  130 10 60 1040 20 5 5 7 0 0\n");
        let shares = after.shares_since(&before);
        assert_eq!(
            (shares.user, shares.system),
            (36.363_636_363_636_37, 18.181_818_181_818_183)
        );
        assert_eq!(
            (shares.idle, shares.wait),
            (36.363_636_363_636_37, 9.090_909_090_909_092)
        );
        assert_eq!(
            Ticks::of("").shares_since(&Ticks::default()),
            CpuShares::default()
        );
    }
}
