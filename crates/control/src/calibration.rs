//! Calibrating a device again while it serves.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Parameters of a calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalibrationRequest {
    /// The most that the target's own reads spend, in hundredths of the device's token rate: 1 to
    /// 100.
    pub share_percent: u32,
    /// Length of the observation in seconds.
    pub seconds: u32,
}

/// Progress of a calibration, or its outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CalibrationSnapshot {
    /// The device's name.
    pub device: String,
    /// The phase of the calibration.
    pub state: CalibrationState,
    /// The share that was asked for.
    pub share_percent: u32,
    /// Length of the observation in seconds.
    pub seconds: u32,
    /// The part of it that is over, in thousandths.
    pub done_permille: u64,
    /// Reads of the target's own so far.
    pub reads: u64,
    /// Their cost, in thousandths of a token.
    pub spent_milli: u64,
    /// The reason for which there is no newer model, where it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The outcome, where it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<CalibrationResult>,
}

/// The phase of a calibration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CalibrationState {
    /// It does.
    #[default]
    Running,
    /// The device has a newer model.
    Done,
    /// The device has the model that it had.
    Failed,
    /// The same, because it was cancelled.
    Cancelled,
}

/// The outcome of a calibration. The model is in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CalibrationResult {
    /// The loads that were seen, in the order of time.
    pub observations: Vec<SeenLoad>,
    /// Of these, those that had enough reads.
    pub used: u64,
    /// Contradiction between them: the largest distance of a p95 from a rising curve, in
    /// thousandths.
    pub spread_permille: u32,
    /// The lowest and the highest load of which the curve is new.
    pub seen_tokens_per_second: [u64; 2],
    /// The p95 at the highest, by the model before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_before_ns: Option<u64>,
    /// And now.
    pub p95_ns: u64,
    /// Tokens generated in a second, at the strictest latency of an SLO.
    pub tokens_per_second: u64,
    /// Of these, reserved for SLOs of latency-critical tenants.
    pub reserved_tokens_per_second: u64,
    /// Tenants with SLOs that the device can no longer keep. They stay in force, as far as
    /// the device goes.
    pub unkept: Vec<UnkeptPromise>,
    /// The model, as the text of its file.
    pub model: String,
}

/// A load of a device that was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeenLoad {
    /// Tokens a second of all requests, the target's own among them.
    pub tokens_per_second: u64,
    /// The share of reads among them, in thousandths of their units of 4 KiB.
    pub read_permille: u16,
    /// Reads of the target's own with a measured latency.
    pub reads: u64,
    /// Half of them were within this time.
    pub p50_ns: u64,
    /// Of a hundred, 95.
    pub p95_ns: u64,
    /// Of a hundred, 99.
    pub p99_ns: u64,
    /// Of a thousand, 999.
    pub p999_ns: u64,
}

/// An SLO that a device cannot keep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnkeptPromise {
    /// The tenant's name.
    pub tenant: String,
    /// The reason, and what would be admitted.
    pub reason: String,
}

/// The outcome as a table, or the reason for which there is none.
impl fmt::Display for CalibrationSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(result) = &self.result else {
            return f.write_str(self.error.as_deref().unwrap_or("no model came out"));
        };
        let micros = |nanos: u64| nanos as f64 / 1e3;
        writeln!(
            f,
            "tokens/s reads %     probes    p50 us    p95 us    p99 us  p99.9 us"
        )?;
        for SeenLoad {
            tokens_per_second,
            read_permille,
            reads,
            p50_ns,
            p95_ns,
            p99_ns,
            p999_ns,
        } in &result.observations
        {
            let [p50, p95, p99, p999] = [p50_ns, p95_ns, p99_ns, p999_ns].map(|&ns| micros(ns));
            writeln!(
                f,
                "{tokens_per_second:>8} {:>7.1} {reads:>10} {p50:>9.1} {p95:>9.1} {p99:>9.1} {p999:>9.1}",
                f64::from(*read_permille) / 10.0
            )?;
        }
        let [from, to] = result.seen_tokens_per_second;
        let spread = f64::from(result.spread_permille) / 10.0;
        writeln!(
            f,
            "{}: the curve is new from {from} to {to} tokens/s, and as it was below and above, like \
             the prices; {} of {} loads had reads enough, and their p95 agree within {spread:.1} %",
            self.device,
            result.used,
            result.observations.len()
        )?;
        if let Some(before) = result.p95_before_ns {
            let [before, now] = [before, result.p95_ns].map(micros);
            writeln!(
                f,
                "p95 at {to} tokens/s: {now:.1} us, and {before:.1} us by the model before"
            )?;
        }
        write!(
            f,
            "in force: {} tokens/s, {} of them reserved for SLOs; the calibration spent {} tokens",
            result.tokens_per_second,
            result.reserved_tokens_per_second,
            self.spent_milli / 1000
        )
    }
}
