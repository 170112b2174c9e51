//! The knobs of the switch on the command line.

use clap::{Args, Subcommand};
use control::model::ApiAddress;
use load::KnobChange;
use switch::knobs::Preset;

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
