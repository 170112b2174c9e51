//! The cases: the raw exchange, the bound, and this stack's run of each.

use super::{Metric, RawCase};
use anyhow::{Context as _, Result, ensure};
use host::Namespace;
use load::{App, LoadOptions, remote_loads};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use switch::Knobs;
use switch::knobs::Polling;

/// A case that is compared with the raw exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    /// The raw exchange, with the case's name and depth.
    pub(super) raw: RawCase,
    pub(super) metric: Metric,
    /// Bound of the fraction: a minimum, or a maximum if lower is better.
    pub(super) bound: f64,
    /// This stack's load.
    reads: bool,
    bytes: u32,
    polling: Polling,
    /// Target and load run on the target's core.
    one_core: bool,
}

/// Cores of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cores {
    pub(super) target: u32,
    pub(super) load: u32,
}

const READ_4K_QD128: Case = Case {
    raw: RawCase::read_4k_qd128(),
    metric: Metric::RequestsPerSecond,
    bound: 0.80,
    reads: true,
    bytes: 4096,
    polling: Polling::Always,
    one_core: false,
};

pub(super) const CASES: [Case; 5] = [
    READ_4K_QD128,
    Case {
        raw: RawCase::write_4k_qd128(),
        bound: 0.75,
        reads: false,
        ..READ_4K_QD128
    },
    Case {
        raw: RawCase::read_128k_qd8(),
        bound: 0.90,
        bytes: 131_072,
        ..READ_4K_QD128
    },
    Case {
        raw: RawCase::read_4k_qd1_polling(),
        metric: Metric::P50Us,
        bound: 1.25,
        ..READ_4K_QD128
    },
    Case {
        raw: RawCase::read_4k_qd1_one_core(),
        metric: Metric::P50Us,
        bound: 1.5,
        polling: Polling::Adaptive,
        one_core: true,
        ..READ_4K_QD128
    },
];

impl Case {
    pub(super) fn cores(&self, target: u32, load: u32) -> Cores {
        Cores {
            target,
            load: if self.one_core { target } else { load },
        }
    }

    /// The target's `--poll`.
    pub(super) fn poll_text(&self) -> &'static str {
        match self.polling {
            Polling::Always => "always",
            Polling::Never => "never",
            Polling::Adaptive => "auto",
        }
    }

    /// Returns the compared number of a run.
    pub(super) fn value(&self, per_second: f64, p50_us: f64) -> f64 {
        match self.metric {
            Metric::RequestsPerSecond => per_second,
            Metric::P50Us => p50_us,
        }
    }

    /// Runs this stack once.
    pub(super) fn run_ours(
        &self,
        namespace: &Namespace,
        core: u32,
        warmup: Duration,
        measured: Duration,
    ) -> Result<f64> {
        let pattern = if self.reads { "randread" } else { "randwrite" };
        let app = format!(
            "{}:rw={pattern},bs={},depth={},cpu={core}",
            self.raw.name, self.bytes, self.raw.depth
        );
        let app: App = app.parse().context("an application of this case")?;
        let options = LoadOptions {
            warmup,
            measured,
            knobs: Knobs {
                polling: self.polling,
                ..Knobs::default()
            },
            ..LoadOptions::default()
        };
        let loads = remote_loads(&[app], namespace);
        let stop = AtomicBool::new(false);
        let report = load::run(&loads, &options, &stop, &mut |_| {})?;
        ensure!(report.errors() == 0, "{}", report.notes().join("; "));
        let app = &report.apps[0];
        Ok(self.value(app.iops, app.latency_us.p50))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Poll;

    #[test]
    fn both_sides_of_a_case_wait_alike_and_move_the_same_bytes() {
        for case in CASES {
            let polls = case.raw.poll == Poll::Always;
            assert_eq!(polls, case.polling == Polling::Always, "{}", case.raw.name);
            let longer = case.raw.request_bytes.max(case.raw.response_bytes);
            assert!(
                (1..=72).contains(&(longer - case.bytes as usize)),
                "{}",
                case.raw.name
            );
        }
    }
}
