//! The knobs of the switch on the command line.

use super::Poll;
use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use control::model::ApiAddress;
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

/// See and turn the knobs of a running target's switch
///
/// The target must have been started with --api. What is turned counts on every core when the
/// command ends, while I/O runs; a target without --state forgets it when it ends.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard switch knobs
  switchyard switch show --api unix:/run/switchyard/api.sock --json
  switchyard switch set prioritisation=off doorbell=fixed doorbell_delay_us=100
  switchyard switch preset linux --api 127.0.0.1:4421

Exit codes: 0 done, 2 an error; where the target answered, nothing was turned")]
pub struct SwitchCommandArgs {
    #[command(subcommand)]
    pub command: SwitchCommand,
}

/// Address of the interface of a running target.
#[derive(Args, Clone, Debug)]
pub struct ApiArgs {
    /// The target's HTTP interface: unix:/PATH, or HOST:PORT with SWITCHYARD_API_TOKEN in the
    /// environment (or SWITCHYARD_API_TOKEN_FILE, the name of a file that has it)
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "unix:/run/switchyard/api.sock"
    )]
    pub api: ApiAddress,
}

#[derive(Clone, Debug, Subcommand)]
pub enum SwitchCommand {
    /// List everything that can be turned, with ranges and defaults
    Knobs,
    /// Show where the knobs of a running target are, and what its switch did
    Show {
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Turn single knobs of a running target
    Set {
        /// Changes, as KEY=VALUE
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = KnobChange::known)]
        changes: Vec<KnobChange>,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Turn all knobs of a running target: switchyard, linux, nvme-tcp, poll, ...
    Preset {
        /// The preset
        #[arg(value_name = "NAME")]
        name: Preset,
        #[command(flatten)]
        api: ApiArgs,
    },
}
