//! `switchyard switch`.

use super::ApiArgs;
use clap::{Args, Subcommand};
use load::KnobChange;
use switch::knobs::Preset;

/// Show and change switch parameters of a running target
///
/// The switch decides the order, batching and core of requests. The target must run with --api.
/// Changes are in effect on all cores when the command returns, without interrupting I/O. They are
/// lost when the target exits, unless it runs with --state FILE.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard switch knobs
  switchyard switch show --api unix:/run/switchyard/api.sock --json
  switchyard switch set prioritisation=off doorbell=fixed doorbell_delay_us=100
  switchyard switch preset linux --api 127.0.0.1:4421

Exit codes: 0 success, 2 error; after an error response of the target nothing has changed")]
pub struct SwitchCommandArgs {
    #[command(subcommand)]
    pub command: SwitchCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum SwitchCommand {
    /// List all parameters with range, default and meaning
    Knobs,
    /// Show the parameters and the counters of the switch
    Show {
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Change single parameters
    Set {
        /// Parameter and its new value (repeatable)
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = KnobChange::known)]
        changes: Vec<KnobChange>,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Set all parameters to a preset: switchyard, linux, nvme-tcp, poll, ...
    Preset {
        /// Preset; `switchyard switch knobs` lists all
        #[arg(value_name = "NAME")]
        name: Preset,
        #[command(flatten)]
        api: ApiArgs,
    },
}
