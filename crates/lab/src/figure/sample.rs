//! Measurements of one run, and the metrics that figures derive from them.

use super::disturbance::Disturbance;
use super::scenario::Scenario;
use load::{AppReport, CpuShares, Latency, PathReport, SoftwareTime, SwitchReport};
use std::time::Duration;
use switch::Class;

/// Measurements of one run of a scenario.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Each app, in the scenario's order.
    pub apps: Vec<AppSample>,
    /// Mean number of busy processors of the applications' processes, over their lifetime.
    pub host_cores: f64,
    /// Mean number of busy processors of the target over the same time.
    pub target_cores: f64,
    /// Disturbance of the run.
    pub disturbance: Disturbance,
    /// Time slices of threads of processes that run only L-apps.
    pub slices: Option<Slices>,
    /// Sends of the host's lanes.
    pub host_sends: Sends,
    /// Sends of the target's I/O queues.
    pub target_sends: Sends,
    /// Counters of the I/O path, if the applications used one.
    pub path: Option<PathReport>,
}

/// Result of one application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppSample {
    /// Its class.
    pub class: Class,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Latency in microseconds.
    pub latency: Latency,
    /// The part of it in software, if the device reports its own time.
    pub software: Option<SoftwareTime>,
}

/// Time slices of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slices {
    /// Mean length of a slice.
    pub run: Duration,
    /// Mean time from ready to running.
    pub wait: Duration,
}

/// Sends of one side's lanes, from their own counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sends {
    /// Sends.
    pub sends: u64,
    /// Sends of a single request or response.
    pub single: u64,
    /// Their bytes as passed to TCP: headers, data and digests.
    pub bytes: u64,
}

impl Sends {
    /// Returns the sends of the switchboards of the applications' processes since their start.
    #[must_use]
    pub fn of_host(reports: &[SwitchReport]) -> Self {
        let cores = reports.iter().flat_map(|report| &report.cores);
        let classes = cores.flat_map(|core| core.classes.values());
        classes.fold(Self::default(), |sum, class| Self {
            sends: sum.sends + class.sizes.iter().sum::<u64>(),
            single: sum.single + class.sizes.first().copied().unwrap_or(0),
            bytes: sum.bytes + class.sent_bytes,
        })
    }

    /// Returns the sends since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            sends: self.sends.saturating_sub(before.sends),
            single: self.single.saturating_sub(before.single),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

/// One of the two ends of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It sends requests.
    Host,
    /// It sends responses.
    Target,
}

/// A part of a latency distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Mean.
    Average,
    /// Median.
    P50,
    /// 95th percentile.
    P95,
    /// 99th percentile.
    P99,
    /// 99.9th percentile.
    P999,
}

/// Commands by the number of requests that they carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// 1.
    One,
    /// 2 to 7.
    UpTo7,
    /// 8 to 31.
    UpTo31,
    /// 32, at which ATM unplugs. `[Yu §4.5]`
    ThirtyTwo,
    /// More than 32.
    More,
}

impl Carried {
    /// All of them; each command belongs to exactly one.
    pub const ALL: [Self; 5] = [
        Self::One,
        Self::UpTo7,
        Self::UpTo31,
        Self::ThirtyTwo,
        Self::More,
    ];

    const fn of(requests: u32) -> Self {
        match requests {
            ..=1 => Self::One,
            2..=7 => Self::UpTo7,
            8..=31 => Self::UpTo31,
            32 => Self::ThirtyTwo,
            33.. => Self::More,
        }
    }

    /// Returns the percentage of the commands in this range; `commands` counts them by number of
    /// requests. Not a number if there are no commands.
    pub(super) fn percent_of(self, commands: impl Iterator<Item = (u32, u64)>) -> f64 {
        let (mut these, mut all) = (0, 0);
        for (requests, count) in commands {
            all += count;
            if Self::of(requests) == self {
                these += count;
            }
        }
        these as f64 * 100.0 / all as f64
    }
}

/// A metric of a run that a figure shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Latency of a class's requests.
    Latency(Class, Statistic),
    /// Bytes per second of a class, or of all applications.
    Throughput(Option<Class>),
    /// Bytes per second of all applications, divided by the busy processors of the busier of host
    /// and target. `[blk-switch §5.1]`
    ThroughputPerCore,
    /// Requests per second of all applications.
    Requests,
    /// The same, divided by the busy processors of the host. `[i10 §4.2]`
    RequestsPerHostCore,
    /// Mean length of an L-app's time slice.
    SliceRun,
    /// Mean wait of an L-app for its next time slice.
    SliceWait,
    /// Mean bytes of a send.
    SendBytes(End),
    /// Share of the sends that carry a single request or response.
    SingleSends(End),
    /// The 95th percentile of the latency of reads in a mixed load.
    ReadTail,
    /// Tokens per second of a tenant's requests.
    Tokens,
    /// Median time of a request in software. `[Yu §6.1]`
    Software,
    /// Mean number of requests per command. `[Yu §6.8]`
    Merged,
    /// Share of the commands with this number of requests. `[Yu §6.8]`
    Commands(Carried),
    /// Share of all processors' time in user mode, including polling of a device.
    UserTime,
    /// Share in the kernel.
    SystemTime,
    /// Share in user mode or in the kernel. `[Yu §6.7]`
    BusyTime,
    /// Idle share while a thread of the kernel's block layer waited (iowait); emulated devices have
    /// no such threads.
    WaitTime,
    /// Remaining idle share.
    IdleTime,
}

