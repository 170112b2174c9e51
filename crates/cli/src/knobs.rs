//! Options for switch parameters.

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use load::KnobChange;
use switch::Knobs;
use switch::knobs::Preset;

/// Switch parameters: a preset, and differences from it.
#[derive(Args, Clone, Debug, Default)]
pub struct SwitchArgs {
    /// Preset that emulates another stack, for comparison [default: switchyard]
    ///
    ///   linux               one lane per core for both classes, no priorities, fixed batching
    ///   nvme-tcp            linux without batching
    ///   poll                every thread polls
    ///   poll-priority       poll, with threads of class L at nice -20
    ///   blk-switch          the switch of the blk-switch paper
    ///   blk-switch-as       blk-switch without application steering
    ///   blk-switch-rs-as    blk-switch without request and application steering
    ///   blk-switch-p-rs-as  blk-switch without prioritisation, request and application steering
    ///   blk-switch-paper    blk-switch with threads that sleep when idle
    ///   switchyard          all mechanisms of Switchyard
    #[arg(long, value_name = "NAME", verbatim_doc_comment)]
    pub baseline: Option<Preset>,
    /// Switch parameter, such as doorbell=immediate (repeatable)
    ///
    /// Applied after --baseline. `switchyard switch knobs` lists all parameters.
    #[arg(long = "knob", value_name = "KEY=VALUE", value_parser = KnobChange::known)]
    pub knobs: Vec<KnobChange>,
    /// Idle policy of the threads [default: that of --baseline, otherwise auto]
    #[arg(long, value_enum)]
    pub poll: Option<Poll>,
}

impl SwitchArgs {
    /// Returns the values of all parameters.
    ///
    /// # Errors
    /// Parameters that contradict each other.
    pub fn knobs(&self) -> Result<Knobs> {
        let mut knobs = self.baseline.unwrap_or(Preset::Switchyard).knobs();
        knobs
            .change(self.knobs.iter().map(KnobChange::parts))
            .context("--knob")?;
        if let Some(poll) = self.poll {
            ensure!(
                self.knobs.iter().all(|change| change.key != "polling"),
                "--poll and --knob polling= set the same parameter; use one of them"
            );
            knobs.polling = poll.into();
        }
        Ok(knobs)
    }
}

/// The idle policy of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Poll {
    /// Poll always: lowest latency, 100 % CPU
    Always,
    /// Sleep when idle: lowest CPU use
    Never,
    /// Poll while requests arrive frequently enough, otherwise sleep
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
