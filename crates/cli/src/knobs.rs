//! The knobs of the switch on the command line.

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use load::KnobChange;
use switch::Knobs;
use switch::knobs::Preset;

/// The setting of the switch: a baseline, and the differences from it.
#[derive(Args, Clone, Debug, Default)]
pub struct SwitchArgs {
    /// Be like another stack, to compare with: linux, nvme-tcp or poll
    ///
    /// "linux" has one lane per core for all requests, no priority and fixed batching; "nvme-tcp"
    /// is the same without batching; with "poll" every thread polls. Also: "poll-priority" (and
    /// threads with latency work at nice -20), the ablation's steps "blk-switch-p-rs-as",
    /// "blk-switch-rs-as", "blk-switch-as", "blk-switch", and "switchyard", the default. Idle cores
    /// of all these but "poll" poll while that pays; "blk-switch-paper" is "blk-switch" on threads
    /// that sleep when idle.
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<Preset>,
    /// Turn a knob of the switch (repeatable), such as doorbell=immediate
    ///
    /// Turned after the baseline. `switchyard switch knobs` lists all of them.
    #[arg(long = "knob", value_name = "KEY=VALUE", value_parser = KnobChange::known)]
    pub knobs: Vec<KnobChange>,
    /// The idle policy of a thread [default: as the baseline says, else auto]
    #[arg(long, value_enum)]
    pub poll: Option<Poll>,
}

impl SwitchArgs {
    /// Returns the values of all knobs.
    ///
    /// # Errors
    /// Knobs that do not go together.
    pub fn knobs(&self) -> Result<Knobs> {
        let mut knobs = self.baseline.unwrap_or(Preset::Switchyard).knobs();
        knobs
            .change(self.knobs.iter().map(KnobChange::parts))
            .context("--knob")?;
        if let Some(poll) = self.poll {
            ensure!(
                self.knobs.iter().all(|change| change.key != "polling"),
                "--poll and --knob polling= say the same; keep one of them"
            );
            knobs.polling = poll.into();
        }
        Ok(knobs)
    }
}

/// The idle policy of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Poll {
    /// Polls for ever: lowest latency, one whole core each
    Always,
    /// Sleeps at once: least CPU
    Never,
    /// Polls while that pays, then sleeps
    Auto,
}

impl From<Poll> for switch::knobs::Polling {
    fn from(poll: Poll) -> Self {
        match poll {
            Poll::Always => Self::Always,
            Poll::Never => Self::Never,
            Poll::Auto => Self::Adaptive,
        }
    }
}

impl From<Poll> for reactor::PollPolicy {
    fn from(poll: Poll) -> Self {
        match poll {
            Poll::Always => Self::Always,
            Poll::Never => Self::Never,
            Poll::Auto => Self::Auto,
        }
    }
}