impl Metric {
    /// Its name in JSON and CSV, with the unit last.
    #[must_use]
    pub const fn key(self) -> &'static str {
        self.names().0
    }

    /// Its name on an axis, without the unit.
    #[must_use]
    pub const fn label(self) -> &'static str {
        self.names().1
    }

    const fn names(self) -> (&'static str, &'static str) {
        use Class::{Latency as L, Throughput as T};
        use Statistic::{Average, P50, P95, P99, P999};
        match self {
            Self::Latency(L, Average) => ("l_avg_us", "L-app latency, average"),
            Self::Latency(L, P50) => ("l_p50_us", "L-app latency, median"),
            Self::Latency(L, P95) => ("l_p95_us", "L-app latency, p95"),
            Self::Latency(L, P99) => ("l_p99_us", "L-app latency, p99"),
            Self::Latency(L, P999) => ("l_p999_us", "L-app latency, p99.9"),
            Self::Latency(T, Average) => ("t_avg_us", "Latency, average"),
            Self::Latency(T, P50) => ("t_p50_us", "Latency, median"),
            Self::Latency(T, P95) => ("t_p95_us", "Latency, p95"),
            Self::Latency(T, P99) => ("t_p99_us", "Latency, p99"),
            Self::Latency(T, P999) => ("t_p999_us", "Latency, p99.9"),
            Self::Throughput(None) => ("total_gbit_per_s", "Throughput, all apps"),
            Self::Throughput(Some(L)) => ("l_gbit_per_s", "Throughput, L-apps"),
            Self::Throughput(Some(T)) => ("t_gbit_per_s", "Throughput, T-apps"),
            Self::ThroughputPerCore => ("gbit_per_s_per_core", "Throughput per core"),
            Self::Requests => ("kiops", "Requests"),
            Self::RequestsPerHostCore => ("kiops_per_host_core", "Requests per host core"),
            Self::SliceRun => ("l_slice_run_ms", "L-app time slice, mean"),
            Self::SliceWait => ("l_slice_wait_ms", "L-app wait for a slice, mean"),
            Self::SendBytes(End::Host) => ("host_send_bytes", "Send of the host, mean"),
            Self::SendBytes(End::Target) => ("target_send_bytes", "Send of the target, mean"),
            Self::SingleSends(End::Host) => {
                ("host_single_sends_percent", "Host's sends of one request")
            }
            Self::SingleSends(End::Target) => (
                "target_single_sends_percent",
                "Target's sends of one answer",
            ),
            Self::ReadTail => ("read_p95_us", "Latency of reads, p95"),
            Self::Tokens => ("ktokens", "Tokens"),
            Self::Software => ("software_p50_us", "Time in software, median"),
            Self::Merged => ("merged_mean", "Requests of one command, mean"),
            Self::Commands(Carried::One) => ("single_commands_percent", "Commands of one request"),
            Self::Commands(Carried::UpTo7) => {
                ("commands_of_2_to_7_percent", "Commands of 2 to 7 requests")
            }
            Self::Commands(Carried::UpTo31) => (
                "commands_of_8_to_31_percent",
                "Commands of 8 to 31 requests",
            ),
            Self::Commands(Carried::ThirtyTwo) => {
                ("commands_of_32_percent", "Commands of 32 requests")
            }
            Self::Commands(Carried::More) => (
                "commands_of_more_percent",
                "Commands of more than 32 requests",
            ),
            Self::UserTime => ("user_percent", "Processors in programs"),
            Self::SystemTime => ("system_percent", "Processors in the kernel"),
            Self::BusyTime => ("busy_percent", "Processors busy"),
            Self::WaitTime => ("wait_percent", "Processors waiting for the block layer"),
            Self::IdleTime => ("idle_percent", "Processors idle"),
        }
    }

    /// The unit of [`Metric::of`].
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Latency(..) | Self::ReadTail | Self::Software => "µs",
            Self::Throughput(_) => "Gbit/s",
            Self::ThroughputPerCore => "Gbit/s per core",
            Self::Requests | Self::Tokens => "1000/s",
            Self::RequestsPerHostCore => "1000/s per core",
            Self::SliceRun | Self::SliceWait => "ms",
            Self::SendBytes(_) => "bytes",
            Self::Merged => "requests",
            Self::SingleSends(_)
            | Self::Commands(_)
            | Self::UserTime
            | Self::SystemTime
            | Self::BusyTime
            | Self::WaitTime
            | Self::IdleTime => "%",
        }
    }

    /// Returns the value; `None` if the run had no application that it applies to.
    #[must_use]
    pub fn of(self, sample: &Sample) -> Option<f64> {
        let value = match self {
            Self::Latency(class, statistic) => sample.latency(class, statistic)?,
            Self::Throughput(class) => sample.bytes_per_second(class)? * 8.0 / 1e9,
            Self::ThroughputPerCore => {
                let busier = sample.host_cores.max(sample.target_cores);
                sample.bytes_per_second(None)? * 8.0 / 1e9 / busier
            }
            Self::Requests => sample.iops() / 1e3,
            Self::RequestsPerHostCore => sample.iops() / 1e3 / sample.host_cores,
            Self::SliceRun => sample.slices?.run.as_secs_f64() * 1e3,
            Self::SliceWait => sample.slices?.wait.as_secs_f64() * 1e3,
            Self::SendBytes(end) => {
                let sends = sample.sends(end);
                sends.bytes as f64 / sends.sends as f64
            }
            Self::SingleSends(end) => {
                let sends = sample.sends(end);
                sends.single as f64 * 100.0 / sends.sends as f64
            }
            Self::Software => sample.apps.first()?.software?.p50,
            Self::Merged => sample.path.as_ref()?.merged_mean,
            Self::Commands(carried) => {
                let path = sample.path.as_ref()?;
                carried.percent_of(path.merged.iter().copied())
            }
            Self::UserTime => sample.cpu()?.user,
            Self::SystemTime => sample.cpu()?.system,
            Self::BusyTime => sample.cpu()?.user + sample.cpu()?.system,
            Self::WaitTime => sample.cpu()?.wait,
            Self::IdleTime => sample.cpu()?.idle,
            // Loads of measured figures do not separate reads from writes.
            Self::ReadTail | Self::Tokens => return None,
        };
        value.is_finite().then_some(value)
    }
}

