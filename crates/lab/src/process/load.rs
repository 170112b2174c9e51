//! The load generator in a separate process.

use crate::figure::{Effort, LoadProcess, Storage, System};
use crate::proc::Scheduled;
use ::load::LoadReport;
use anyhow::{Context as _, Result, bail, ensure};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time that a load may take in addition to its run time, for connecting and completing its
/// requests.
const PATIENCE: Duration = Duration::from_secs(60);

/// NQN of separate hosts; a number is appended.
pub(super) const HOST_NQN: &str = "nqn.2026-11.io.switchyard:figure";

/// `switchyard bench`, killed when dropped.
#[derive(Debug)]
pub(super) struct Load {
    process: Child,
    /// Readers of stdout and stderr. They run concurrently, or the process could block on one pipe
    /// while this process waits for the other.
    readers: Option<[JoinHandle<String>; 2]>,
    give_up: Instant,
}

/// Storage under load.
#[derive(Clone, Copy, Debug)]
pub(super) enum On<'a> {
    /// A target.
    Target(SocketAddr),
    /// A local device, in the form of `bench --device`.
    Device(&'a str),
}

impl Load {
    /// Starts applications, named after `prefix` and their class, on a target.
    ///
    /// # Errors
    /// The process cannot be started with its niceness.
    pub(super) fn start(
        on: On<'_>,
        system: &System,
        process: &LoadProcess,
        effort: &Effort,
    ) -> Result<Self> {
        let mut command = super::program()?;
        let seconds = |span: Duration| span.as_secs_f64().to_string();
        command
            .args(["bench", "--json"])
            .args(["--seconds", &seconds(effort.measured)])
            .args(["--warmup", &seconds(effort.warmup)])
            .args(["--seed", &effort.seed.to_string()])
            .args(["--baseline", &system.preset.to_string()])
            .args(system.turned)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        match on {
            On::Target(address) => {
                command.args(["--target", &address.to_string()]);
                command.args(["--nsid", nsid(process.storage)]);
            }
            On::Device(device) => {
                command.args(["--device", device]);
            }
        }
        if system.own_lanes {
            command.args(["--lanes", "own"]);
        }
        if process.hosts > 1 {
            let hosts = process.hosts.to_string();
            command.args(["--host-nqn", HOST_NQN, "--hosts", &hosts]);
        }
        for (index, app) in process.apps.iter().enumerate() {
            let name = format!("{}{index}", app.class.properties().letter);
            command.args(["--app", &app.text(&name)]);
        }
        let mut child = spawn_nice(command, process.nice)?;
        let stdout = child.stdout.take().map(read_all);
        let stderr = child.stderr.take().map(read_all);
        Ok(Self {
            process: child,
            readers: stdout.zip(stderr).map(<[_; 2]>::from),
            give_up: Instant::now() + effort.warmup + effort.measured + PATIENCE,
        })
    }

    /// The scheduling counters of its L-apps' threads, while it runs.
    pub(super) fn latency_threads(&self) -> Scheduled {
        Scheduled::of(
            self.process.id(),
            switch::Class::Latency.properties().letter,
        )
    }

    /// Returns its exit status if it has ended.
    ///
    /// # Errors
    /// It takes too long.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let status = self
            .process
            .try_wait()
            .context("cannot wait for the load")?;
        ensure!(
            status.is_some() || Instant::now() < self.give_up,
            "the load hangs: it did not end within {PATIENCE:?} after its run time"
        );
        Ok(status)
    }

    /// Returns the results of its applications and its switchboard, when it has ended with
    /// `status`.
    ///
    /// # Errors
    /// The error of the process, or unreadable output.
    pub(super) fn report(mut self, status: ExitStatus) -> Result<LoadReport> {
        let readers = self.readers.take().expect("it is read once");
        let [stdout, stderr] =
            readers.map(|reader| reader.join().expect("a reader does not panic"));
        // 1: requests failed, which the report shows per application.
        if !matches!(status.code(), Some(0 | 1)) {
            bail!("the load failed ({status}): {}", stderr.trim());
        }
        let report: LoadReport = serde_json::from_str(&stdout)
            .with_context(|| format!("the load's report cannot be read: {}", stderr.trim()))?;
        ensure!(!report.interrupted, "interrupted");
        Ok(report)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // If it has ended, both have no effect.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The namespace ID of a storage, in the order of [`super::runner`].
fn nsid(storage: Storage) -> &'static str {
    match storage {
        Storage::Memory
        | Storage::PricedMemory
        | Storage::Tokens
        | Storage::TokensByHost
        | Storage::File
        | Storage::DramSsd { .. } => "1",
        Storage::Flash => "2",
    }
}

fn read_all(mut pipe: impl std::io::Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // On a read error, the text ends there.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Starts `command` with a niceness, which a process inherits from the starting thread.
fn spawn_nice(mut command: Command, nice: i32) -> Result<Child> {
    let spawn = move || {
        if nice != 0 {
            rustix::process::setpriority_process(None, nice).with_context(|| {
                format!("may not give a load niceness {nice}; run as root, or with CAP_SYS_NICE")
            })?;
        }
        command
            .spawn()
            .context("cannot start the program to measure")
    };
    let thread = std::thread::spawn(spawn);
    thread.join().expect("starting a process does not panic")
}
