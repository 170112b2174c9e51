//! Effects of the hostile loads, as JSON and as a table.

use load::Machine;
use load::RunSummary;
use serde::Serialize;
use std::fmt;

/// Upper bound of the neighbour's 99th percentile under a load, as a multiple of the undisturbed
/// one.
pub(super) const RATIO_MAX: f64 = 1.5;

/// Upper bound for answers, which arrive in the neighbour's kernel, under TLS handshakes: these do not
/// run on the threads that carry data.
pub(super) const RATIO_MAX_HANDSHAKES: f64 = 1.2;

/// Lower bound of the neighbour's completed commands under a load, as a fraction of the undisturbed
/// number. With one command in flight at a time, a stalled command is only one of many in the
/// percentile, but takes the time of many.
pub(super) const RATE_RATIO_MIN: f64 = 1.0 / 3.0;

/// Effects of every load on the neighbour.
#[derive(Debug, Serialize)]
pub struct HostileReport {
    pub(super) loads: Vec<LoadResult>,
    /// Bounds on times apply.
    pub(super) judged: bool,
    pub(super) machine: Machine,
}

/// A load, and its effects in several pairs of runs.
#[derive(Debug, Serialize)]
pub(super) struct LoadResult {
    pub(super) load: &'static str,
    /// Work of the load: connections made, commands sent, or bytes.
    pub(super) done: u64,
    /// Peak memory of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory_bytes: Option<u64>,
    /// Processor time of the target, in percent of one core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_percent: Option<RunSummary>,
    pub(super) undisturbed_p50_us: RunSummary,
    pub(super) disturbed_p50_us: RunSummary,
    pub(super) undisturbed_p99_us: RunSummary,
    pub(super) disturbed_p99_us: RunSummary,
    /// Of the time until the kernel has received the response.
    pub(super) undisturbed_answer_p99_us: RunSummary,
    pub(super) disturbed_answer_p99_us: RunSummary,
    pub(super) disturbed_max_us: RunSummary,
    /// Ratio of the 99th percentiles, with the load and without, per pair.
    pub(super) ratio: RunSummary,
    /// Ratio of the completed commands, with the load and without, per pair.
    pub(super) rate_ratio: RunSummary,
    /// Commands of the neighbour that succeeded.
    pub(super) commands: u64,
    /// Commands of the neighbour that failed.
    pub(super) failed: u64,
    /// Reason of the first failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    /// Mechanism that limits the target's resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) confined_by: Option<&'static str>,
    pub(super) within: bool,
}

impl HostileReport {
    /// Returns true if every load is within its bound.
    #[must_use]
    pub fn within(&self) -> bool {
        self.loads.iter().all(|line| line.within)
    }
}

impl fmt::Display for HostileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:13}  {:>10}  {:>10}  {:>6}  {:>18}  {:>20}  {:>17}  {:>13}  {:>9}  {:>17}  {:>6}",
            "load",
            "done",
            "memory MiB",
            "CPU %",
            "p99 alone us",
            "p99 loaded us",
            "ratio",
            "answers us",
            "max us",
            "rate ratio",
            "failed"
        )?;
        for line in &self.loads {
            let number = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.0}"));
            let spread = |s: RunSummary, digits: usize| {
                format!(
                    "{:.digits$} ({:.digits$}–{:.digits$})",
                    s.median, s.min, s.max
                )
            };
            let memory = line
                .memory_bytes
                .map(|bytes| bytes as f64 / f64::from(1 << 20));
            write!(
                f,
                "{:13}  {:>10}  {:>10}  {:>6}  {:>18}  {:>20}  {:>17}  {:>13}  {:>9.0}  {:>17}  {:>6}",
                line.load,
                line.done,
                number(memory),
                number(line.cpu_percent.map(|cpu| cpu.median)),
                spread(line.undisturbed_p99_us, 0),
                spread(line.disturbed_p99_us, 0),
                spread(line.ratio, 2),
                format!(
                    "{:.0} → {:.0}",
                    line.undisturbed_answer_p99_us.median, line.disturbed_answer_p99_us.median
                ),
                line.disturbed_max_us.max,
                spread(line.rate_ratio, 2),
                line.failed
            )?;
            let by = line.confined_by.map(|by| format!("  by {by}"));
            let verdict = if line.within { "ok" } else { "MISSED" };
            writeln!(f, "  {verdict}{}", by.unwrap_or_default())?;
            if let Some(failure) = &line.failure {
                writeln!(f, "  {failure}")?;
            }
        }
        write!(f, "on {}", self.machine)
    }
}
