//! The report of a guest: what its scenario did, and what its kernel said.

use crate::vm::SAYS;
use anyhow::{Result, bail, ensure};

/// The report of a guest, from its console.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestLog {
    /// Steps that succeeded, in order.
    pub steps: Vec<String>,
    /// The step that failed, if one did; the guest ends there.
    pub failed: Option<String>,
    /// Output of the steps.
    pub output: Vec<String>,
    /// The kernel's log: lines about NVMe, the file system, and trouble.
    pub kernel: Vec<String>,
    /// The kernel's tasks after a step that failed: where those wait that do, and what runs.
    pub tasks: Vec<String>,
    /// True if the guest came to its end.
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

    /// Insists that the guest came to its end, no step failed, each of the expected steps
    /// succeeded, and the kernel saw no trouble.
    ///
    /// # Errors
    /// Names what is not so, with the guest's words.
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

    /// The same check, where the kernel is meant to see a target that goes and comes: it must have
    /// reported no error to a program.
    ///
    /// # Errors
    /// As [`GuestLog::check`].
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
            // Where a log is cut, its end stays.
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

/// The lines of the kernel's log that tell of something that must not happen.
///
/// A kernel that removes a controller cancels the keep-alive that may be waiting then, and reports
/// that as its failure (with a round trip time from before it was sent). It has no effect outside
/// of the kernel's log.
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

/// Returns true if a line of the kernel's log tells of something that must not happen.
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

/// Returns true for an error of a request that reads ahead (REQ_RAHEAD): the kernel does not send one
/// again when its connection is lost, whatever the target does. The application's own read follows.
pub(super) fn is_read_ahead(line: &str) -> bool {
    const REQ_RAHEAD: u32 = 1 << 19;
    let flags = line.split_once("(READ) flags 0x").map(|(_, flags)| flags);
    let flags = flags.and_then(|flags| flags.split(' ').next());
    let flags = flags.and_then(|flags| u32::from_str_radix(flags, 16).ok());
    flags.is_some_and(|flags| flags & REQ_RAHEAD != 0)
}
