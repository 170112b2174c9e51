//! A process that runs seeds for another: a run that fails ends its process.

use crate::process::itself;
use anyhow::{Context as _, Result, bail};
use base::Mutation;
use sim::check::{Options, Survived};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Lines kept of what a process says.
const WORDS_MAX: usize = 20;

/// Runs of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker<'a> {
    /// The options of its runs but the seed.
    pub(super) options: &'a Options,
    /// The mistake that is in force.
    pub(super) mutation: Option<Mutation>,
    /// A run that takes longer has failed.
    pub(super) patience: Duration,
}

impl Worker<'_> {
    /// Runs the seeds from `first` up to `until`, or to the first that fails; `survived` is told of
    /// each that does not. Returns what the process said of the one that does.
    ///
    /// # Errors
    /// A process that cannot be started, or breaks the rules.
    pub(super) fn run(
        &self,
        first: u64,
        until: u64,
        mut survived: impl FnMut(&Survived),
    ) -> Result<Option<String>> {
        let range = [
            "--worker".to_owned(),
            format!("--from={first}"),
            format!("--seeds={}", until - first),
        ];
        let mut child = self.command(&range)?.spawn()?;
        let errors = BufReader::new(child.stderr.take().context("no pipe")?).lines();
        // Read beside the answers: a worker with a full pipe waits.
        let said = std::thread::spawn(|| last_words(errors.map_while(Result::ok)));
        let left = self.answers(&mut child, until - first, &mut survived);
        let silent = matches!(left, Ok(None));
        if left.is_err() || silent {
            let _ = child.kill();
        }
        let message = said.join().expect("reading lines does not panic");
        let success = child.wait()?.success();
        match left? {
            None => Ok(Some(format!(
                "a run takes longer than {} s",
                self.patience.as_secs()
            ))),
            Some(0) if success => Ok(None),
            Some(_) if success => bail!("a worker left seeds out"),
            Some(_) => Ok(Some(message)),
        }
    }

    /// Reads the answers to so many seeds. Returns how many did not come; `None` if the next one
    /// takes too long.
    fn answers(
        &self,
        child: &mut Child,
        mut seeds: u64,
        survived: &mut impl FnMut(&Survived),
    ) -> Result<Option<u64>> {
        let lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        let (sender, receiver) = sync_channel(1);
        // Ends with the pipe, or with its receiver.
        std::thread::spawn(move || {
            for line in lines {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        loop {
            match receiver.recv_timeout(self.patience) {
                Ok(line) => {
                    let line = serde_json::from_str(&line?).context("a worker's line")?;
                    survived(&line);
                    seeds = seeds.checked_sub(1).context("more answers than seeds")?;
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Ok(Some(seeds)),
            }
        }
    }

    /// Returns true if this one run fails.
    pub(super) fn fails(&self) -> bool {
        let one = [format!("--seed={}", self.options.seed)];
        let output = self
            .command(&one)
            .and_then(|mut command| Ok(command.output()?));
        output.is_ok_and(|output| !output.status.success())
    }

    fn command(&self, which: &[String]) -> Result<Command> {
        let mut command = Command::new(itself()?);
        command.args(["--log=off", "sim", "check"]).args(which);
        command.args(arguments(self.options));
        if let Some(mutation) = self.mutation {
            command.arg(format!("--mutation={}", mutation.name()));
        }
        command.env("RUST_BACKTRACE", "0");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }
}

/// Words of a process that panics, which follow what it logs.
fn last_words(lines: impl Iterator<Item = String>) -> String {
    let mut words = Vec::new();
    for line in lines {
        if line.contains(" panicked at ") {
            words.clear();
        }
        if words.len() < WORDS_MAX {
            words.push(line);
        }
    }
    words.join("\n")
}

/// Arguments for all of the options but the seed.
pub(super) fn arguments(options: &Options) -> Vec<String> {
    let mut arguments = Vec::new();
    if !options.without.is_empty() {
        let names: Vec<_> = options.without.iter().map(|f| f.name()).collect();
        arguments.push(format!("--without={}", names.join(",")));
    }
    if let Some(requests) = options.requests {
        arguments.push(format!("--requests={requests}"));
    }
    arguments
}
