//! A process that runs seeds on behalf of another process: a run that fails ends its process.

use crate::process::itself;
use anyhow::{Context as _, Result, bail};
use base::Mutation;
use sim::check::{Options, Survived};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Most lines kept of a process's output.
const WORDS_MAX: usize = 20;

/// A process that runs seeds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker<'a> {
    /// The options of its runs, except the seed.
    pub(super) options: &'a Options,
    /// The enabled mutation.
    pub(super) mutation: Option<Mutation>,
    /// A run that takes longer has failed.
    pub(super) patience: Duration,
}

impl Worker<'_> {
    /// Runs the seeds from `first` up to `until`, or to the first failure; `survived` receives each
    /// run that passes. Returns the output of the process for the failed run.
    ///
    /// # Errors
    /// A process that cannot be started, or violates the protocol.
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
        // Read concurrently with the results: a worker blocks when its pipe is full.
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
            Some(_) if success => bail!("a worker skipped seeds"),
            Some(_) => Ok(Some(message)),
        }
    }

    /// Reads the results of this number of seeds. Returns the number of missing results; `None` if
    /// the next result takes too long.
    fn answers(
        &self,
        child: &mut Child,
        mut seeds: u64,
        survived: &mut impl FnMut(&Survived),
    ) -> Result<Option<u64>> {
        let lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        let (sender, receiver) = sync_channel(1);
        // Ends when the pipe or its receiver closes.
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
                    seeds = seeds.checked_sub(1).context("more results than seeds")?;
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

/// Returns the panic message of a process, which follows its log.
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

/// Command-line arguments for all options except the seed.
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
