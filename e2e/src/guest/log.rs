//! The report of a guest: the results of its scenario, and its kernel's log.

use crate::vm::SAYS;
use anyhow::{Result, bail, ensure};

/// The report of a guest, from its console.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestLog {
    /// Steps that succeeded, in order.
    pub steps: Vec<String>,
    /// The step that failed, if any; the guest ends there.
    pub failed: Option<String>,
    /// Output of the steps.
    pub output: Vec<String>,
    /// The kernel's log: lines about NVMe, the file system, and errors.
    pub kernel: Vec<String>,
    /// The kernel's tasks after a failed step: running tasks, and where waiting tasks wait.
    pub tasks: Vec<String>,
    /// True if the guest completed.
    pub ended: bool,
    console: String,
}

impl GuestLog {
    pub(super) fn parse(console: &str) -> Self {
        let mut report = Self {
            console: console.to_owned(),
            ..Self::default()
        };
        for line in console.lines() {
            let Some((_, said)) = line.split_once(SAYS) else {
                continue;
            };
            let said = said.trim_end();
            if let Some(text) = said.strip_prefix("output ") {
                report.output.push(text.to_owned());
            } else if let Some(text) = said.strip_prefix("kernel ") {
                report.kernel.push(text.to_owned());
            } else if let Some(text) = said.strip_prefix("task ") {
                report.tasks.push(text.to_owned());
            } else if let Some(step) = said.strip_prefix("step ") {
                match step.rsplit_once(' ') {
                    Some((name, "ok")) => report.steps.push(name.to_owned()),
                    _ => report.failed = Some(step.to_owned()),
                }
            } else if said == "end" {
                report.ended = true;
            }
        }
        report
    }

    /// Checks that the guest completed, no step failed, each expected step succeeded, and the
    /// kernel reported no error.
    ///
    /// # Errors
    /// The failed check, with the guest's output.
    pub fn check(&self, expected: &[String]) -> Result<()> {
        self.check_steps(expected)?;
        let trouble = trouble(&self.kernel);
        ensure!(
            trouble.is_empty(),
            "the guest's kernel saw trouble:\n{}\nIts whole log:\n{}",
            trouble.join("\n"),
            self.kernel.join("\n")
        );
        Ok(())
    }

    /// Like [`check`](Self::check) for connections that fail or are refused: the kernel must have
    /// reported no error to a program.
    ///
    /// # Errors
    /// Like [`GuestLog::check`].
    pub fn check_survived(&self, expected: &[String]) -> Result<()> {
        self.check_steps(expected)?;
        let signs = ["I/O error, dev", "EXT4-fs error", "Oops", "BUG:", "corrupt"];
        let is_bad = |line: &&String| {
            let bad = signs.iter().any(|sign| line.contains(sign));
            bad && !is_read_ahead(line)
        };
        let bad: Vec<&String> = self.kernel.iter().filter(is_bad).collect();
        ensure!(bad.is_empty(), "the guest's kernel saw {bad:?}");
        Ok(())
    }

    fn check_steps(&self, expected: &[String]) -> Result<()> {
        if let Some(step) = &self.failed {
            // If the log is truncated, its end is kept.
            let log = [&self.kernel[..], &self.tasks[..], &self.output[..]].concat();
            bail!("{}\nin the guest, step {step}", log.join("\n"));
        }
        ensure!(
            self.ended,
            "the guest did not come to its end:\n{}",
            self.console
        );
        for step in expected {
            ensure!(
                self.steps.contains(step),
                "the guest did not do step {step}:\n{}",
                self.console
            );
        }
        Ok(())
    }
}

/// Returns the lines of the kernel's log with unacceptable errors.
///
/// A kernel that removes a controller cancels a pending keep-alive, and reports that as its failure
/// (with a round trip time from before it was sent). That has no effect except the log.
pub(super) fn trouble(log: &[String]) -> Vec<&str> {
    let mut removing = false;
    let mut found = Vec::new();
    for line in log {
        if line.contains("Removing ctrl") {
            removing = true;
        } else if line.contains("creating") || line.contains("new ctrl") {
            removing = false;
        }
        let cancelled = removing && line.contains("nvme_keep_alive_end_io");
        if is_trouble(line) && !cancelled {
            found.push(line.as_str());
        }
    }
    found
}

/// Returns true for a line of the kernel's log with an unacceptable error.
fn is_trouble(line: &str) -> bool {
    const SIGNS: [&str; 17] = [
        "error",
        "fail",
        "timeout",
        "timed out",
        "reset",
        "reconnect",
        "abort",
        "unable",
        "mismatch",
        "unexpected",
        "invalid",
        "bogus",
        "ignoring",
        "corrupt",
        "oops",
        "bug:",
        "warning:",
    ];
    let line = line.to_lowercase();
    SIGNS.iter().any(|sign| line.contains(sign))
}

/// Returns true for an error of a read-ahead request (REQ_RAHEAD): the kernel does not resend it
/// after a lost connection, whatever the target does. The application's own read follows.
pub(super) fn is_read_ahead(line: &str) -> bool {
    const REQ_RAHEAD: u32 = 1 << 19;
    let flags = line.split_once("(READ) flags 0x").map(|(_, flags)| flags);
    let flags = flags.and_then(|flags| flags.split(' ').next());
    let flags = flags.and_then(|flags| u32::from_str_radix(flags, 16).ok());
    flags.is_some_and(|flags| flags & REQ_RAHEAD != 0)
}