impl Sample {
    /// The applications of `scenario`, from the reports of its processes in order.
    ///
    /// # Errors
    /// The number of reports differs from the number of applications, or requests failed.
    pub fn of_reports(scenario: &Scenario, reports: &[AppReport]) -> anyhow::Result<Self> {
        let classes: Vec<_> = scenario.apps().map(|app| app.class).collect();
        anyhow::ensure!(
            classes.len() == reports.len(),
            "{} applications reported, not {}",
            reports.len(),
            classes.len()
        );
        let mut apps = Vec::with_capacity(classes.len());
        for (class, report) in classes.into_iter().zip(reports) {
            anyhow::ensure!(
                report.errors == 0,
                "{}: {} errors, the first: {}",
                report.name,
                report.errors,
                report.first_error.as_deref().unwrap_or("unknown")
            );
            apps.push(AppSample {
                class,
                iops: report.iops,
                bytes_per_second: report.bytes_per_second,
                latency: report.latency_us,
                software: report.software_us,
            });
        }
        // An app without any completed request is a valid result: it starves.
        anyhow::ensure!(
            apps.iter().any(|app| app.iops > 0.0),
            "no request completed in the measured time; measure for longer"
        );
        Ok(Self {
            apps,
            ..Self::default()
        })
    }

    const fn sends(&self, end: End) -> Sends {
        match end {
            End::Host => self.host_sends,
            End::Target => self.target_sends,
        }
    }

    fn cpu(&self) -> Option<CpuShares> {
        self.path.as_ref().map(|path| path.cpu)
    }

    fn iops(&self) -> f64 {
        self.apps.iter().map(|app| app.iops).sum()
    }

    fn bytes_per_second(&self, class: Option<Class>) -> Option<f64> {
        let counts = |app: &&AppSample| class.is_none_or(|class| app.class == class);
        let mut apps = self.apps.iter().filter(counts).peekable();
        apps.peek()?;
        Some(apps.map(|app| app.bytes_per_second).sum())
    }

    /// Combines several applications of a class, weighted by their requests. That is exact for the
    /// mean. The percentile of all requests is unknown; like this value, it lies between the
    /// applications' percentiles.
    fn latency(&self, class: Class, statistic: Statistic) -> Option<f64> {
        let apps = || self.apps.iter().filter(|app| app.class == class);
        let requests: f64 = apps().map(|app| app.iops).sum();
        let sum: f64 = apps()
            .map(|app| app.iops * statistic.of(&app.latency))
            .sum();
        (requests > 0.0).then(|| sum / requests)
    }
}

impl Statistic {
    const fn of(self, latency: &Latency) -> f64 {
        match self {
            Self::Average => latency.avg,
            Self::P50 => latency.p50,
            Self::P95 => latency.p95,
            Self::P99 => latency.p99,
            Self::P999 => latency.p999,
        }
    }
}
