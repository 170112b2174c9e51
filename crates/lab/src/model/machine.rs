//! Our load in a process of its own, as the real thing that the model is compared with.

use crate::figure::Reported;
use crate::process::{Target, program};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use std::process::Stdio;
use std::time::Duration;
use switch::Class;

/// Time that loads run before they are measured.
pub(super) const WARM_UP: Duration = Duration::from_millis(300);

/// An application of the load generator.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadApp {
    pub(super) name: &'static str,
    /// Said only where it is not the default.
    pub(super) class: Option<Class>,
    pub(super) bytes: u32,
    pub(super) depth: u32,
    pub(super) core: u32,
}

impl LoadApp {
    fn text(&self) -> String {
        let class = self.class.map_or(String::new(), |class| {
            format!(",class={}", class.properties().letter)
        });
        format!(
            "{}:rw=randread,bs={},depth={},cpu={}{class}",
            self.name, self.bytes, self.depth, self.core
        )
    }
}

/// The needed part of `bench --json`.
#[derive(Debug, Deserialize)]
pub(super) struct LoadReport {
    apps: Vec<Reported>,
}

impl LoadReport {
    pub(super) fn app(&self, name: &str) -> Option<&Reported> {
        self.apps.iter().find(|app| app.name == name)
    }

    /// Requests of all applications when so much time was measured, those of the warm-up included.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of requests"
    )]
    pub(super) fn requests(&self, measured: Duration) -> u64 {
        let iops: f64 = self.apps.iter().map(|app| app.iops).sum();
        (iops * (WARM_UP + measured).as_secs_f64()) as u64
    }
}

/// Runs `switchyard bench` with these applications to its end.
pub(super) fn load(
    target: &Target,
    apps: &[LoadApp],
    measured: Duration,
    further: &[&str],
) -> Result<LoadReport> {
    let mut command = program()?;
    command
        .args(["bench", "--json", "--prefill"])
        .args(["--target", &target.address().to_string()])
        .args(["--warmup", &WARM_UP.as_secs_f64().to_string()])
        .args(["--seconds", &measured.as_secs_f64().to_string()])
        .args(further)
        .stdin(Stdio::null());
    for app in apps {
        command.args(["--app", &app.text()]);
    }
    let ended = command
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start this program again")?;
    ensure!(
        ended.status.success(),
        "the load failed ({}); see its message above",
        ended.status
    );
    serde_json::from_slice(&ended.stdout).context("cannot read the load's report")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applications_are_written_as_bench_reads_them() {
        let app = LoadApp {
            name: "l",
            class: Some(Class::Latency),
            bytes: 4096,
            depth: 1,
            core: 1,
        };
        let read: load::App = app.text().parse().unwrap();
        assert_eq!((read.depth, read.cpu), (1, Some(1)));
        assert_eq!(read.class, Some(Class::Latency));
    }
}
