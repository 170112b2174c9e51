//! Results of a load, as JSON and as a table.

use super::cache_report::CacheReport;
use super::machine::Machine;
use super::measured::Measured;
use super::path_report::PathReport;
use super::switch_report::SwitchReport;
use base::Latencies;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The complete output of `bench --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// The apps in the order they were given.
    pub apps: Vec<AppReport>,
    /// Counters of each process's switchboard, if the apps used one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub switch: Vec<SwitchReport>,
    /// Counters of each process's I/O path, if the apps used one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub path: Vec<PathReport>,
    /// Counters of the cache, if the apps used one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cache: Vec<CacheReport>,
    /// Machine on which it was measured.
    pub machine: Machine,
    /// The load ended early, so everything covers less than the requested time.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub interrupted: bool,
}

/// Result of one app between warm-up and end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppReport {
    /// The app's name.
    pub name: String,
    /// Requests completed per second.
    pub iops: f64,
    /// Bytes read and written per second.
    pub bytes_per_second: f64,
    /// Requests that failed, returned wrong data or had no completion, including the warm-up.
    pub errors: u64,
    /// The part of the errors that was abandoned at the end, when no request of the thread had
    /// completed for a minute, or for five seconds after the load was stopped.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub unanswered: u64,
    /// Time from a request's (intended) start to its completion, including requests in flight at
    /// the end.
    pub latency_us: Latency,
    /// Latency less the device's own time, if the device reports that and all apps have the same
    /// request size and read share.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub software_us: Option<SoftwareTime>,
    /// CPU seconds of the app's threads, user and system.
    pub cpu_seconds: f64,
    /// Priority of the app's `Latency` threads: "nice" (−20) or "unprivileged"; the lowest of all
    /// its threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privilege: Option<String>,
    /// The requested rate, in requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intended_iops: Option<u64>,
    /// Reads whose data was verified; with verification only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<u64>,
    /// The first error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Time of a request in software, in microseconds: latency less the device's mean time per request
/// of any app; 0 if the latter is larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SoftwareTime {
    /// Mean latency less the device's mean time.
    pub avg: f64,
    /// Median latency less the device's mean time: the median of the time in software if the device
    /// takes equally long for each request.
    pub p50: f64,
}

/// Latency in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub avg: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Latency {
    /// Returns the summary of latencies; zeroes if there are none.
    #[must_use]
    pub fn of(latencies: &Latencies) -> Self {
        let at = |quantile| latencies.quantile_us(quantile);
        Self {
            avg: latencies.mean_us(),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: latencies.max_us(),
        }
    }
}

impl LoadReport {
    /// A report of only these apps, on this machine.
    pub(super) fn of(apps: Vec<AppReport>) -> Self {
        Self {
            apps,
            switch: Vec::new(),
            path: Vec::new(),
            cache: Vec::new(),
            machine: Machine::look(),
            interrupted: false,
        }
    }

    /// Merges the reports of several processes of this machine, in their order.
    #[must_use]
    pub fn merged(reports: Vec<Self>) -> Self {
        let mut merged = Self::of(Vec::new());
        for report in reports {
            merged.apps.extend(report.apps);
            merged.switch.extend(report.switch);
            merged.path.extend(report.path);
            merged.cache.extend(report.cache);
            merged.interrupted |= report.interrupted;
        }
        merged
    }

    /// Sum over all apps of requests that failed, returned wrong data or had no completion, plus
    /// the pages that the cache lost.
    #[must_use]
    pub fn errors(&self) -> u64 {
        let lost: u64 = self.cache.iter().map(|cache| u64::from(cache.lost)).sum();
        self.apps.iter().map(|app| app.errors).sum::<u64>() + lost
    }

    /// Adds the time that requests spent in software, given the device's mean time `device_us`.
    pub(super) fn split_latency(&mut self, device_us: f64) {
        for app in &mut self.apps {
            let of = |latency: f64| (latency - device_us).max(0.0);
            app.software_us = Some(SoftwareTime {
                avg: of(app.latency_us.avg),
                p50: of(app.latency_us.p50),
            });
        }
    }

    /// Returns notes that a reader of the numbers needs, one sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.interrupted {
            notes.push("interrupted: results cover the time before the interruption".to_owned());
        }
        let lost = self.cache.iter().map(|cache| cache.lost);
        for lost in lost.filter(|&lost| lost > 0) {
            notes.push(format!(
                "{lost} dirty pages of the cache are lost: they could not be written to the device"
            ));
        }
        for app in &self.apps {
            let name = &app.name;
            if let Some(error) = &app.first_error {
                notes.push(format!(
                    "{name}: {} errors; first error: {error}",
                    app.errors
                ));
            }
            if app.unanswered > 0 {
                notes.push(format!(
                    "{name}: {} requests without response at the end",
                    app.unanswered,
                ));
            }
            if let Some(rate) = app.intended_iops
                && app.iops < 0.99 * rate as f64
            {
                notes.push(format!(
                    "{name}: {:.0} of {rate} requests/s; latencies include a growing backlog",
                    app.iops
                ));
            }
        }
        notes
    }
}

impl AppReport {
    /// Adds up an app's threads.
    pub(super) fn of(
        name: &str,
        block_bytes: u32,
        intended_iops: Option<u64>,
        verify: bool,
        threads: Vec<Measured>,
    ) -> Self {
        let mut latency = Latencies::new();
        let mut report = Self {
            name: name.to_owned(),
            intended_iops,
            verified: verify.then_some(0),
            ..Self::default()
        };
        let privileges = threads.iter().filter_map(|thread| thread.privilege);
        report.privilege = privileges.max().map(|least| least.name().to_owned());
        for thread in threads {
            if thread.elapsed.0 > 0 {
                report.iops += thread.requests as f64 * 1e9 / thread.elapsed.0 as f64;
            }
            report.errors += thread.errors;
            report.unanswered += thread.unanswered;
            report.cpu_seconds += thread.cpu.as_secs_f64();
            report.first_error = report.first_error.or(thread.first_error);
            report.verified = report.verified.map(|verified| verified + thread.verified);
            latency.add(&thread.latency);
        }
        report.bytes_per_second = report.iops * f64::from(block_bytes);
        report.latency_us = Latency::of(&latency);
        report
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .apps
            .iter()
            .map(|app| app.name.len())
            .max()
            .unwrap_or(0)
            .max(4);
        writeln!(
            f,
            "{:width$}  {:>10}  {:>9}  {:>6}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>6}",
            "app",
            "IOPS",
            "MiB/s",
            "errors",
            "avg µs",
            "p50",
            "p95",
            "p99",
            "p99.9",
            "max",
            "CPU s"
        )?;
        for app in &self.apps {
            let Latency {
                avg,
                p50,
                p95,
                p99,
                p999,
                max,
            } = app.latency_us;
            writeln!(
                f,
                "{:width$}  {:>10.0}  {:>9.1}  {:>6}  {avg:>9.1}  {p50:>9.1}  {p95:>9.1}  \
                 {p99:>9.1}  {p999:>9.1}  {max:>9.1}  {:>6.2}",
                app.name,
                app.iops,
                app.bytes_per_second / f64::from(1 << 20),
                app.errors,
                app.cpu_seconds
            )?;
        }
        for app in &self.apps {
            if let Some(privilege) = &app.privilege {
                writeln!(f, "{}: priority of latency threads: {privilege}", app.name)?;
            }
            if let Some(verified) = app.verified {
                writeln!(f, "{}: {verified} reads verified", app.name)?;
            }
        }
        for app in &self.apps {
            if let Some(SoftwareTime { avg, p50 }) = app.software_us {
                writeln!(
                    f,
                    "{}: software time {avg:.1} µs (average), {p50:.1} µs (p50)",
                    app.name
                )?;
            }
        }
        for path in &self.path {
            write!(f, "{path}")?;
        }
        for cache in &self.cache {
            write!(f, "{cache}")?;
        }
        for switch in &self.switch {
            write!(f, "{switch}")?;
        }
        write!(f, "on {}", self.machine)
    }
}
